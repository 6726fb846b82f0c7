#!/usr/bin/env python
"""Run a study from inside Slurm: its controller is a Slurm job, requeued before its time limit until all is done."""

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path

from assize import cli, controller, holder, progress
from assize.errors import UsageError
from assize.study import RESULTS, Study


def main(argv) -> dict | None:
    parser = cli.Parser(prog="controller.py", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, parser_class=cli.Parser)
    submit = verbs.add_parser("submit", help="submit a controller for a study")
    submit.add_argument("targets", nargs="*", help="what to make; the whole study if none are named")
    submit.add_argument("--profile", type=Path, default="profiles/slurm", help="or profiles/allocation")
    submit.add_argument("--configfile", type=Path, default="config/study.yaml", help="the study")
    submit.add_argument("--time", type=_minutes, metavar="MINUTES", help="of one life of the controller (a day)")
    submit.add_argument("--cpus", type=int, help="of the controller (2, or the study's allocation if it runs in one)")
    submit.add_argument("--memory", type=_memory, help="of the controller, for example 4g (2g, or the allocation's)")
    status = verbs.add_parser("status", help="how far a study is")
    status.add_argument("--json", action="store_true", help="as one JSON object")
    logs = verbs.add_parser("logs", help="what the controller said")
    logs.add_argument("--follow", "-f", action="store_true", help="go on as it says more")
    cancel = verbs.add_parser("cancel", help="end the controller of a study, and all jobs that it submitted")
    for verb in (status, logs, cancel):
        verb.add_argument("study", type=Path, nargs="?", help="results/<study>; needed where there are several")
    arguments = parser.parse_args(argv)
    if arguments.verb == "submit":
        wishes = controller.Wishes(
            profile=arguments.profile,
            config=arguments.configfile,
            targets=tuple(arguments.targets),
            minutes=arguments.time,
            cpus=arguments.cpus,
            memory=arguments.memory,
        )
        study, record = controller.submit(wishes)
        cli.log(f"Slurm job {record['job']} runs {study.name}. See: python scripts/controller.py status {study.root}")
        return {"ok": True, "record": record}
    folder = arguments.study or _only_study()
    if arguments.verb == "status":
        return _status(folder, arguments.json)
    if arguments.verb == "logs":
        return _logs(folder, arguments.follow)
    return {"ok": True, **controller.cancel(folder)}


def _status(folder: Path, as_json: bool) -> dict | None:
    record = controller.read_controller(folder)
    state = record and controller.job_state(record["job"])
    running = controller.study_tasks(folder)
    # Between two lives of a controller nobody holds the study, and that is as it should be.
    held = None if state and state.lives else holder.look(folder)
    lines, remaining = [], None
    if (folder / "study.json").exists():
        verdicts = progress.read_verdicts(Study.read(folder / "study.json"))
        lines = progress.lines_of(verdicts)
        left = sum(line.left for line in lines)
        remaining = progress.seconds_left([found[1] for found in verdicts.values() if found], left)
    if as_json:
        return {
            "ok": True,
            "controller": record and {**record, "state": state and state.word},
            "held": held and str(held),
            "slurm_jobs": [task.id for task in running],
            "conditions": [asdict(line) for line in lines],
            "seconds_left": remaining,
        }
    facts = [controller.told(folder, record, state)] if record else ["No controller was submitted for this study."]
    facts += [str(held)] if held else []
    facts += [f"{len(running)} Slurm jobs of the study wait or run."] if running else []
    progress.print_progress(folder.name, facts, lines, remaining)
    return None


def _logs(folder: Path, follow: bool) -> None:
    record = controller.read_controller(folder)
    if record is None:
        raise UsageError("no_controller", f"{folder}: no controller was submitted", "controller.py submit")
    log = controller.log_of(folder, record)
    if not log.exists():
        raise UsageError(
            "no_log", f"{log}: the controller has said nothing yet", "controller.py status tells its state"
        )
    sys.stdout.flush()
    os.execvp("tail", ["tail", "-n", "+1", *(["-F"] if follow else []), str(log)])


def _only_study() -> Path:
    found = sorted(path.parent.parent for path in RESULTS.glob("*/controller/controller.json"))
    if len(found) != 1:
        shown = ", ".join(map(str, found)) or "none"
        raise UsageError("which_study", f"name the study: results/<study>; with a controller: {shown}")
    return found[0]


def _minutes(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of minutes, such as 720")
    return int(text)


def _memory(text: str) -> str:
    import re

    if not re.fullmatch(r"[1-9][0-9]*[mgMG]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no amount of memory, such as 4g or 512m")
    return text


if __name__ == "__main__":
    cli.run(main)
