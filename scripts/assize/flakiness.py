"""What did not end the same way twice: a condition's repeats at an instance, or the repetitions of a calibration. Pure.

Repeats are not flaky for being unlike: a model that is asked twice may answer twice. Where two repeats handed in the
same bytes and were judged differently, it is the grader that is flaky: ``same_snapshot`` tells the two apart.
"""

from collections import Counter
from collections.abc import Iterable

from assize.admission import is_flaky


def unlike_repeats(grades: Iterable[dict]) -> list[dict]:
    """Conditions whose scored repeats differ at an instance, in the verdict or in a check."""
    groups: dict[tuple, list[dict]] = {}
    for grade in grades:
        if grade["verdict"] != "void":
            episode = grade["episode"]
            groups.setdefault((episode["benchmark"], episode["condition"], episode["instance"]), []).append(grade)
    found = []
    for (benchmark, condition, instance), members in groups.items():
        by_snapshot: dict[str, list[dict]] = {}
        for grade in members:
            by_snapshot.setdefault(grade["provenance"]["snapshot"], []).append(grade)
        checks = _unlike([grade["checks"] for grade in members])
        verdicts = Counter(grade["verdict"] for grade in members)
        if len(verdicts) > 1 or checks:
            found.append(
                {
                    "benchmark": benchmark,
                    "condition": condition,
                    "instance": instance,
                    "verdicts": dict(sorted(verdicts.items())),
                    "checks": checks,
                    "same_snapshot": any(_differ(same) for same in by_snapshot.values()),
                }
            )
    return found


def _differ(grades: list[dict]) -> bool:
    return len({grade["verdict"] for grade in grades}) > 1 or bool(_unlike([grade["checks"] for grade in grades]))


def _unlike(runs: list[list[dict]]) -> list[str]:
    """The ids of checks that are in several runs and did not end the same way."""
    verdicts: dict[str, set] = {}
    for checks in runs:
        for item in checks:
            verdicts.setdefault(item["id"], set()).add(item["verdict"])
    return sorted(name for name, seen in verdicts.items() if len(seen) > 1)


def calibration_table(calibrations: Iterable[dict], admissions: dict[tuple[str, str], dict]) -> list[dict]:
    """One line an instance: its gate, how many repetitions its reference passed, and which checks of it differ.

    Parameters
    ----------
    calibrations : the records; ``reference.checks``, or ``reference.failures`` where a benchmark keeps those alone, are
        compared.
    admissions : (benchmark, instance) -> record.
    """
    groups: dict[tuple[str, str], list[dict]] = {}
    for record in calibrations:
        groups.setdefault((record["benchmark"], record["instance"]), []).append(record)
    lines = []
    for benchmark, instance in sorted(groups.keys() | admissions.keys()):
        records, gate = groups.get((benchmark, instance), []), admissions.get((benchmark, instance))
        unlike = _unlike(_reference_runs([record["reference"] for record in records]))
        lines.append(
            {
                "benchmark": benchmark,
                "instance": instance,
                "status": gate["status"] if gate else "missing",
                "repetitions": len(records),
                "passed": sum(record["passed"] for record in records),
                "flaky": is_flaky(records) or bool(unlike),
                "checks": unlike,
                "flags": sorted({flag for record in records for flag in record["flags"]}),
                "reasons": gate["reasons"] if gate else [],
                "seconds": round(sum(record["seconds"] for record in records), 3),
            }
        )
    return lines


def _reference_runs(references: list[dict]) -> list[list[dict]]:
    """The checks of each repetition. Of one that was judged and kept its failures alone, what another failed passed."""
    kept = [reference["checks"] for reference in references if isinstance(reference.get("checks"), list)]
    runs = [[item for item in checks if "id" in item and "verdict" in item] for checks in kept]
    judged = [reference for reference in references if reference.get("valid") and "failures" in reference]
    failures = [{item["id"] for item in reference["failures"]} for reference in judged]
    named = set().union(*failures)
    return runs + [[{"id": name, "verdict": "fail" if name in ids else "pass"} for name in named] for ids in failures]
