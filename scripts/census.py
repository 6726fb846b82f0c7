#!/usr/bin/env python
"""Count a study: write census.json and grades.csv, or print the table of verdicts."""

from pathlib import Path

from assize import accounting, census, cli
from assize.records import read_record, write_atomic, write_record
from assize.study import Study


def main(argv) -> dict | None:
    parser = cli.Parser(prog="census.py", description=__doc__)
    parser.add_argument("--study", required=True, help="results/<study>/study.json")
    parser.add_argument("--allow-void", action="store_true", help="show rates although grades are void, and mark them")
    parser.add_argument("--table", action="store_true", help="print the table of verdicts; write nothing")
    arguments = parser.parse_args(argv)
    study = Study.read(Path(arguments.study))
    grades = census.read_grades(study)
    census.check_one_study(study, grades)
    rows = [census.row(study, episode, grade) for episode, grade in grades.items()]
    record = census.aggregate(study, rows, arguments.allow_void, census.audit(study, grades))
    folder = study.root / "census"
    if arguments.table:
        census.print_table(record, rows, folder)
        if (folder / "accounting.json").exists():
            accounting.print_table(read_record(folder / "accounting.json", "accounting"))
        return None
    write_atomic(folder / "grades.csv", census.as_csv(rows))
    write_record(folder / "census.json", record)
    return {"ok": True, "record": record}


if __name__ == "__main__":
    cli.run(main)
