"""The census: every planned episode is one row, and headline numbers are withheld while any of it was not judged.

Pure but for ``read``: rows and aggregates derive from a study, its grades and its calibrations alone.
"""

import csv
import io
from collections import Counter
from dataclasses import dataclass, field

from assize import flakiness, indictment, signatures, statistics
from assize.benchmarks import load_benchmark
from assize.errors import UsageError
from assize.officialness import officialness
from assize.records import read_record
from assize.study import Episode, Study

COLUMNS = (
    "benchmark",
    "condition",
    "instance",
    "repeat",
    "verdict",
    "valid",
    "score",
    "analysis_score",
    "scoring_status",
    "reason",
    "tamper",
    "flags",
    "oracle_exposed",
    "resource_mode",
    "lane",
    "slurm_job",
    "node",
    "cpus",
    "memory_mb",
    "attempt",
    "seconds",
    "terms",
    "snapshot",
    "grade",
)

# Scoring status and reason of an episode that has no grade yet.
NOT_GRADED = ("not_graded", "there is no grade")


@dataclass(frozen=True)
class Records:
    """What a census is made of.

    ``grades``: the grade of every planned episode, None where there is none yet; ``calibrations``: all that there are;
    ``admissions``: (benchmark, instance) -> record, of those that there are.
    """

    grades: dict[Episode, dict | None]
    calibrations: tuple[dict, ...] = ()
    admissions: dict[tuple[str, str], dict] = field(default_factory=dict)


def read(study: Study) -> Records:
    """The records of a study; UsageError where one is broken, or where grades do not belong together."""

    def found(path, kind: str) -> dict | None:
        return read_record(path, kind) if path.exists() else None

    instances = [(name, instance) for name, section in study.benchmarks.items() for instance in section["instances"]]
    grades = {episode: found(study.episode_folder(episode) / "grade.json", "grade") for episode in study.episodes()}
    check_one_study(study, grades)
    paths = dict.fromkeys(path for pair in instances for path in study.calibrations(*pair))
    calibrations = [found(path, "calibration") for path in paths]
    admissions = {pair: found(study.admission(*pair), "admission") for pair in instances}
    return Records(
        grades,
        tuple(filter(None, calibrations)),
        {pair: record for pair, record in admissions.items() if record},
    )


def check_one_study(study: Study, grades: dict[Episode, dict | None]) -> None:
    """Refuse to count what does not belong together.

    Raises
    ------
    UsageError : grades lie in the place of another episode, are of other terms than the study's, or were made in
        unlike allocations. Each is listed.
    """
    faults, allocations = [], {}
    for episode, grade in grades.items():
        if grade is None:
            continue
        path = study.episode_folder(episode) / "grade.json"
        if grade["episode"] != episode.as_json():
            faults.append(f"{path}: it is the grade of another episode")
        if grade["terms_digest"] != study.terms_digest(episode.benchmark):
            faults.append(f"{path}: graded under terms {grade['terms_digest'][:12]}, not the study's")
        slurm = grade["provenance"]["slurm"]
        if grade["provenance"]["resource_mode"] == "slurm":
            shape = (slurm["cpus"], slurm["memory_mb"]) if slurm else None
            allocations.setdefault(shape, []).append(str(path))
    _, *others = sorted(allocations.items(), key=lambda item: -len(item[1])) or [None]
    faults += [f"{path}: graded in an allocation of {shape}" for shape, paths in others for path in paths]
    if faults:
        lines = "\n".join(f"  {fault}" for fault in faults)
        raise UsageError("mixed_study", f"{study.root}: {len(faults)} fault(s):\n{lines}", "rerun the workflow")


def row(study: Study, episode: Episode, grade: dict | None) -> dict:
    """One episode as a row of ``grades.csv``. An episode without a grade is void."""
    common = episode.as_json() | {"grade": f"episodes/{episode}/grade.json"}
    if grade is None:
        status, reason = NOT_GRADED
        missing = {"verdict": "void", "valid": False, "scoring_status": status, "reason": reason}
        return dict.fromkeys(COLUMNS) | common | missing
    provenance, slurm = grade["provenance"], grade["provenance"]["slurm"] or {}
    judged = ("verdict", "valid", "score", "analysis_score", "scoring_status", "reason", "oracle_exposed")
    return common | {
        **{key: grade[key] for key in judged},
        "tamper": ";".join(grade["tamper"]),
        "flags": ";".join(grade["flags"]),
        "resource_mode": provenance["resource_mode"],
        "lane": provenance["sandbox"].get("lane"),
        "slurm_job": slurm.get("job_id"),
        "node": slurm.get("node"),
        "cpus": slurm.get("cpus"),
        "memory_mb": slurm.get("memory_mb"),
        "attempt": provenance["attempt"],
        "seconds": grade["timing"]["seconds"],
        "terms": grade["terms_digest"],
        "snapshot": provenance["snapshot"],
    }


def rows(study: Study, grades: dict[Episode, dict | None]) -> list[dict]:
    """Every planned episode as a row."""
    return [row(study, episode, grade) for episode, grade in grades.items()]


def aggregate(study: Study, records: Records, rules: tuple = (), allow_void: bool = False) -> dict:
    """The census record, but for ``rules``: which table of harness faults was applied is the caller's to say.

    ``over_scored`` is passed / (passed + failed), ``over_planned`` passed / planned; both are None, with ``withheld``
    saying why, while an episode of the condition is void and ``allow_void`` was not asked for, while the harness is
    indicted, and where a grade is of a dry run. One harness judges all the conditions of a benchmark: where it is
    indicted in one, no number of that benchmark is shown.
    """
    groups: dict[tuple[str, str], dict[Episode, dict | None]] = {}
    for episode, grade in records.grades.items():
        groups.setdefault((episode.benchmark, episode.condition), {})[episode] = grade
    judged = {key: signatures.failures(filter(None, members.values())) for key, members in groups.items()}
    found, claimed = {}, {}
    for key, failures in judged.items():
        found[key], claims = indictment.indict(failures, rules)
        claimed |= claims
    barring = _barring(groups, found)
    conditions = [_line(key, members, found[key], barring[key[0]], allow_void) for key, members in groups.items()]
    shown = {(line["benchmark"], line["condition"]) for line in conditions if line["over_scored"] is not None}
    present = [grade for grade in records.grades.values() if grade]
    return {
        "schema": "assize.census/2",
        "study": study.name,
        "study_digest": study.digest,
        "terms": {name: study.terms_digest(name) for name in study.benchmarks},
        "planned": len(records.grades),
        "allow_void": allow_void,
        "indicted": any(item["indicts"] for items in found.values() for item in items),
        "statistics": statistics.provenance(),
        "conditions": conditions,
        "comparisons": _comparisons({key: members for key, members in groups.items() if key in shown}),
        "signatures": signatures.table([failure for failures in judged.values() for failure in failures], claimed),
        "calibrations": flakiness.calibration_table(records.calibrations, records.admissions),
        "unlike_repeats": flakiness.unlike_repeats(present),
        "protocol_sensitive": _protocol_sensitive(present),
        "tamper": _flags(present, "tamper"),
        "flags": _flags(present, "flags"),
        "official": officialness(present),
        "oracle_exposed": sorted({_instance(grade) for grade in present if grade["oracle_exposed"]}),
        "void_reasons": _void_reasons(records.grades),
    }


def _barring(groups: dict, found: dict) -> dict[str, list[str]]:
    """Benchmark -> why no number of it may be shown."""
    reasons: dict[str, list[str]] = {}
    for benchmark, condition in groups:
        lines = reasons.setdefault(benchmark, [])
        for item in found[benchmark, condition]:
            if item["indicts"]:
                lines.append(f"harness indicted in {condition}: {item['rule']} ({item['count']} of {item['of']})")
    return reasons


def _line(key: tuple[str, str], members: dict, faults: list[dict], barring: list[str], allow_void: bool) -> dict:
    """One condition of one benchmark, for the record."""
    name, condition = key
    benchmark = load_benchmark(name)
    verdicts = Counter(grade["verdict"] if grade else "void" for grade in members.values())
    dry = sum(grade is not None and grade["scoring_status"] == "dry_run" for grade in members.values())
    barring = barring + ([f"{dry} of {len(members)} from a dry run"] if dry else [])
    why = barring + ([f"{verdicts['void']} of {len(members)} void"] if verdicts["void"] else [])
    scored = verdicts["pass"] + verdicts["fail"]
    shown = scored > 0 and not barring and (allow_void or not verdicts["void"])
    return {
        "benchmark": name,
        "condition": condition,
        "count": len(members),
        "passed": verdicts["pass"],
        "failed": verdicts["fail"],
        "void": verdicts["void"],
        "over_scored": verdicts["pass"] / scored if shown else None,
        "over_planned": verdicts["pass"] / len(members) if shown else None,
        "withheld": "; ".join(why) or None,
        "tampered": sum(bool(grade and grade["tamper"]) for grade in members.values()),
        "flagged": sum(bool(grade and grade["flags"]) for grade in members.values()),
        "faults": faults,
        "summary": benchmark.summary(members) if shown else {},
        "estimates": _estimates(benchmark, members) if shown else [],
    }


def _measures(benchmark) -> dict[str, tuple]:
    """Measure -> (what one episode counts as (sum, of how many), whether an episode is one trial)."""
    measures = {"pass_rate": (_passed, True), "mean_score": (_score, False)}
    if benchmark.part:
        measures[f"{benchmark.part}_rate"] = (benchmark.parts, False)
    return measures


def _passed(episode: Episode, grade: dict | None) -> tuple[float, int]:
    return float(grade is not None and grade["verdict"] == "pass"), 1


def _score(episode: Episode, grade: dict | None) -> tuple[float, int]:
    """What was not judged counts as nothing: over the scored ones it is not asked."""
    return (grade or {}).get("analysis_score") or 0.0, 1


def _units(members: dict, counts, over: str) -> statistics.Units:
    """Instance -> what its episodes count together; over the scored ones, or over all that were planned."""
    units: statistics.Units = {}
    for episode, grade in members.items():
        if over == "planned" or (grade is not None and grade["verdict"] != "void"):
            count, of = counts(episode, grade)
            had = units.get(episode.instance, (0.0, 0))
            units[episode.instance] = (had[0] + count, had[1] + of)
    return units


def _estimates(benchmark, members: dict) -> list[dict]:
    return [
        {"measure": measure, "over": over, **statistics.estimate(_units(members, counts, over), proportion)}
        for measure, (counts, proportion) in _measures(benchmark).items()
        for over in ("scored", "planned")
    ]


def _comparisons(groups: dict[tuple[str, str], dict]) -> list[dict]:
    """Every pair of conditions of a benchmark, by every measure, over the instances that both were scored at."""
    found = []
    for name in dict.fromkeys(name for name, _ in groups):
        for measure, (counts, proportion) in _measures(load_benchmark(name)).items():
            units = {
                condition: _units(members, counts, "scored")
                for (benchmark, condition), members in groups.items()
                if benchmark == name
            }
            found += [
                {"benchmark": name, "measure": measure, **line} for line in statistics.compare_all(units, proportion)
            ]
    return found


def _instance(grade: dict) -> str:
    return "{benchmark}/{instance}".format(**grade["episode"])


def _name(grade: dict) -> str:
    return "{benchmark}/{condition}/{instance}/{repeat}".format(**grade["episode"])


def _protocol_sensitive(grades: list[dict]) -> list[dict]:
    """Checks that the protocol can read in two ways, of which one is primary; both verdicts stand here."""
    return [
        {
            "episode": _name(grade),
            "check": item["id"],
            "verdict": item["verdict"],
            "other_verdict": item.get("other_verdict"),
        }
        for grade in grades
        for item in grade["checks"]
        if item.get("protocol_sensitive")
    ]


def _flags(grades: list[dict], kind: str) -> list[dict]:
    """Flag -> how often, and in which grades. What follows a colon says where in a grade: it is no other flag."""
    found: dict[str, list[str]] = {}
    for grade in grades:
        for flag in grade[kind]:
            found.setdefault(flag.split(":")[0], []).append(_name(grade))
    return [
        {"flag": flag, "count": len(names), "episodes": sorted(set(names))} for flag, names in sorted(found.items())
    ]


def _void_reasons(grades: dict[Episode, dict | None]) -> dict[str, list[str]]:
    """Scoring status -> one line an episode that was not judged."""
    found: dict[str, list[str]] = {}
    for episode, grade in grades.items():
        status, reason = (grade["scoring_status"], grade["reason"]) if grade else NOT_GRADED
        if grade is None or grade["verdict"] == "void":
            found.setdefault(status, []).append(f"{episode}: {signatures.plain(reason or '')}")
    return found


def as_csv(rows: list[dict]) -> bytes:
    """``grades.csv``: one row an episode."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode(errors="backslashreplace")


def read_csv(study: Study) -> list[dict]:
    """The rows of a study's ``grades.csv``, all values as text."""
    with open(study.root / "census" / "grades.csv", newline="") as file:
        return list(csv.DictReader(file))
