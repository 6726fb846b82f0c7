"""How long the adapter's grade takes beside the official evaluator alone: same submission, same engine, same image.

The image gets the evaluator's plugins beforehand, as the official ones have them where an index is in reach: without
one, upstream waits for pip in vain, and would be compared at a disadvantage.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from assize.archive import check_file_map, freeze, write_file_map
from assize.benchmarks.programbench.engine import find_images, labels, scratch
from assize.benchmarks.programbench.manifest import IMAGE_TAG
from assize.benchmarks.programbench.replay import open_submissions
from assize.cli import log
from assize.errors import InfrastructureError
from assize.records import write_atomic, write_record

STUDY = "bench"
# What ``programbench eval`` does for one instance, without loading the other 200.
OFFICIAL = """
import sys
from pathlib import Path
from programbench.eval.eval_batch import _evaluate_instance
from programbench.utils.load_data import load_all_instances
tasks, name, source, target = sys.argv[1:]
instance = next(one for one in load_all_instances(Path(tasks)) if one["instance_id"] == name)
print(_evaluate_instance(
    instance_id=name, instance=instance, source_dir=Path(source), target_dir=Path(target), force=True
).score)
"""


def run(arguments, court) -> dict:
    """Time both, in turn; write ``--output`` and return it.

    Raises
    ------
    InfrastructureError : one of them failed, or they do not give the same score.
    """
    task = court.task(arguments.instance_id)
    with scratch() as folder:
        image = f"localhost/assize-bench/{task.image.rpartition('/')[2].rpartition(':')[0]}:{IMAGE_TAG}"
        _make_image(court, find_images(court.engine, [task])[task.id]["id"], image)
        try:
            taken = _time_both(arguments, court, task, image, folder)
        finally:
            court.engine.call("rmi", "--force", image, check=False)
    pairs = taken["adapter"], taken["official"]
    result = {
        "ok": True,
        "instance": task.id,
        "engine": court.engine.version(),
        "cores": os.cpu_count(),
        "scored": sum(map(len, task.mask.values())),
        "official_s": taken["official"],
        "adapter_s": taken["adapter"],
        # Of each round: what else the machine does weighs on both alike.
        "ratio": round(median(mine / theirs for mine, theirs in zip(*pairs, strict=True)), 3),
    }
    write_atomic(Path(arguments.output), json.dumps(result, indent=1, sort_keys=True).encode() + b"\n")
    return result


def _make_image(court, base: str, image: str) -> None:
    """The task's image with the wheelhouse installed."""
    marks = [part for key, value in labels(STUDY).items() for part in ("--label", f"{key}={value}")]
    engine = court.engine
    start = ("run", "--detach", "--init", "--pull", "never", "--network", "none", *marks, base, "sleep", "1h")
    container = engine.call(*start).stdout.strip().splitlines()[-1]
    try:
        engine.call("cp", str(court.wheelhouse.path), f"{container}:/wheelhouse")
        install = (
            "cd /wheelhouse && pip3 install --quiet --no-index --find-links . --require-hashes -r requirements.txt"
        )
        engine.call("exec", container, "bash", "-c", f"{install} && rm -rf /wheelhouse", timeout=300)
        engine.call("commit", container, image, timeout=300)
    finally:
        engine.call("rm", "--force", "--volumes", container, check=False)


def _time_both(arguments, court, task, image: str, folder: Path) -> dict[str, list[float]]:
    manifest = json.loads(json.dumps(court.manifest))
    manifest["tasks"] = {task.id: manifest["tasks"][task.id] | {"image": image, "image_digest": None}}
    write_record(folder / "manifest.json", manifest)
    source = folder / "source" / task.id / "submission.tar.gz"
    write_atomic(source, _submission(arguments.submission, task.id, folder))
    adapter = [sys.executable, sys.argv[0], "--resource-mode", court.resource_mode, "--cpus", court.cpus]
    adapter += ["--engine", court.engine.name, "--manifest", folder / "manifest.json", "--tasks", court.tasks]
    adapter += ["--blobs", court.blobs, "--evaluator-wheelhouse", court.wheelhouse.path]
    _timed([*adapter, "calibrate", "--output-dir", folder / "calibration", "--repetitions", "1"])
    calibration = folder / "calibration" / "calibration.json"
    grade = [*adapter, "grade", "--instance-id", task.id, "--submission", source, "--calibration", calibration]
    official = [sys.executable, "-c", OFFICIAL, court.tasks, task.id, source.parents[1], folder / "official"]
    pinned = {
        "PROGRAMBENCH_DOCKER_EXECUTABLE": court.engine.name,
        "PROGRAMBENCH_DOCKER_ORG": image.rpartition("/")[0],
        "PROGRAMBENCH_DOCKER_CPUS": str(court.cpus),
        "PROGRAMBENCH_BLOB_DIR": str(court.blobs),
        "PYTHONPATH": str(court.official.package.parent),
    }
    taken = {"official": [], "adapter": []}
    for round_ in range(1, arguments.rounds + 1):
        seconds, score = _timed(official, pinned)
        taken["official"].append(seconds)
        seconds, said = _timed([*grade, "--output-dir", folder / "grade"])
        taken["adapter"].append(seconds)
        log(f"round {round_}: official {taken['official'][-1]} s, adapter {taken['adapter'][-1]} s")
        if json.loads(said)["record"]["score"] != float(score):
            raise InfrastructureError("other_score", f"officially {score.strip()}, by the adapter {said[:300]}")
    return taken


def _submission(path: str, instance: str, folder: Path) -> bytes:
    """The archive to grade: a file, or made of a replay condition's map of files."""
    if not path.endswith(".json"):
        return Path(path).read_bytes()
    work = folder / "work"
    work.mkdir()
    write_file_map(work, check_file_map(open_submissions(Path(path).absolute())[instance]))
    return freeze(work)


def _timed(command: list, environment: dict | None = None) -> tuple[float, str]:
    """(seconds, stdout) of a command that must succeed."""
    started = time.monotonic()
    done = subprocess.run(
        list(map(str, command)), env=os.environ | (environment or {}), capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        message = (done.stderr + done.stdout).strip()[-500:]
        raise InfrastructureError("bench_failed", f"bench: {' '.join(map(str, command[:3]))[:80]}: {message}")
    return round(time.monotonic() - started, 2), done.stdout
