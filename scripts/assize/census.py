"""The census: every planned episode is one row, and headline numbers are withheld while any of it was not judged.

Pure but for ``read_grades``: rows and aggregates derive from a study and its grades alone.
"""

import csv
import io
from collections import Counter
from pathlib import Path

from assize.benchmarks import load_benchmark
from assize.errors import UsageError
from assize.indictment import indict
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


def read_grades(study: Study) -> dict[Episode, dict | None]:
    """The grade of every planned episode; None where there is none yet."""
    grades = {}
    for episode in study.episodes():
        path = study.episode_folder(episode) / "grade.json"
        grades[episode] = read_record(path, "grade") if path.exists() else None
    return grades


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
            allocations.setdefault(episode.benchmark, {}).setdefault(shape, []).append(str(path))
    for shapes in allocations.values():
        if len(shapes) > 1:
            _, *others = sorted(shapes.items(), key=lambda item: -len(item[1]))
            faults += [f"{path}: graded in an allocation of {shape}" for shape, paths in others for path in paths]
    if faults:
        lines = "\n".join(f"  {fault}" for fault in faults)
        raise UsageError("mixed_study", f"{study.root}: {len(faults)} fault(s):\n{lines}", "rerun the workflow")


def row(study: Study, episode: Episode, grade: dict | None) -> dict:
    """One episode as a row of ``grades.csv``. An episode without a grade is void."""
    path = study.episode_folder(episode) / "grade.json"
    common = episode.as_json() | {"grade": str(path)}
    if grade is None:
        missing = {"verdict": "void", "valid": False, "scoring_status": "not_graded", "reason": "there is no grade"}
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


def audit(study: Study, grades: dict[Episode, dict | None]) -> dict[tuple[str, str], dict]:
    """(benchmark, condition) -> ``indictments`` (harness faults) and ``summary`` (the benchmark's own numbers)."""
    members: dict[tuple, dict] = {}
    for episode, grade in grades.items():
        members.setdefault((episode.benchmark, episode.condition), {})[episode] = grade
    found = {}
    for (name, condition), episodes in members.items():
        benchmark = load_benchmark(name)
        present = [grade for grade in episodes.values() if grade]
        found[name, condition] = {
            "indictments": indict(present, benchmark.harness_faults),
            "summary": benchmark.summary(episodes),
        }
    return found


def aggregate(study: Study, rows: list[dict], allow_void: bool = False, audited: dict | None = None) -> dict:
    """The census record.

    ``over_scored`` is passed / (passed + failed), ``over_planned`` passed / planned; both are None, with ``withheld``
    saying why, while an episode of the condition is void and ``allow_void`` was not asked for, while the harness is
    indicted, and where a grade is of a dry run. ``audited`` is what ``audit`` found.
    """
    audited = audited or {}
    groups: dict[tuple, list[dict]] = {}
    for item in rows:
        groups.setdefault((item["benchmark"], item["condition"]), []).append(item)
    conditions, void_reasons = [], {}
    for (benchmark, condition), members in groups.items():
        verdicts = Counter(item["verdict"] for item in members)
        voids = [item for item in members if item["verdict"] == "void"]
        for item in voids:
            line = f"{benchmark}/{condition}/{item['instance']}/{item['repeat']}: {item['reason']}"
            void_reasons.setdefault(item["scoring_status"], []).append(line)
        facts = audited.get((benchmark, condition), {"indictments": [], "summary": {}})
        dry = sum(item["scoring_status"] == "dry_run" for item in members)
        barring = [
            f"harness indicted: {item['name']} ({item['count']} of {item['of']})" for item in facts["indictments"]
        ]
        barring += [f"{dry} of {len(members)} from a dry run"] if dry else []
        why = barring + ([f"{len(voids)} of {len(members)} void"] if voids else [])
        withheld = "; ".join(why) or None
        scored = verdicts["pass"] + verdicts["fail"]
        shown = scored > 0 and not barring and (allow_void or not voids)
        conditions.append(
            {
                "benchmark": benchmark,
                "condition": condition,
                "count": len(members),
                "passed": verdicts["pass"],
                "failed": verdicts["fail"],
                "void": verdicts["void"],
                "over_scored": verdicts["pass"] / scored if shown else None,
                "over_planned": verdicts["pass"] / len(members) if shown else None,
                "withheld": withheld,
                "tampered": sum(bool(item["tamper"]) for item in members),
                "flagged": sum(bool(item["flags"]) for item in members),
                "indictments": facts["indictments"],
                "summary": facts["summary"] if shown else {},
            }
        )
    return {
        "schema": "assize.census/1",
        "study": study.name,
        "study_digest": study.digest,
        "terms": {name: study.terms_digest(name) for name in study.benchmarks},
        "planned": len(rows),
        "conditions": conditions,
        "void_reasons": void_reasons,
        "oracle_exposed": sorted({f"{i['benchmark']}/{i['instance']}" for i in rows if i["oracle_exposed"]}),
        "allow_void": allow_void,
    }


def _told(numbers: dict) -> str:
    """``steps 1/50, problems 0/15``: pairs are fractions."""
    shown = {key: "/".join(map(str, value)) if isinstance(value, list) else value for key, value in numbers.items()}
    return ", ".join(f"{key} {value}" for key, value in shown.items())


def as_csv(rows: list[dict]) -> bytes:
    """``grades.csv``: one row an episode."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


def print_table(record: dict, rows: list[dict], folder: Path) -> None:
    """Print the verdicts by condition, and every void with its reason."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 110
    table = Table(title=f"{record['study']}: {record['planned']} episodes", title_justify="left")
    for name in ("benchmark", "condition"):
        table.add_column(name)
    for name in ("count", "pass", "fail", "void", "pass rate\nover scored", "pass rate\nover planned"):
        table.add_column(name, justify="right")
    for line in record["conditions"]:
        if line["over_scored"] is None:
            rates = ("withheld", "withheld") if line["withheld"] else ("-", "-")
        else:
            mark = " *" if line["withheld"] else ""
            rates = (f"{line['over_scored']:.1%}{mark}", f"{line['over_planned']:.1%}{mark}")
        numbers = [str(line[key]) for key in ("count", "passed", "failed", "void")]
        table.add_row(line["benchmark"], line["condition"], *numbers, *rates)
    console.print(table)
    for line in record["conditions"]:
        for name, numbers in line["summary"].items():
            console.print(f"{line['benchmark']}/{line['condition']} {name}: {_told(numbers)}", markup=False)
    for line in record["conditions"]:
        for fault in line["indictments"]:
            where = f"{line['benchmark']}/{line['condition']}"
            console.print(
                f"HARNESS INDICTED in {where}: {fault['name']}, {fault['count']} of {fault['of']} failures, "
                f"for example {fault['examples'][0]}. First: {fault['remedy']}",
                soft_wrap=True,
                markup=False,
            )
    if record["void_reasons"]:
        marked = "rates marked * are over what was judged" if record["allow_void"] else "withheld until it is judged"
        console.print(f"Not judged (void), {marked}:")
        for status, reasons in record["void_reasons"].items():
            for reason in reasons[:10]:
                console.print(f"  {status}: {reason}", soft_wrap=True, markup=False)
            if len(reasons) > 10:
                console.print(f"  {status}: {len(reasons) - 10} more, in {folder / 'grades.csv'}", soft_wrap=True)
    for name, count in Counter(flag for item in rows for flag in (item["tamper"] or "").split(";") if flag).items():
        console.print(f"Tamper flag {name}: {count} grade(s)", markup=False)
    if record["oracle_exposed"]:
        names = ", ".join(record["oracle_exposed"])
        console.print(f"Oracle exposed: a candidate can read the grader's files while graded: {names}", soft_wrap=True)
    console.print(f"Each episode: {folder / 'grades.csv'}", soft_wrap=True)
