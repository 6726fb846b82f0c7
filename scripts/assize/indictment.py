"""Harness faults by their signatures: the tables say which, the census withholds what they touch. Pure.

A benchmark lists its own as ``Signature`` rows (``Benchmark.harness_faults``). One rule holds for all: where every
failure of a condition that ran has one signature, and there are at least SHARED_FROM of them, it is the harness's.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

SHARED_FROM = 10
# The ordinary wrong answer. Anything else that all failures have in common is no answer at all.
ORDINARY = ("AssertionError",)
# Nothing was run for such a check, so its signature is not the harness's.
NOT_RUN = "extraction"
EXAMPLES = 5


@dataclass(frozen=True)
class Signature:
    """One kind of harness fault.

    A failed check is of the kind where ``pattern`` is found in its signature, its ``origin`` is one of ``origins``
    (None: any), and its ``fault``, which the grader itself saw, is ``fault`` (None: whatever it is).
    """

    name: str
    remedy: str
    pattern: str = ""
    origins: tuple[str, ...] | None = None
    fault: str | None = None

    def matches(self, check: dict) -> bool:
        return (
            bool(re.search(self.pattern, check.get("signature") or ""))
            and (self.origins is None or check.get("origin") in self.origins)
            and (self.fault is None or check.get("fault") == self.fault)
        )


def indict(grades: Iterable[dict], table: Iterable[Signature]) -> list[dict]:
    """The harness faults in the grades of one condition.

    Returns
    -------
    For each kind that was found: name, count, ``of`` (all failed checks), examples (``instance: check: signature``)
    and remedy. A check counts for the first row of the table that it matches.
    """
    table = list(table)
    failed = [
        (grade["episode"]["instance"], check)
        for grade in grades
        for check in grade["checks"]
        if check["verdict"] == "fail"
    ]
    found: dict[str, list] = {}
    for instance, check in failed:
        kind = next((row for row in table if row.matches(check)), None)
        if kind:
            found.setdefault(kind.name, []).append((instance, check))
    remedies = {row.name: row.remedy for row in table}
    shared = shared_signature([check for _, check in failed])
    if shared and not found:
        found["shared_signature"] = [(instance, check) for instance, check in failed if check["signature"] == shared]
        remedies["shared_signature"] = f"every failure is {shared!r}: audit the protocol before any score"
    return [
        {
            "name": name,
            "count": len(members),
            "of": len(failed),
            "examples": [f"{instance}: {check['id']}: {check['signature']}" for instance, check in members[:EXAMPLES]],
            "remedy": remedies[name],
        }
        for name, members in sorted(found.items(), key=lambda item: -len(item[1]))
    ]


def shared_signature(failed: list[dict]) -> str | None:
    """The signature that all failed checks share, where they are many and it is not an ordinary wrong answer."""
    ran = [check for check in failed if check.get("phase") != NOT_RUN]
    signatures = Counter(check.get("signature") for check in ran)
    if len(ran) < SHARED_FROM or len(signatures) != 1:
        return None
    signature = next(iter(signatures))
    return None if signature is None or signature in ORDINARY else signature
