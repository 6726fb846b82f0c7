"""The tables of the report, as titles, columns and rows of text, which the page makes safe to show. Pure."""

import json
from dataclasses import dataclass, replace

from assize.chain import STATES
from assize.report.text import visible
from assize.study import Study

# An auditor reads so many lines; the rest is in the census record, and the table says so.
ROWS_SHOWN = 500


@dataclass(frozen=True)
class Table:
    """``columns``: (name, kind), the kind one of text, number, mono, verdict."""

    title: str
    columns: tuple[tuple[str, str], ...]
    rows: list[tuple]
    lead: str = ""
    empty: str = "There is none."

    @property
    def filled(self) -> "Table":
        """The table without the columns in which nothing stands."""
        kept = [place for place in range(len(self.columns)) if any(str(row[place]) for row in self.rows)]
        columns = tuple(self.columns[place] for place in kept)
        return replace(self, columns=columns, rows=[tuple(row[place] for place in kept) for row in self.rows])

    @property
    def shown(self) -> list[tuple]:
        return self.rows[:ROWS_SHOWN]

    @property
    def left_out(self) -> int:
        return max(0, len(self.rows) - ROWS_SHOWN)


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def interval(line: dict) -> str:
    """``41.2% (30.1 to 53.0)``: a rate and its 95% interval, where there is one."""
    if line["value"] is None:
        return "-"
    if line["low"] is None:
        return percent(line["value"])
    return f"{percent(line['value'])} ({100 * line['low']:.1f} to {100 * line['high']:.1f})"


def by_benchmark(census: dict) -> list[dict]:
    """The census's conditions, those of a benchmark together."""
    return sorted(census["conditions"], key=lambda line: line["benchmark"])


def scores(census: dict) -> Table:
    rows = []
    for line in by_benchmark(census):
        common = (line["benchmark"], line["condition"], line["count"], line["passed"], line["failed"], line["void"])
        measures = dict.fromkeys(estimate["measure"] for estimate in line["estimates"])
        for number, measure in enumerate(measures):
            over = {item["over"]: item for item in line["estimates"] if item["measure"] == measure}
            rates = (interval(over["scored"]), interval(over["planned"]), over["scored"]["method"])
            shown = common if number == 0 else ("",) * len(common)
            rows.append((*shown, measure.replace("_", " "), *rates, line["withheld"] or ""))
        if not measures:
            rows.append((*common, "", "withheld", "withheld", "", line["withheld"] or "nothing was scored"))
    columns = (
        *((name, "text") for name in ("benchmark", "condition")),
        *((name, "number") for name in ("planned", "pass", "fail", "void")),
        *((name, "text") for name in ("measure", "over scored (95%)", "over planned (95%)", "interval", "withheld")),
    )
    return Table("Scores", columns, rows)


def signatures(census: dict, benchmark: str) -> Table:
    rows = [
        (
            line["count"],
            line["signature"],
            line["origin"] or "",
            line["rule"] or "",
            "\n".join(f"{name} {count}" for name, count in line["conditions"].items()),
            len(line["episodes"]),
            "\n".join(visible(example, 240) for example in line["examples"]),
        )
        for line in census["signatures"]
        if line["benchmark"] == benchmark
    ]
    columns = (
        ("count", "number"),
        ("signature", "mono"),
        ("raised by", "text"),
        ("harness-fault rule", "text"),
        ("conditions", "text"),
        ("episodes", "number"),
        ("examples", "mono"),
    )
    return Table(f"{benchmark}: how it failed", columns, rows, empty="Nothing failed.")


def calibration(census: dict, benchmark: str) -> Table:
    lines = [line for line in census["calibrations"] if line["benchmark"] == benchmark]
    # What an auditor must see first: a gate that is not open, a reference that does not always pass.
    lines.sort(key=lambda line: (line["status"] == "open", not line["flaky"]))
    rows = [
        (
            line["instance"],
            line["status"],
            f"{line['passed']} of {line['repetitions']}",
            "flaky" if line["flaky"] else "",
            ", ".join(line["flags"]),
            "; ".join(line["reasons"]),
            f"{line['seconds']:.1f}",
        )
        for line in lines
    ]
    columns = (
        ("instance", "text"),
        ("gate", "text"),
        ("reference passed", "number"),
        ("flaky", "text"),
        ("flags", "text"),
        ("why it is barred", "text"),
        ("seconds", "number"),
    )
    opened = sum(line["status"] == "open" for line in lines)
    return Table(f"{benchmark}: calibration", columns, rows, f"{opened} of {len(lines)} instances were admitted.")


def comparisons(census: dict, benchmark: str | None = None) -> Table:
    """Of one benchmark, or of all."""
    rows = [
        (
            line["benchmark"],
            f"{line['first']} against {line['second']}",
            line["measure"].replace("_", " "),
            line["instances"],
            line["first_higher"],
            line["second_higher"],
            line["discordant"],
            _difference(line),
            "" if line["p_value"] is None else f"{line['p_value']:.3g}",
            line["method"],
        )
        for line in census["comparisons"]
        if benchmark in (None, line["benchmark"])
    ]
    columns = (
        ("benchmark", "text"),
        ("conditions", "text"),
        ("measure", "text"),
        ("instances of both", "number"),
        ("first higher", "number"),
        ("second higher", "number"),
        ("discordant", "number"),
        ("difference in points (95%)", "text"),
        ("p", "number"),
        ("test", "text"),
    )
    empty = "No two conditions have numbers that may be compared."
    return Table("Conditions compared, pair by pair", columns, rows, empty=empty)


def _difference(line: dict) -> str:
    told = f"{100 * line['difference']:+.1f}"
    return told if line["low"] is None else f"{told} ({100 * line['low']:+.1f} to {100 * line['high']:+.1f})"


def provenance(study: Study, cases: list[dict]) -> Table:
    """What the terms pin, and what the grades state: how many were compared with what, and what came of it."""
    rows = []
    for benchmark, section in study.benchmarks.items():
        rows += [(benchmark, f"pinned: {name}", value, "", "", "") for name, value in _leaves(section["terms"])]
        counted: dict[tuple, dict[str, int]] = {}
        for case in cases:
            for link in case["links"] if case["episode"].benchmark == benchmark else ():
                counted.setdefault((link.name, link.note), dict.fromkeys(STATES, 0))[link.state] += 1
        rows += [
            (benchmark, f"stated by grades: {name}", note, *counts.values()) for (name, note), counts in counted.items()
        ]
    columns = (
        ("benchmark", "text"),
        ("what", "text"),
        ("value, or what it was compared with", "mono"),
        *((f"grades {state}", "number") for state in STATES),
    )
    states = [{link.state for link in case["links"]} for case in cases]
    broken = sum("broken" in found for found in states)
    lead = f"{broken} of {len(cases)} episodes have a broken link." if broken else "No link is broken."
    return Table("Provenance", columns, rows, lead)


def _leaves(value, name: str = "") -> list[tuple[str, str]]:
    """The scalars of nested mappings: (key.path, text)."""
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in _leaves(item, f"{name}.{key}" if name else key)]
    return [(name, value if isinstance(value, str) else json.dumps(value))]


def voids(census: dict) -> Table:
    rows = [(status, reason) for status, reasons in census["void_reasons"].items() for reason in reasons]
    return Table("Not judged", (("status", "text"), ("episode and reason", "mono")), rows, empty="All were judged.")


def flags(census: dict) -> Table:
    """Flags of tampering and of reward files, exposed oracles, protocol-sensitive checks, repeats that differ."""
    rows = [
        (kind, line["flag"], line["count"], _names(line["episodes"]))
        for kind, key in (("tamper", "tamper"), ("reward file", "flags"))
        for line in census[key]
    ]
    rows += [("oracle exposed", "", 1, name) for name in census["oracle_exposed"]]
    rows += [
        (
            "protocol-sensitive",
            f"{line['check']}: {line['verdict']}, read the other way {line['other_verdict']}",
            1,
            line["episode"],
        )
        for line in census["protocol_sensitive"]
    ]
    rows += [
        (
            "repeats differ, same snapshot" if line["same_snapshot"] else "repeats differ",
            ", ".join(f"{verdict} {count}" for verdict, count in line["verdicts"].items()),
            len(line["checks"]),
            f"{line['benchmark']}/{line['condition']}/{line['instance']}",
        )
        for line in census["unlike_repeats"]
    ]
    columns = (("kind", "text"), ("what", "text"), ("count", "number"), ("where", "mono"))
    return Table("Flags", columns, rows, empty="No flag was raised.")


def _names(names: list[str], shown: int = 5) -> str:
    more = f", and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def official(census: dict) -> Table:
    rows = []
    for benchmark, line in census["official"].items():
        claims = {f"{name} official": counts for name, counts in line["claims"].items()}
        groups = claims | {
            name: line[name] for name in ("isolated", "lanes", "images", "resource_modes", "protocol_versions", "code")
        }
        for what, counts in groups.items():
            told = ", ".join(f"{value}: {count}" for value, count in counts.items() if count)
            rows.append((benchmark, what.replace("_", " "), told, line["judged"]))
    columns = (("benchmark", "text"), ("what", "text"), ("value: grades", "mono"), ("of grades judged", "number"))
    return Table("How official", columns, rows, empty="Nothing was judged.")
