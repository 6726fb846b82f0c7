"""The pages that an auditor reads: the audit page, and one page a table. Self-contained: nothing is ever fetched."""

import base64
import hashlib
from pathlib import Path

from assize.report import packing
from assize.report.notices import notices
from assize.report.tables import Table, by_benchmark, comparisons, interval
from assize.report.text import script_json, visible
from assize.seal import seal_of
from assize.study import Study

ASSETS = Path(__file__).parent / "assets"


def audit_page(study: Study, record: dict, cases: list[dict], config: str) -> str:
    """``audit.html``: what must be read first, the scores, and every grade with its evidence."""
    script, style = _asset("page.js"), _asset("page.css")
    return _template("page.html").render(
        study=study.name,
        root=study.root,
        facts=_facts(study, record, cases),
        notices=notices(record, cases),
        scores=[_score_line(line) for line in by_benchmark(record)],
        interval_note=_interval_note(record),
        pairs=comparisons(record).filled,
        more=more(study),
        style=style,
        style_hash=_csp_hash(style),
        script=script,
        script_hash=_csp_hash(script),
        data=script_json(packing.pack(study, cases, packing.workflow_options(study, config))),
    )


def table_page(study: Study, table: Table, notices: list = ()) -> str:
    """One table of the report as a page of its own."""
    style = _asset("page.css")
    return _template("table.html").render(
        study=study.name, table=table.filled, notices=notices, style=style, style_hash=_csp_hash(style)
    )


def _lines(cell) -> list[str]:
    """The text of a cell as lines that hide nothing."""
    return [visible(line, 600) for line in str(cell).split("\n")]


def more(study: Study) -> list[tuple[str, str]]:
    """What lies beside the audit page: (name, path)."""
    parts = {
        "verdicts": "verdicts.svg",
        "scores": "scores.svg",
        "signatures": "signatures.html",
        "calibration": "calibration.html",
    }
    whole = ["provenance", "official", "voids", "flags"]
    more = [(f"{name} of {b}", f"report/{b}/{file}") for b in study.benchmarks for name, file in parts.items()]
    return more + [(name, f"report/{name}.html") for name in whole] + [("all rows as CSV", "census/grades.csv")]


def _asset(name: str) -> str:
    return (ASSETS / name).read_text()


def _template(name: str):
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["lines"] = _lines
    return environment.get_template(name)


def _csp_hash(text: str) -> str:
    """The page's policy names what may run in it by its hash: nothing that a candidate wrote can."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _facts(study: Study, record: dict, cases: list[dict]) -> list[tuple[str, str]]:
    started = sorted(case["grade"]["timing"]["started"] for case in cases if case["grade"])
    facts = [
        ("planned episodes", str(record["planned"])),
        ("benchmarks", ", ".join(study.benchmarks)),
        ("conditions", str(len(study.frozen["conditions"]))),
        ("resource mode", ", ".join(sorted({s["terms"]["resource_mode"] for s in study.benchmarks.values()}))),
    ]
    if started:
        facts.append(("graded", f"{started[0]} to {started[-1]}"))
    return facts + [("seal", seal_of(study) or "not sealed")]


def _score_line(line: dict) -> dict:
    """A condition as the page shows it: pass rates in columns of their own, all else that counts as words."""
    rates, notes = {}, []
    for estimate in line["estimates"]:
        if estimate["measure"] == "pass_rate":
            rates[estimate["over"]] = estimate
    others = dict.fromkeys(item["measure"] for item in line["estimates"] if item["measure"] != "pass_rate")
    for measure in others:
        over = {item["over"]: item for item in line["estimates"] if item["measure"] == measure}
        same = interval(over["scored"]) == interval(over["planned"])
        told = interval(over["scored"]) + (
            " over both" if same else f" over scored, {interval(over['planned'])} over planned"
        )
        notes.append(f"{measure.replace('_', ' ')} {told}")
    for name, numbers in line["summary"].items():
        notes.append(f"{name}: {_numbers(numbers)}")
    notes += [f"{line['tampered']} with tamper flags"] if line["tampered"] else []
    notes += [f"{line['flagged']} with reward flags"] if line["flagged"] else []
    if line["withheld"] and line["over_scored"] is not None:
        notes.append(f"shown although {line['withheld']}")
    return line | {"rates": rates, "notes": notes}


def _numbers(numbers: dict) -> str:
    shown = {key: "/".join(map(str, value)) if isinstance(value, list) else value for key, value in numbers.items()}
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in shown.items())


def _interval_note(record: dict) -> str:
    level = record["statistics"]["level"]
    methods = sorted({item["method"] for line in record["conditions"] for item in line["estimates"]} - {"none"})
    words = {"wilson": "Wilson's", "bootstrap": "a bootstrap over instances"}
    told = " or ".join(words.get(method, method) for method in methods)
    return f"Ranges are {level:.0%} intervals ({told})." if told else "No number may be shown."
