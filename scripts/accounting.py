#!/usr/bin/env python
"""Ask Slurm what the jobs that made a study's records used: write accounting.json. Asked again, it is written anew."""

import time
from pathlib import Path

from assize import accounting, cli
from assize.records import write_record
from assize.study import Study


def main(argv) -> dict:
    parser = cli.Parser(prog="accounting.py", description=__doc__)
    parser.add_argument("--study", required=True, help="results/<study>/study.json")
    parser.add_argument("--wait", type=float, default=30, help="seconds to wait for sacct to learn of a job's end (30)")
    arguments = parser.parse_args(argv)
    study = Study.read(Path(arguments.study))
    makers = accounting.read_makers(study)
    answer = accounting.ask({job for _, _, job in makers if job}, arguments.wait)
    asked = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    record = accounting.account(study, makers, answer, asked)
    write_record(study.root / "census" / "accounting.json", record)
    return {"ok": True, "record": record}


if __name__ == "__main__":
    cli.run(main)
