"""The protocol's command lines, for a person: global arguments first, then a verb; no study.

They judge as the workflow does, by the same court; what a study's terms say is said by arguments.
"""

import os
import time
from pathlib import Path
from types import SimpleNamespace

from assize import resources
from assize.adapter import grade_record, hash_evidence, remove_tree, utc, void
from assize.benchmarks.programbench import bench, calibration, freezing, official, places, workspace
from assize.benchmarks.programbench.benchmark import ProgramBench
from assize.benchmarks.programbench.court import SECONDS, Court, evaluate
from assize.benchmarks.programbench.engine import find_engine, find_images, sweep
from assize.benchmarks.programbench.manifest import OFFICIAL_IMAGES, PILOT, build, entry_of, open_task, read_manifest
from assize.benchmarks.programbench.verbs import add_options, download_blobs
from assize.benchmarks.programbench.wheelhouse import verify
from assize.cli import Parser, amount_of_memory, log
from assize.engines import ENGINES
from assize.errors import GateClosed, InfrastructureError, UsageError
from assize.records import ROOT, digest, read_record, sha256_file, write_atomic, write_record
from assize.study import RESOURCE_MODES, memory_mb

MANIFEST = ROOT / "config" / "programbench" / "manifest.json"
BY_HAND = "by-hand"


def parser() -> Parser:
    """The protocol's command line: global arguments, then a verb."""
    top = Parser(prog="programbench_adapter.py", description=__doc__, epilog="With --study: the workflow's form.")
    add_options(top)
    top.add_argument("--resource-mode", choices=RESOURCE_MODES, default="container")
    top.add_argument("--cpus", type=int, default=16, help="of the allocation, and workers of a test branch")
    top.add_argument("--memory", type=amount_of_memory, default="30g", help="of the allocation")
    top.add_argument("--engine", choices=ENGINES, help="the first that is installed")
    top.add_argument("--manifest", default=str(MANIFEST), help="the tasks' manifest")
    top.add_argument("--tasks", help="folder of task manifests; the official package's own")
    top.add_argument("--blobs", help="folder of test blobs; the dataset's at its pin")
    top.add_argument(
        "--seconds", action="append", default=[], metavar="STEP=N", help="a time limit: compile, run_tests"
    )
    verbs = top.add_subparsers(dest="verb", required=True, parser_class=Parser)

    def add(name: str, call, help_: str, *options: str):
        verb = verbs.add_parser(name, help=help_)
        for option in options:
            verb.add_argument(option, required=True)
        verb.set_defaults(call=call)
        return verb

    verb = add("calibrate", calibrate, "grade every reference, then decide", "--output-dir")
    verb.add_argument("--repetitions", type=int, default=calibration.DEFAULT_REPETITIONS)
    verb = add("probe", probe, "diagnose: only the first active branch of the references", "--output-dir")
    verb.add_argument("--instance-id", help="one task; all")
    verb = add("prepare", prepare, "start a solver's container", "--instance-id", "--episode-id", "--output-dir")
    verb.add_argument("--lifetime", type=int, default=86400, help="seconds until it ends by itself")
    verb = add("snapshot", snapshot, "freeze the committed main", "--instance-id", "--container", "--output-dir")
    verb.add_argument("--end", action="store_true", help="end the solver first, and remove the container at the end")
    add("grade", grade, "judge one submission", "--instance-id", "--submission", "--calibration", "--output-dir")
    verb = add(
        "bench", run_bench, "time a grade beside the official evaluator", "--instance-id", "--submission", "--output"
    )
    verb.add_argument("--rounds", type=int, default=3, help="how often each is timed")
    add("images", images, "are the images of all tasks on this node?")
    add("sweep", remove_leftovers, "remove leftovers")
    verb = add("manifest", make_manifest, "freeze tasks of a folder in a manifest", "--output")
    verb.add_argument("--instances", nargs="+", help="the five of the pilot; with --tasks, all of the folder")
    verb.add_argument("--images", default=OFFICIAL_IMAGES, help="where the images are named")
    verb.add_argument("--pin-images", action="store_true", help="pin the digests of the local images")
    return top


def open_court(arguments) -> Court:
    """The court that a command line describes, each part verified."""
    package = official.find_official(arguments.programbench_root)
    manifest = read_manifest(arguments.manifest)
    memory = memory_mb(arguments.memory)
    resources.check_allocation(arguments.resource_mode, arguments.cpus, memory, resources.slurm_allocation())
    blobs = arguments.blobs or os.environ.get("PROGRAMBENCH_BLOB_DIR")
    if not blobs:
        blobs = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "assize", official.BLOB_REVISION)
        download_blobs(list(manifest["tasks"]), blobs)
    wheelhouse = arguments.evaluator_wheelhouse or os.environ.get("PROGRAMBENCH_EVALUATOR_WHEELHOUSE")
    return Court(
        official=package,
        engine=find_engine(arguments.engine),
        manifest=manifest,
        tasks=Path(arguments.tasks) if arguments.tasks else package.tasks,
        blobs=Path(blobs).absolute(),
        study=BY_HAND,
        resource_mode=arguments.resource_mode,
        cpus=arguments.cpus,
        memory_mb=memory,
        wheelhouse=verify(wheelhouse) if wheelhouse else None,
        seconds=_seconds(arguments.seconds),
    )


def _seconds(given: list[str]) -> dict[str, int]:
    pairs = [item.partition("=") for item in given]
    for name, _, value in pairs:
        if name not in SECONDS or not value.isdigit() or int(value) < 1:
            raise UsageError("bad_usage", f"--seconds {name}={value}: one of {', '.join(SECONDS)}, and whole seconds")
    return {name: int(value) for name, _, value in pairs}


def images(arguments) -> dict:
    manifest, folder = read_manifest(arguments.manifest), _tasks(arguments)
    tasks = [open_task(manifest, folder, name) for name in manifest["tasks"]]
    return {"ok": True, "images": find_images(find_engine(arguments.engine), tasks)}


def _tasks(arguments) -> Path:
    return Path(arguments.tasks) if arguments.tasks else official.find_official(arguments.programbench_root).tasks


def run_bench(arguments) -> dict:
    court = open_court(arguments)
    if court.wheelhouse is None:
        raise UsageError("bad_usage", "bench: --evaluator-wheelhouse is needed")
    return bench.run(arguments, court)


def remove_leftovers(arguments) -> dict:
    engine = find_engine(arguments.engine)
    containers = [f"container {container[:19]} of a solver" for container in places.sweep(engine)]
    return {"ok": True, "removed": [*sweep(engine), *containers]}


def make_manifest(arguments) -> dict:
    tasks = _tasks(arguments)
    if arguments.instances:
        chosen = arguments.instances
    else:
        chosen = sorted(path.parent.name for path in tasks.glob("*/task.yaml")) if arguments.tasks else list(PILOT)
    blobs = Path(arguments.blobs) if arguments.blobs else None
    manifest = build(tasks, chosen, arguments.images, blobs)
    if arguments.pin_images:
        engine = find_engine(arguments.engine)
        for entry in manifest["tasks"].values():
            found = engine.image(entry["image"])
            if found is None:
                raise InfrastructureError("missing_image", f"{engine.name} has no image {entry['image']}")
            entry["image_digest"] = found["digest"]
    write_record(arguments.output, manifest)
    return {"ok": True, "output": arguments.output, "digest": digest(manifest), "tasks": len(manifest["tasks"])}


def _evaluate_all(arguments, court: Court, instances: list[str], repetitions: int, first_branch: bool) -> dict:
    """Evaluate references: all of them, whatever becomes of one. Instance -> its repetitions' records."""
    found = {}
    for instance in instances:
        found[instance] = []
        for repetition in range(1, repetitions + 1):
            evidence = Path(arguments.output_dir, instance, str(repetition))
            remove_tree(evidence)
            log(f"reference of {instance}, repetition {repetition} of {repetitions}")
            try:
                task = court.task(instance)
                branches = [first_scored(task)] if first_branch else None
                body = evaluate(court, task, None, set(), evidence, branches)
                entry = calibration.record(body, calibration.MINIMUM)
            except (InfrastructureError, OSError) as error:
                entry = {"passed": False, "reasons": [f"infra: {error}"], "flags": [], "detail": {}}
            found[instance].append(entry)
    return found


def first_scored(task) -> str:
    """The first active branch in which a test counts: some tasks have one in which none does. Pure."""
    for branch, tests in task.mask.items():
        if tests:
            return branch
    raise UsageError("no_tests", f"{task.id}: no test counts in any active branch", "a probe needs one that does")


def _report(arguments, court: Court, tasks: dict, repetitions: int) -> dict:
    reasons = [
        f"{instance}: repetition {number}: {reason}"
        for instance, records in tasks.items()
        for number, record in enumerate(records, 1)
        for reason in record["reasons"]
    ]
    return {
        "schema": "assize.calibration-report/1",
        "status": "failed" if reasons else "passed",
        "reasons": reasons,
        "manifest": digest(court.manifest),
        "wheelhouse": court.fingerprint,
        "minimum": calibration.MINIMUM,
        "repetitions": repetitions,
        "official": court.official.as_json(),
        "resource_mode": court.resource_mode,
        "cpus": court.cpus,
        "memory_mb": court.memory_mb,
        "slurm": resources.slurm_allocation(),
        "command": resources.command_line(),
        "tasks": tasks,
    }


def calibrate(arguments) -> dict:
    """Write calibration.json; GateClosed where it has not passed."""
    if arguments.repetitions < 1:
        raise UsageError("bad_usage", f"--repetitions {arguments.repetitions}: at least 1")
    court = open_court(arguments)
    tasks = _evaluate_all(arguments, court, list(court.manifest["tasks"]), arguments.repetitions, first_branch=False)
    report = _report(arguments, court, tasks, arguments.repetitions)
    path = Path(arguments.output_dir, "calibration.json")
    write_record(path, report)
    if report["status"] != "passed":
        raise GateClosed("calibration_failed", f"{path}: {'; '.join(report['reasons'])}", "mend it and calibrate again")
    return {"ok": True, "status": "passed", "calibration": str(path), "tasks": list(tasks)}


def probe(arguments) -> dict:
    """A diagnosis: it opens no gate, and no grade takes it for a calibration."""
    court = open_court(arguments)
    instances = [arguments.instance_id] if arguments.instance_id else list(court.manifest["tasks"])
    tasks = _evaluate_all(arguments, court, instances, 1, first_branch=True)
    report = {**_report(arguments, court, tasks, 1), "schema": "assize.probe/1", "diagnostic": True}
    write_record(Path(arguments.output_dir, "probe.json"), report)
    return {"ok": True, "status": report["status"], "diagnostic": True, "reasons": report["reasons"]}


def _solvers_side(arguments):
    """(engine, local image) of a task: all that a solver's container is made of. Its tests are not opened."""
    entry = entry_of(read_manifest(arguments.manifest), arguments.instance_id)
    engine = find_engine(arguments.engine)
    task = SimpleNamespace(id=arguments.instance_id, image=entry["image"], image_digest=entry["image_digest"])
    return engine, find_images(engine, [task])[task.id]


def _header(kind: str, instance: str, condition: str) -> dict:
    episode = {"benchmark": ProgramBench.name, "condition": condition, "instance": instance, "repeat": 1}
    return {"schema": f"assize.{kind}/1", "episode": episode, "terms_digest": digest(None), "reason": None}


def prepare(arguments) -> dict:
    """Start a solver's container; prepared.json has its id, the prompt and the full contract of its layout."""
    engine, image = _solvers_side(arguments)
    memory = memory_mb(arguments.memory)
    resources.check_allocation(arguments.resource_mode, arguments.cpus, memory, resources.slurm_allocation())
    limits = {"cpus": arguments.cpus, "memory_mb": memory} if arguments.resource_mode == "container" else None
    episode = places.Place(BY_HAND, arguments.episode_id)
    container = workspace.prepare(engine, image["id"], episode, arguments.lifetime, limits)
    facts = {
        "container": container,
        "image": image["image"],
        "image_digest": image["digest"],
        "resource_mode": arguments.resource_mode,
        "engine_limits": limits,
        "slurm": resources.slurm_allocation(),
    }
    task = workspace.contract(arguments.instance_id) | facts
    record = _header("prepared", arguments.instance_id, arguments.episode_id) | {"status": "prepared", "task": task}
    write_record(Path(arguments.output_dir, "prepared.json"), record)
    return {"ok": True, "container": container, "record": record}


def snapshot(arguments) -> dict:
    """Write ``<output-dir>/<instance-id>/submission.tar.gz`` and snapshot.json beside it."""
    engine, image = _solvers_side(arguments)
    body, archive = freezing.snapshot(engine, arguments.container, image["id"], end=arguments.end)
    folder = Path(arguments.output_dir, arguments.instance_id)
    write_atomic(folder / "submission.tar.gz", archive or b"")
    record = {
        **_header("snapshot", arguments.instance_id, BY_HAND),
        "scoring_status": None,
        **body,
        "sha256": sha256_file(folder / "submission.tar.gz"),
        "size": (folder / "submission.tar.gz").stat().st_size,
    }
    write_record(folder / "snapshot.json", record)
    return {"ok": True, "submission": str(folder / "submission.tar.gz"), "record": record}


def grade(arguments) -> dict:
    """Judge one submission behind a passed calibration of the same manifest; write grade.json."""
    court = open_court(arguments)
    report = read_record(arguments.calibration, "calibration-report")
    if report["status"] != "passed":
        reasons = "; ".join(report["reasons"])
        raise GateClosed("calibration_failed", f"{arguments.calibration}: {reasons}", "mend it and calibrate again")
    if report["manifest"] != digest(court.manifest):
        raise GateClosed("other_calibration", f"{arguments.calibration}: of another manifest", "calibrate again")
    task = court.task(arguments.instance_id)
    records = report["tasks"][task.id]
    clean = calibration.require([record["detail"] for record in records], court.identity(task))
    submission, output = Path(arguments.submission), Path(arguments.output_dir)
    if not submission.is_file():
        raise UsageError("missing_submission", f"--submission {submission}: no such file")
    evidence = output / "evidence"
    remove_tree(evidence)
    failure, started = None, time.time()
    try:
        body = evaluate(court, task, submission, clean, evidence)
    except InfrastructureError as error:
        failure, body = error, void_of(error, court, task)
    record = record_of(court, task, submission, report, body, output, started)
    write_record(output / "grade.json", record)
    if failure:
        hint = f"recorded as void in {output / 'grade.json'}. {failure.hint}".strip()
        raise InfrastructureError(failure.code, failure.message, hint)
    return {"ok": True, "record": record}


def void_of(error: InfrastructureError, court: Court, task) -> dict:
    return void("infra", f"infra: {error.message}") | court.facts(task)


def record_of(court: Court, task, submission: Path, report: dict, body: dict, output: Path, started: float) -> dict:
    """The record of a grade made by hand: as the workflow's, with the calibration report's hash."""
    terms = digest({"report": digest(report), "resource_mode": court.resource_mode, "cpus": court.cpus})
    header = {
        "schema": "assize.grade/2",
        "episode": {"benchmark": ProgramBench.name, "condition": BY_HAND, "instance": task.id, "repeat": 1},
        "terms_digest": terms,
    }
    exposed = any(calibration.ORACLE_EXPOSED in record["flags"] for record in report["tasks"][task.id])
    provenance = {
        "terms": terms,
        "snapshot": sha256_file(submission),
        "calibration": digest(report),
        "protocol_version": ProgramBench.protocol_version,
        "versions": resources.versions(),
        "resource_mode": court.resource_mode,
        "slurm": resources.slurm_allocation(),
        "attempt": 1,
        "command": resources.command_line(),
    }
    timing = {"started": utc(started), "seconds": round(time.time() - started, 3)}
    return grade_record(header, {"oracle_exposed": exposed, **body}, provenance, timing, hash_evidence(output))


def main(argv) -> dict:
    arguments = parser().parse_args(argv)
    return arguments.call(arguments)
