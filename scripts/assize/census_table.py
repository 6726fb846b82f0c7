"""The census in a terminal: what was found at fault first, then the verdicts, then what a reader must know of them."""

from pathlib import Path

from assize.officialness import reservations
from assize.signatures import plain

# A terminal shows so many lines of one kind; the record has all.
SHOWN = 10


def print_census(record: dict, folder: Path, seal: str | None = None) -> None:
    """Print a census record. ``folder`` is where it lies; ``seal`` its digest, where it was sealed."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = 110
    for line in [*_indictments(record), *([""] if record["indicted"] else [])]:
        console.print(_safe(line))
    console.print(_verdicts(record), soft_wrap=False)
    for line in [*_summaries(record), *_voids(record), *_doubts(record), *comparison_lines(record)]:
        console.print(_safe(line))
    console.print(f"Each episode: {folder / 'grades.csv'}; all else: {folder / 'census.json'}")
    if seal:
        console.print(f"Seal of this study, to publish with its numbers: {seal}")


def _safe(line: str) -> str:
    """A line that may hold a candidate's words, with its indentation."""
    return line[: len(line) - len(line.lstrip())] + plain(line)


def _where(line: dict) -> str:
    return f"{line['benchmark']}/{line['condition']}"


def _indictments(record: dict) -> list[str]:
    """First of all: what is wrong with the harness, and what to mend first."""
    found = [(line, fault) for line in record["conditions"] for fault in line["faults"] if fault["indicts"]]
    if not found:
        return []
    found.sort(key=lambda item: -item[1]["count"])
    named = ", ".join(sorted({line["benchmark"] for line, _ in found}))
    lines = [f"HARNESS INDICTED: no number of {named} is a model's score until this is mended and graded again."]
    for line, fault in found:
        lines.append(f"  {_where(line)}: {fault['rule']}: {fault['count']} of {fault['of']} failures")
        lines.append(f"    for example {fault['examples'][0]}")
        lines.append(f"    mend first: {fault['remedy']}")
    return lines


def _verdicts(record: dict):
    from rich.table import Table

    table = Table(title=f"{record['study']}: {record['planned']} episodes", title_justify="left")
    for name in ("benchmark", "condition"):
        table.add_column(name)
    for name in ("count", "pass", "fail", "void", "pass rate\nover scored", "pass rate\nover planned"):
        table.add_column(name, justify="right")
    for line in record["conditions"]:
        numbers = [str(line[key]) for key in ("count", "passed", "failed", "void")]
        table.add_row(line["benchmark"], line["condition"], *numbers, *(_rate(line, over) for over in OVER))
    return table


OVER = ("scored", "planned")


def _rate(line: dict, over: str) -> str:
    if line["over_scored"] is None:
        return "withheld" if line["withheld"] else "-"
    (estimate,) = (item for item in line["estimates"] if (item["measure"], item["over"]) == ("pass_rate", over))
    return _interval(estimate) + (" *" if line["withheld"] else "")


def _interval(estimate: dict) -> str:
    if estimate["value"] is None:
        return "-"
    if estimate["low"] is None:
        return f"{estimate['value']:.1%}"
    return f"{estimate['value']:.1%} [{estimate['low']:.1%}, {estimate['high']:.1%}]"


def _summaries(record: dict) -> list[str]:
    lines = []
    for line in record["conditions"]:
        lines += [f"{_where(line)} {name}: {_told(numbers)}" for name, numbers in line["summary"].items()]
        for item in line["estimates"]:
            if item["measure"] != "pass_rate" and item["over"] == "scored" and item["method"] != "none":
                lines.append(f"{_where(line)} {item['measure']} over scored: {_interval(item)}")
    return lines


def _told(numbers: dict) -> str:
    """``steps 1/50, problems 0/15``: pairs are fractions."""
    shown = {key: "/".join(map(str, value)) if isinstance(value, list) else value for key, value in numbers.items()}
    return ", ".join(f"{key} {value}" for key, value in shown.items())


def _voids(record: dict) -> list[str]:
    if not record["void_reasons"]:
        return []
    marked = "rates marked * are over what was judged" if record["allow_void"] else "withheld until it is judged"
    lines = [f"Not judged (void), {marked}:"]
    for status, reasons in record["void_reasons"].items():
        lines += [f"  {status}: {reason}" for reason in reasons[:SHOWN]]
        lines += [f"  {status}: {len(reasons) - SHOWN} more"] if len(reasons) > SHOWN else []
    remedies: dict[tuple[str, str], int] = {}
    for line in record["conditions"]:
        for fault in line["faults"]:
            if not fault["indicts"]:
                key = (fault["rule"], fault["remedy"])
                remedies[key] = remedies.get(key, 0) + fault["count"]
    return lines + [f"  {rule} ({count}): {remedy}" for (rule, remedy), count in remedies.items()]


def _doubts(record: dict) -> list[str]:
    """What does not change a number, and what a reader of the numbers must know."""
    lines = [f"Tamper flag {item['flag']}: {_in_grades(item)}" for item in record["tamper"]]
    for item in record["unlike_repeats"]:
        if item["same_snapshot"]:
            what = ", ".join(item["checks"][:SHOWN]) or "verdict"
            lines.append(f"Flaky grader: {_where(item)}/{item['instance']}: the same bytes, judged differently: {what}")
    unlike = sum(not item["same_snapshot"] for item in record["unlike_repeats"])
    lines += [f"Repeats that ended differently, of unlike work: {unlike} (condition, instance)"] if unlike else []
    for item in record["calibrations"]:
        if item["flaky"]:
            checks = f" ({', '.join(item['checks'][:SHOWN])})" if item["checks"] else ""
            lines.append(
                f"Flaky calibration: {item['benchmark']}/{item['instance']}: the reference passed "
                f"{item['passed']} of {item['repetitions']} repetitions{checks}"
            )
    differ = [item for item in record["protocol_sensitive"] if item["verdict"] != item["other_verdict"]]
    if record["protocol_sensitive"]:
        lines.append(
            f"Protocol-sensitive checks: {len(record['protocol_sensitive'])}, verdicts differ in {len(differ)}"
        )
    if record["oracle_exposed"]:
        names = ", ".join(record["oracle_exposed"])
        lines.append(f"Oracle exposed: a candidate can read the grader's files while graded: {names}")
    reserved = reservations(record["official"])
    return lines + (["With reservations: " + "; ".join(reserved)] if reserved else [])


def _in_grades(item: dict) -> str:
    return f"{item['count']} in {len(item['episodes'])} grade(s), for example {item['episodes'][0]}"


def comparison_lines(record: dict) -> list[str]:
    """The pass rates of a census record, compared: each pair of conditions in a line, and how many were left out."""
    lines = []
    found = [item for item in record["comparisons"] if item["measure"] == "pass_rate"]
    for item in found[:SHOWN]:
        interval = "" if item["low"] is None else f" [{item['low']:+.1%}, {item['high']:+.1%}]"
        lines.append(
            f"{item['benchmark']}: {item['first']} minus {item['second']}: {item['difference']:+.1%}{interval}, "
            f"{item['discordant']} of {item['instances']} pairs discordant{_chance(item['p_value'])}"
        )
    return lines + ([f"Comparisons that are not shown: {len(found) - SHOWN}"] if len(found) > SHOWN else [])


def _chance(p_value: float | None) -> str:
    if p_value is None:
        return ""
    return ", McNemar p < 0.0001" if p_value < 0.0001 else f", McNemar p = {p_value:.3g}"
