#!/usr/bin/env python
"""Show a study to an auditor: the tables and figures of its report, and the page with every grade.

Reads the census (scripts/census.py) and the records that grades stand on; judges nothing.
"""

from pathlib import Path

from assize import census, cli
from assize.errors import UsageError
from assize.records import read_record, write_atomic
from assize.study import Study


def main(argv) -> dict:
    parser = cli.Parser(prog="report.py", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, parser_class=cli.Parser)
    whole = verbs.add_parser("study", help="write audit.html, and the tables of the whole study")
    whole.add_argument("--config", required=True, help="the study's YAML file, for the commands that the page shows")
    part = verbs.add_parser("benchmark", help="write the tables and figures of one benchmark")
    part.add_argument("--benchmark", required=True)
    for verb in (whole, part):
        verb.add_argument("--study", required=True, help="results/<study>/study.json")
    arguments = parser.parse_args(argv)
    study = Study.read(Path(arguments.study))
    record = read_record(study.root / "census" / "census.json", "census")
    if arguments.verb == "study":
        written = report_study(study, record, arguments.config)
    elif arguments.benchmark in study.benchmarks:
        written = report_benchmark(study, record, arguments.benchmark)
    else:
        allowed = ", ".join(study.benchmarks)
        raise UsageError("bad_usage", f"--benchmark {arguments.benchmark}: not in the study; allowed: {allowed}")
    return {"ok": True, "written": written}


def report_study(study: Study, record: dict, config: str) -> list[str]:
    """The audit page, and the tables that are over all benchmarks."""
    from assize.report import page, tables
    from assize.report.cases import read_cases
    from assize.report.notices import notices

    cases = read_cases(study, census.read(study).grades, record)
    folder = study.root / "report"
    return _write(
        {
            folder / "scores.html": page.table_page(study, tables.scores(record), notices(record, cases)),
            folder / "provenance.html": page.table_page(study, tables.provenance(study, cases)),
            folder / "official.html": page.table_page(study, tables.official(record)),
            folder / "voids.html": page.table_page(study, tables.voids(record)),
            folder / "flags.html": page.table_page(study, tables.flags(record)),
            study.root / "audit.html": page.audit_page(study, record, cases, config),
        }
    )


def report_benchmark(study: Study, record: dict, benchmark: str) -> list[str]:
    """The tables and figures of one benchmark, from the census alone."""
    from assize.report import figures, page, tables

    rows = [row for row in census.read_csv(study) if row["benchmark"] == benchmark]
    lines = [line for line in record["conditions"] if line["benchmark"] == benchmark]
    folder = study.root / "report" / benchmark
    drawn = {
        "verdicts.svg": figures.verdict_map(rows, lines, f"{benchmark}: verdicts"),
        "scores.svg": figures.score_bars(lines, f"{benchmark}: scores"),
    }
    made = {
        "signatures.html": tables.signatures(record, benchmark),
        "calibration.html": tables.calibration(record, benchmark),
        "comparisons.html": tables.comparisons(record, benchmark),
    }
    pages = {folder / name: figures.as_svg(figure) for name, figure in drawn.items()}
    return _write(pages | {folder / name: page.table_page(study, table) for name, table in made.items()})


def _write(pages: dict[Path, str]) -> list[str]:
    for path, text in pages.items():
        write_atomic(path, text.encode())
    return [str(path) for path in pages]


if __name__ == "__main__":
    cli.run(main)
