"""What must be read before any number: an indictment, broken chains, what was not judged, reservations. Pure."""

from dataclasses import dataclass, field

from assize.chain import BROKEN
from assize.officialness import reservations
from assize.report.text import visible

REASONS_SHOWN = 5
NAMES_SHOWN = 4


@dataclass(frozen=True)
class Item:
    """One line of a notice; ``flag`` is the flag that its grades have in the list, for a button that shows them."""

    what: str
    example: str = ""
    remedy: str = ""
    flag: str = ""


@dataclass(frozen=True)
class Notice:
    """``kind``: alarm, warn, note or calm."""

    kind: str
    title: str
    text: tuple[str, ...] = ()
    items: tuple[Item, ...] = field(default=())


def fault_flag(rule: str) -> str:
    return f"harness fault: {rule}"


def notices(census: dict, cases: list[dict]) -> list[Notice]:
    found = [
        _indictment(census),
        _chains(cases),
        _voids(census),
        _reservations(census),
    ]
    return [notice for notice in found if notice] or [_calm(census)]


def _faults(census: dict, indicts: bool) -> list[dict]:
    """The harness faults found, each rule once a benchmark, the most frequent first."""
    found: dict[tuple[str, str], dict] = {}
    for line in census["conditions"]:
        for fault in line["faults"]:
            if fault["indicts"] is indicts:
                new = {"benchmark": line["benchmark"], "conditions": [], **fault, "count": 0, "of": 0}
                group = found.setdefault((line["benchmark"], fault["rule"]), new)
                group["conditions"].append(line["condition"])
                group["count"] += fault["count"]
                group["of"] += fault["of"]
    return sorted(found.values(), key=lambda group: -group["count"])


def _fault_item(group: dict, what: str) -> Item:
    where = _names(group["conditions"])
    return Item(
        f"{group['rule']}: {group['count']} of {group['of']} {what} of {group['benchmark']}, in {where}",
        visible(group["examples"][0]) if group["examples"] else "",
        group["remedy"],
        fault_flag(group["rule"]),
    )


def _names(names: list[str]) -> str:
    if len(names) <= NAMES_SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[:NAMES_SHOWN])} and {len(names) - NAMES_SHOWN} more conditions"


def _indictment(census: dict) -> Notice | None:
    faults = _faults(census, True)
    if not faults:
        return None
    benchmarks = sorted({group["benchmark"] for group in faults})
    return Notice(
        "alarm",
        f"The harness is indicted: no number of {', '.join(benchmarks)} is shown",
        ("These failures are faults of the harness, no answers of a model. Mend them in this order and grade again.",),
        tuple(_fault_item(group, "failures") for group in faults),
    )


def _chains(cases: list[dict]) -> Notice | None:
    broken = [(case, link) for case in cases for link in case["links"] if link.state == BROKEN]
    if not broken:
        return None
    count = len({str(case["episode"]) for case, _ in broken})
    items = tuple(Item(f"{case['episode']}: {link.name}", visible(link.note)) for case, link in broken[:REASONS_SHOWN])
    return Notice(
        "alarm",
        f"The chain of {count} grade{'s' * (count != 1)} is broken",
        ("What these grades state was compared with the files beside them, and is not the same.",),
        (*items, Item("All of them", flag="chain broken")),
    )


def _voids(census: dict) -> Notice | None:
    count = sum(line["void"] for line in census["conditions"])
    if not count:
        return None
    items = []
    for status, reasons in sorted(census["void_reasons"].items(), key=lambda item: -len(item[1])):
        shown = "\n".join(visible(reason) for reason in reasons[:REASONS_SHOWN])
        more = len(reasons) - REASONS_SHOWN
        items.append(Item(f"{status}: {len(reasons)}", shown + (f"\nand {more} more" if more > 0 else "")))
    items += [_fault_item(group, "voids") for group in _faults(census, False)]
    marked = "The rates are over what was judged." if census["allow_void"] else "Their conditions' rates are withheld."
    was = "was" if count == 1 else "were"
    return Notice("warn", f"{count} of {census['planned']} episodes {was} not judged", (marked,), tuple(items))


def _reservations(census: dict) -> Notice | None:
    words = [Item(text) for text in reservations(census["official"])]
    flaky = [line for line in census["calibrations"] if line["flaky"]]
    words += [Item(f"calibration of {line['benchmark']}/{line['instance']} is flaky") for line in flaky[:REASONS_SHOWN]]
    unlike = [line for line in census["unlike_repeats"] if line["same_snapshot"]]
    words += [
        Item(f"the same bytes were judged differently: {line['benchmark']}/{line['condition']}/{line['instance']}")
        for line in unlike[:REASONS_SHOWN]
    ]
    words += [
        Item(f"tamper flag {visible(line['flag'])}: {line['count']}", flag=f"tamper: {visible(line['flag'], 60)}")
        for line in census["tamper"]
    ]
    words += [
        Item(f"reward flag {visible(line['flag'])}: {line['count']}", flag=f"reward: {visible(line['flag'], 60)}")
        for line in census["flags"]
    ]
    if census["oracle_exposed"]:
        names = ", ".join(census["oracle_exposed"][:REASONS_SHOWN])
        words.append(Item(f"a candidate can read the grader's files while graded: {names}", flag="oracle exposed"))
    if census["protocol_sensitive"]:
        count = len(census["protocol_sensitive"])
        words.append(Item(f"the protocol can read {count} check(s) in two ways", flag="protocol-sensitive"))
    return Notice("note", "To be said with any number of this study", (), tuple(words)) if words else None


def _calm(census: dict) -> Notice:
    return Notice(
        "calm",
        "Nothing is withheld",
        (f"All {census['planned']} planned episodes were judged, and no rule for harness faults holds.",),
    )
