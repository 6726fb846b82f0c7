"""Harness faults by their signatures: the table in config/harness-faults.yaml says which.

One declarative table for all benchmarks, as a data file: who audits a study reads it without reading code, a site adds
a rule without changing any, and the census records its hash.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from assize.errors import UsageError
from assize.records import ROOT, check, sha256_file
from assize.signatures import Failure

TABLE = ROOT / "config" / "harness-faults.yaml"
EXAMPLES = 5


@dataclass(frozen=True)
class Scope:
    """What a failure must be like: ``pattern`` is searched in its text, the others are lists of what is meant."""

    pattern: str | None = None
    origins: tuple[str, ...] | None = None
    phases: tuple[str, ...] | None = None
    faults: tuple[str, ...] | None = None
    statuses: tuple[str, ...] | None = None

    @classmethod
    def of(cls, raw: dict) -> "Scope":
        return cls(**{key: value if key == "pattern" else tuple(value) for key, value in raw.items()})

    def holds(self, failure: Failure) -> bool:
        return (
            (self.pattern is None or bool(re.search(self.pattern, failure.text)))
            and (self.origins is None or failure.origin in self.origins)
            and (self.phases is None or failure.phase in self.phases)
            and (self.faults is None or failure.fault in self.faults)
            and (self.statuses is None or failure.status in self.statuses)
        )


@dataclass(frozen=True)
class Rule:
    """One kind of harness fault, as the table has it."""

    name: str
    reads: str
    remedy: str
    benchmarks: tuple[str, ...] | None = None
    where: Scope = Scope()
    ignore: tuple[Scope, ...] = ()
    exempt: tuple[Scope, ...] = ()
    shared: bool = False
    at_least: int = 1
    share: float = 0.0

    @classmethod
    def of(cls, raw: dict) -> "Rule":
        raw = dict(raw)
        scopes = {
            "where": Scope.of(raw.pop("where", {})),
            "ignore": tuple(map(Scope.of, raw.pop("ignore", ()))),
            "exempt": tuple(map(Scope.of, raw.pop("except", ()))),
        }
        benchmarks = raw.pop("benchmarks", None)
        return cls(benchmarks=benchmarks and tuple(benchmarks), **scopes, **raw)

    @property
    def indicts(self) -> bool:
        """A void is never a score, so what explains one indicts nothing."""
        return self.reads != "void"

    def counted(self, failure: Failure) -> bool:
        """Whether a failure is one of those that the rule's numbers are over."""
        return (
            failure.reads == self.reads
            and (self.benchmarks is None or failure.benchmark in self.benchmarks)
            and not any(scope.holds(failure) for scope in self.ignore)
        )

    def claims(self, failure: Failure) -> bool:
        return self.counted(failure) and self.where.holds(failure) and not any(e.holds(failure) for e in self.exempt)


@cache
def read_rules(path=TABLE) -> tuple[Rule, ...]:
    """The table of harness faults.

    Raises
    ------
    UsageError : it is missing, is no YAML, breaks its schema, names a rule twice, or has a pattern that is none.
    """
    import yaml

    try:
        raw = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise UsageError("missing_rules", f"{path}: no such table of harness faults") from None
    except yaml.YAMLError as error:
        raise UsageError("bad_rules", f"{path}: not YAML: {error}") from None
    check(raw, "harness-faults", path)
    names = Counter(rule["name"] for rule in raw)
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise UsageError("bad_rules", f"{path}: given twice: {', '.join(twice)}", "each rule has a name of its own")
    for rule in raw:
        for scope in (rule.get("where", {}), *rule.get("ignore", ()), *rule.get("except", ())):
            try:
                re.compile(scope.get("pattern", ""))
            except re.error as error:
                message = f"{path}: {rule['name']}: pattern {scope['pattern']!r} is no regular expression: {error}"
                raise UsageError("bad_rules", message) from None
    return tuple(map(Rule.of, raw))


def table_provenance() -> dict:
    """For the census: which table was applied."""
    return {"path": str(TABLE.relative_to(ROOT)), "sha256": sha256_file(TABLE)}


def indict(failures: Iterable[Failure], rules: Iterable[Rule]) -> tuple[list[dict], dict[Failure, str]]:
    """The harness faults among the failures of one condition.

    Returns
    -------
    (found, claimed) : for each rule that holds: rule, indicts, count, ``of`` (the failures that it is over), examples,
    the affected episodes and the remedy, the most frequent first; and failure -> name of the rule that claims it. A
    failure belongs to the first rule of the table that claims it and holds.
    """
    failures, found, claimed = list(failures), [], {}
    for rule in rules:
        counted = [failure for failure in failures if rule.counted(failure)]
        members = [failure for failure in counted if failure not in claimed and rule.claims(failure)]
        if rule.shared and len({member.signature for member in members}) != 1:
            continue
        if len(members) < rule.at_least or len(members) < rule.share * len(counted):
            continue
        claimed |= dict.fromkeys(members, rule.name)
        found.append(
            {
                "rule": rule.name,
                "indicts": rule.indicts,
                "count": len(members),
                "of": len(counted),
                "examples": [member.example for member in members[:EXAMPLES]],
                "episodes": sorted({member.episode for member in members}),
                "remedy": rule.remedy,
            }
        )
    return sorted(found, key=lambda item: (-item["count"], item["rule"])), claimed
