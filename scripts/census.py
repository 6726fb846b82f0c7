#!/usr/bin/env python
"""Count a study: write census.json, grades.csv and the seal, or print the table of verdicts."""

from pathlib import Path

from assize import census, cli, indictment, seal
from assize.census_table import print_census
from assize.errors import GateClosed
from assize.records import write_atomic, write_record
from assize.study import Study


def main(argv) -> dict | None:
    parser = cli.Parser(prog="census.py", description=__doc__)
    parser.add_argument("--study", required=True, help="results/<study>/study.json")
    parser.add_argument("--allow-void", action="store_true", help="show rates although grades are void, and mark them")
    parser.add_argument("--table", action="store_true", help="print the table of verdicts; write nothing")
    parser.add_argument("--strict", action="store_true", help="exit 4 where a headline number is withheld")
    arguments = parser.parse_args(argv)
    study = Study.read(Path(arguments.study))
    records = census.read(study)
    record = census.aggregate(study, records, indictment.read_rules(), arguments.allow_void)
    record["rules"] = indictment.table_provenance()
    folder = study.root / "census"
    if arguments.table:
        print_census(record, folder, seal.seal_of(study))
    else:
        write_atomic(folder / "grades.csv", census.as_csv(census.rows(study, records.grades)))
        write_record(folder / "census.json", record)
        seal.write_seal(study)
    withheld = [
        f"  {line['benchmark']}/{line['condition']}: {line['withheld']}"
        for line in record["conditions"]
        if line["withheld"] and line["over_scored"] is None
    ]
    if arguments.strict and withheld:
        message = "\n".join([f"{study.root}: headline numbers are withheld:", *withheld])
        raise GateClosed("withheld", message, "the table and census.json say what to mend first")
    return None if arguments.table else {"ok": True, "record": record}


if __name__ == "__main__":
    cli.run(main)
