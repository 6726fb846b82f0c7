"""One evaluation: the official evaluator on one task, then its judgement."""

import io
import json
import tarfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from assize.adapter import failed
from assize.archive import Rejected
from assize.benchmarks.programbench import verdicts
from assize.benchmarks.programbench.engine import Engine, find_images, labels, scratch, sweep
from assize.benchmarks.programbench.manifest import OFFICIAL_IMAGES, Task, check_blobs, open_task
from assize.benchmarks.programbench.official import Official, open_official
from assize.benchmarks.programbench.submission import check_archive
from assize.benchmarks.programbench.tools import Brought, look
from assize.benchmarks.programbench.wheelhouse import LOCK, read_lock, texts_for
from assize.cli import log
from assize.errors import AssizeError, InfrastructureError
from assize.records import digest, sha256_file, write_atomic
from assize.resources import one_evaluator

# Steps of upstream whose time limit a study may set, and upstream's own, in seconds.
SECONDS = {"compile": 900, "run_tests": 3600}
# Ends of compile.sh after which it runs once more: they may be the node's doing.
DOUBTFUL = (125, 126, 137, 255, "timed out", "container gone")


@dataclass(frozen=True)
class Court:
    """What holds for every evaluation of a command.

    Parameters
    ----------
    manifest : the manifest of the tasks; ``tasks`` and ``blobs`` are where their files lie.
    wheelhouse : the verified wheelhouse, or None: then the image must have every plugin itself.
    resource_mode, cpus, memory_mb : only under ``container`` is anything asked of the engine.
    seconds : time limits, where they are not upstream's.
    """

    official: Official
    engine: Engine
    manifest: dict
    tasks: Path
    blobs: Path
    study: str
    resource_mode: str
    cpus: int
    memory_mb: int
    wheelhouse: object | None = None
    seconds: dict[str, int] = field(default_factory=dict)
    # Instance -> its local image, looked up once: what runs is its id.
    images: dict[str, dict] = field(default_factory=dict, repr=False)
    # The id of an image -> what it brings, asked once.
    looks: dict[str, Brought] = field(default_factory=dict, repr=False)

    def task(self, instance: str) -> Task:
        return open_task(self.manifest, self.tasks, instance)

    def image(self, task: Task) -> dict:
        """The task's local image; InfrastructureError if it is missing or another one than the manifest pins."""
        if task.id not in self.images:
            self.images.update(find_images(self.engine, [task]))
        return self.images[task.id]

    def brought(self, task: Task) -> Brought:
        """What the task's image has of its own; InfrastructureError if it has no bash or no python3 that works."""
        image = self.image(task)["id"]
        if image not in self.looks:
            names = [release.name for release in read_lock(LOCK.read_text())]
            self.looks[image] = look(self.engine, image, names)
        return self.looks[image]

    def identity(self, task: Task) -> dict:
        """What a calibration and the grades behind it must have in common."""
        return {
            "manifest": digest(self.manifest),
            "mask": task.mask_digest,
            "blobs": digest(check_blobs(task, self.blobs)),
            "image_digest": self.image(task)["digest"],
            "wheelhouse": self.fingerprint,
            "packages": self.brought(task).installed,
            "seconds": SECONDS | self.seconds,
            "resource_mode": self.resource_mode,
            "cpus": self.cpus,
            "memory_mb": self.memory_mb,
        }

    def claims(self, task: Task) -> dict:
        """What the census counts of how official a grade is. An image is where its digest was pinned beforehand."""
        pinned = task.image.startswith(f"{OFFICIAL_IMAGES}/") and task.image_digest is not None
        return {"official_image": pinned, "official_tasks": self.tasks == self.official.tasks}

    def facts(self, task: Task) -> dict:
        """What every grade of a task states, whatever became of the work."""
        return {
            "sandbox": self.sandbox(self.image(task)),
            "provenance": {**self.identity(task), "official": self.official.as_json(), **self.claims(task)},
        }

    @property
    def fingerprint(self) -> str | None:
        return self.wheelhouse.fingerprint if self.wheelhouse else None

    @property
    def engine_limits(self) -> dict | None:
        return {"cpus": self.cpus, "memory_mb": self.memory_mb} if self.resource_mode == "container" else None

    def sandbox(self, image: dict) -> dict:
        """What a record says of the evaluator's containers: only what was in force."""
        return {
            "lane": "container",
            "isolated": True,
            "engine": self.engine.name,
            "engine_version": self.engine.version(),
            "resource_mode": self.resource_mode,
            "engine_limits": self.engine_limits,
            "network": "none",
            "workers": self.cpus,
            "image": image["image"],
            "image_digest": image["digest"],
            "image_id": image["id"],
            "image_pinned": image["pinned"],
            "wheelhouse": self.fingerprint,
        }


def nothing_passed(task: Task) -> dict:
    """The detail of a grade of work that was not run. Pure."""
    return {"complete": False, "scored": sum(map(len, task.mask.values())), "passed": 0}


def evaluate(
    court: Court, task: Task, archive: Path | None, clean: set[str], evidence: Path, branches: list[str] | None = None
) -> dict:
    """Evaluate a submission, or the reference where ``archive`` is None; the body of a grade.

    Parameters
    ----------
    clean : branches that the reference finished (calibration): there, lost results are the candidate's.
    evidence : folder for the raw ``eval.json``.
    branches : only these, for a probe.

    Raises
    ------
    InfrastructureError : no judgement was possible.
    """
    identity = court.facts(task)
    names = []
    if archive:
        identity["provenance"]["submission"] = sha256_file(archive)
        try:
            names = check_archive(archive)
        except Rejected as reason:
            return failed("submission_rejected", str(reason)) | {"detail": nothing_passed(task)} | identity
    image = court.image(task)
    open_official(court.official, court.engine.name, court.cpus, court.blobs)
    with one_evaluator(), scratch() as folder:
        sweep(court.engine)
        if archive is None:
            archive = folder / "reference.tar.gz"
            reference_archive(archive)
            runs = _run(court, task, image, archive, evidence, branches, reference=True)
        else:
            runs = _run(court, task, image, archive, evidence, branches)
    result, observed = runs
    observed.root_files = sorted({*observed.root_files, *verdicts.root_files(names)})
    _write_observed(observed, evidence)
    mask = {branch: task.mask[branch] for branch in (branches or task.mask)}
    listed = {branch: task.expected(branch) for branch in mask}
    score = official_score(evidence / "eval.json", task, list(mask))
    body = verdicts.judge(json.loads(result.model_dump_json()), score, observed, mask, listed, clean)
    body["detail"]["executable_sha256"] = result.executable_hash
    return body | identity


def _run(court: Court, task: Task, image: dict, archive: Path, evidence: Path, branches, reference: bool = False):
    """(official result, observed): compile.sh is run once more where the node may have ended it."""
    from assize.benchmarks.programbench.evaluator import CourtEvaluator, Settings

    brought, texts = court.brought(task), ("", "")
    if court.wheelhouse:
        texts = texts_for(court.wheelhouse, brought.installed, brought.python)
    settings = Settings(
        engine=court.engine,
        image=image["id"],
        labels=labels(court.study),
        workers=court.cpus,
        brought=brought,
        engine_limits=court.engine_limits,
        wheelhouse=court.wheelhouse.path if court.wheelhouse else None,
        install=texts[0],
        constraints=texts[1],
        seconds=court.seconds,
    )
    chosen = branches or task.branches
    compile_runs = []
    while True:
        evaluator = CourtEvaluator(
            settings=settings,
            reference=reference,
            image_name=f"assize-task/{task.id}",
            solution_branch="submission",
            submission_archive=archive,
            blob_dir=court.blobs / task.id,
            tests_branches=chosen,
            remove_hashes=task.clean_hashes,
            tests_by_branch={branch: task.expected(branch) for branch in chosen},
            ignored_tests=task.ignored_tests,
            ignored_branches=task.ignored_branches,
            instance_id=task.id,
        )
        result = _guarded(evaluator, evidence)
        compile_runs += evaluator.observed.compile_runs
        end = compile_runs[-1] if result.error_code == "compile_failed" and compile_runs else None
        if end in DOUBTFUL:
            if not court.engine.starts(image["id"]):
                raise InfrastructureError("node_unhealthy", f"no container starts here any more (compile.sh: {end})")
            if len(compile_runs) == 1:
                log(f"compile.sh: {end}: once more")
                continue
        break
    if reference and not result.error_code and result.executable_hash != evaluator.reference_sha256:
        raise InfrastructureError("reference_changed", "the reference's executable changed on the way")
    write_atomic(evidence / "eval.json", result.model_dump_json(indent=2).encode())
    evaluator.observed.compile_runs = compile_runs
    return result, evaluator.observed


def _guarded(evaluator, evidence: Path):
    """The official result. Whatever upstream raises on the way is no result, and never the candidate's score."""
    try:
        return evaluator.run()
    except Exception as error:
        # For whoever looks into it: how far it got, and what the build had changed by then.
        write_atomic(evidence / "interrupted.json", evaluator.result.model_dump_json(indent=2).encode())
        _write_observed(evaluator.observed, evidence)
        if isinstance(error, AssizeError):
            raise
        message = f"the official evaluator ended: {type(error).__name__}: {error}"
        raise InfrastructureError("evaluator_failed", message) from error


def _write_observed(observed: verdicts.Observed, evidence: Path) -> None:
    write_atomic(evidence / "observed.json", json.dumps(asdict(observed), indent=1, sort_keys=True).encode())


def official_score(eval_json: Path, task: Task, branches: list[str]) -> float:
    """The official fraction of an ``eval.json``, by the official code."""
    from programbench.submission import score_from_tests, test_results_map

    instance = task.instance | {"branches": {branch: task.instance["branches"][branch] for branch in branches}}
    return score_from_tests(test_results_map(eval_json, instance))


def reference_archive(path: Path) -> None:
    """A submission whose build puts the stashed reference in place: from there on it goes a candidate's way."""
    from assize.benchmarks.programbench.evaluator import REFERENCE_BUILD

    member, data = tarfile.TarInfo("compile.sh"), REFERENCE_BUILD.encode()
    member.mode, member.size = 0o755, len(data)
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(member, io.BytesIO(data))
