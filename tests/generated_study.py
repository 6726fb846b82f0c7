"""A finished study of any size, with every record in its place and no sandbox run: for what reads studies.

By hand, ``python tests/generated_study.py 2000`` makes one of so many grades in a temporary folder and says how long
its audit takes.
"""

import gzip
import hashlib
import json
import sys
import time
from pathlib import Path

from assize import census, indictment, seal
from assize.records import digest, write_record
from assize.study import Study, resolve

SUITE = "config/suites/starter.json"
# Only so many bytes of archive and evidence: what grows with a study is how many files there are.
ARCHIVE = gzip.compress(b"\0" * 10240, mtime=0)


def frozen(name: str, instances: int, conditions: int, repeats: int = 1) -> dict:
    """A study of the command benchmark, as study.json has it, with so many instances as no suite has."""
    names = [f"task-{number:05}" for number in range(instances)]
    config = {
        "name": name,
        "benchmarks": {"command": {"suite": {"path": SUITE}}},
        "conditions": {f"condition-{number}": {"solver": "noop"} for number in range(conditions)},
        "repeats": repeats,
    }
    study = resolve(config, "generated")
    study["benchmarks"]["command"]["instances"] = names
    for condition in study["conditions"].values():
        condition["work"] = {"command": dict.fromkeys(names, "0" * 64)}
    return study


def generate(root: Path, study: dict, verdict=lambda episode: "pass") -> Study:
    """Write a whole study to ``root``; ``verdict`` says how each episode ended. The study, counted and sealed."""
    root.mkdir(parents=True)
    _write(root / "study.json", study)
    made = Study.read(root / "study.json")
    for instance in study["benchmarks"]["command"]["instances"]:
        for path in made.calibrations("command", instance):
            _write(path, _calibration(made, instance, int(path.stem)))
        hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in made.calibrations("command", instance)]
        gate = {"schema": "assize.admission/1", "benchmark": "command", "instance": instance}
        gate |= {"terms_digest": made.terms_digest("command"), "calibrations": hashes, "status": "open"}
        _write(made.admission("command", instance), gate | {"reasons": [], "flags": []})
    for episode in made.episodes():
        _episode(made, episode, verdict(episode))
    count(made)
    return made


def count(study: Study) -> dict:
    """Count and seal a study, as the workflow's last rule does."""
    records = census.read(study)
    record = census.aggregate(study, records, indictment.read_rules())
    record["rules"] = indictment.table_provenance()
    (study.root / "census").mkdir(exist_ok=True)
    (study.root / "census" / "grades.csv").write_bytes(census.as_csv(census.rows(study, records.grades)))
    write_record(study.root / "census" / "census.json", record)
    seal.write_seal(study)
    return record


def _write(path: Path, record: dict) -> None:
    """As ``write_record`` does, but for its check and its fsync."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, sort_keys=True, indent=1) + "\n")


def _calibration(study: Study, instance: str, repetition: int) -> dict:
    return {
        "schema": "assize.calibration/1",
        "benchmark": "command",
        "instance": instance,
        "repetition": repetition,
        "terms_digest": study.terms_digest("command"),
        "seconds": 0.5,
        "slurm": None,
        "passed": True,
        "reasons": [],
        "flags": [],
        "reference": {"verdict": "pass"},
        "canaries": {},
        "sandbox": {"lane": "bubblewrap"},
        "detail": {},
    }


def _episode(study: Study, episode, verdict: str) -> None:
    folder, terms = study.episode_folder(episode), study.terms_digest("command")
    common = {"episode": episode.as_json(), "terms_digest": terms, "reason": None}
    _write(folder / "prepared.json", {**common, "schema": "assize.prepared/1", "status": "prepared", "task": {}})
    solved = {"schema": "assize.solved/1", "status": "done", "solver": "noop", "detail": {}}
    _write(folder / "solved.json", common | solved)
    (folder / "submission.tar.gz").write_bytes(ARCHIVE)
    sha256 = hashlib.sha256(ARCHIVE).hexdigest()
    snapshot = {"schema": "assize.snapshot/1", "status": "frozen", "scoring_status": None, "survivors": 0, "detail": {}}
    _write(folder / "snapshot.json", common | snapshot | {"sha256": sha256, "size": len(ARCHIVE)})
    (folder / "evidence").mkdir(parents=True)
    log = f"{episode}: {verdict}\n".encode()
    (folder / "evidence" / "grader.log").write_bytes(log)
    gate = json.loads(study.admission("command", episode.instance).read_text())
    checks = [{"id": f"case {n}", "verdict": "pass", "signature": None} for n in range(3)]
    if verdict == "fail":
        checks[1] |= {"verdict": "fail", "signature": f"AssertionError: {episode.instance} != 3"}
    score = {"pass": 1.0, "fail": 0.0, "void": None}[verdict]
    grade = {
        "schema": "assize.grade/2",
        "verdict": verdict,
        "valid": verdict != "void",
        "score": score,
        "analysis_score": score,
        "scoring_status": {"pass": "passed", "fail": "failed", "void": "infra"}[verdict],
        "reason": "why",
        "checks": checks,
        "tamper": [],
        "flags": [],
        "detail": {},
        "oracle_exposed": False,
        "provenance": {
            "terms": terms,
            "snapshot": sha256,
            "calibration": digest(gate["calibrations"]),
            "protocol_version": "1",
            "versions": {"python": "3.11"},
            "sandbox": {"lane": "bubblewrap", "isolated": True},
            "resource_mode": "none",
            "slurm": None,
            "attempt": 1,
            "command": "python scripts/command_adapter.py grade",
        },
        "timing": {"started": "2026-11-30T00:00:00Z", "seconds": 0.1},
        "evidence": {"evidence/grader.log": hashlib.sha256(log).hexdigest()},
    }
    _write(folder / "grade.json", common | grade)


if __name__ == "__main__":
    import tempfile

    from assize import audit

    wanted = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary, "generated")
        generate(place, frozen("generated", instances=wanted // 4, conditions=4))
        started = time.perf_counter()
        found = audit.verify(place)
        seconds = time.perf_counter() - started
    assert not found["broken"]
    print(json.dumps({"grades": found["checked"]["grade"], "files": found["checked"]["files"], "seconds": seconds}))
