"""The court's procedure, the same for every benchmark: verbs in, records out.

A benchmark decides what its verbs mean; this module decides what is written, when the gate is asked, and what becomes
of an infrastructure failure.
"""

import gzip
import shutil
import tempfile
import time
import traceback
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from assize import admission, resources
from assize.benchmarks import Benchmark
from assize.cli import log
from assize.errors import AssizeError, GateClosed, InfrastructureError, UsageError
from assize.records import digest, read_record, sha256_file, write_atomic, write_record
from assize.study import FROZEN, Episode, Study, memory_mb


@dataclass(frozen=True)
class Context:
    """What a verb may know: the study, the terms in force, and which attempt this is."""

    benchmark: Benchmark
    study: Study
    engine: str | None = None
    attempt: int = 1
    attempts: int | None = None
    options: object = None

    @property
    def terms(self) -> dict:
        return self.study.benchmarks[self.benchmark.name]["terms"]

    @property
    def terms_digest(self) -> str:
        return self.study.terms_digest(self.benchmark.name)

    @property
    def last_attempt(self) -> bool:
        """Only the workflow says how many attempts there are; a person who runs a verb wants to see the error."""
        return self.attempts is not None and self.attempt >= self.attempts

    def lane(self, image: str | None = None, read_only_paths: tuple[str, ...] = ()):
        """The study's lane, open; ``image`` of a task comes before the study's. The paths are a benchmark's own."""
        from assize.sandbox import open_lane

        sandbox = self.terms["sandbox"]
        options = {"read_only_paths": [*sandbox.get("read_only_paths", ()), *read_only_paths]}
        if self.terms["resource_mode"] == "container":
            allocation = self.terms["allocation"]
            options["engine_limits"] = {"cpus": allocation["cpus"], "memory_mb": memory_mb(allocation["memory"])}
        return open_lane(sandbox["lane"], image or sandbox.get("image"), self.engine or sandbox.get("engine"), options)


def _header(context: Context, kind: str, episode: Episode, version: int = 1) -> dict:
    return {"schema": f"assize.{kind}/{version}", "episode": episode.as_json(), "terms_digest": context.terms_digest}


def _or_void(context: Context, work):
    """The body that ``work()`` returns; where the workflow cannot hope for better, a void body with the reason.

    That is: an infrastructure failure on the last attempt, and a closed gate at once. An error of this program's own is
    taken for the former: it may keep one episode from being judged, and not all others from being counted. A disk that
    is full is never recorded: the next run, with room again, is to judge the episode, and not to find it void.
    """
    try:
        return work()
    except UsageError:
        raise
    except Exception as error:
        gate = isinstance(error, GateClosed)
        if context.attempts is None or not (gate or context.last_attempt) or resources.is_disk_fault(error):
            raise
        message = str(error)
        if not isinstance(error, (AssizeError, OSError)):
            log(traceback.format_exc())
            message = f"unexpected {type(error).__name__}: {message}"
        log(f"void: {message}")
        return {"status": "void", "reason": message if gate else f"infra: {message}"}


def _pass_gate(context: Context, episode: Episode) -> dict:
    gate = _read_gate(context, episode)
    admission.check(gate, context.terms_digest)
    return gate


def _read_gate(context: Context, episode: Episode) -> dict:
    return read_record(context.study.admission(episode.benchmark, episode.instance), "admission")


def calibrate(context: Context, instance: str, repetition: int, output: Path) -> dict:
    """Write one calibration record. A reference that fails is a finding, not an error: the gate is admission's.

    So is one that could not be graded at the last attempt: it bars, and the study still counts all that it planned.
    """
    check_allocation(context)
    with _evaluators_turn(context):
        started = time.time()
        body = _or_void(context, lambda: context.benchmark.calibrate(context, instance, repetition))
        seconds = round(time.time() - started, 3)
    if body.get("status") == "void":
        remedy = f"for another try delete {output} and rerun the workflow"
        log(remedy)
        body = {
            "passed": False,
            "reasons": [f"{body['reason']} ({remedy})"],
            "flags": [],
            "reference": {},
            "canaries": {},
            "sandbox": {"lane": context.terms["sandbox"]["lane"]},
            "detail": {},
        }
    record = {
        "schema": "assize.calibration/1",
        "benchmark": context.benchmark.name,
        "instance": instance,
        "repetition": repetition,
        "terms_digest": context.terms_digest,
        "seconds": seconds,
        "slurm": resources.slurm_allocation(),
        **body,
    }
    write_record(output, record)
    return record


def admit(context: Context, instance: str) -> dict:
    """Read the calibrations that an instance's gate depends on, and write its admission."""
    name = context.benchmark.name
    calibrations, hashes = {}, []
    for path in context.study.calibrations(name, instance):
        record = read_record(path, "calibration")
        if record["terms_digest"] != context.terms_digest:
            raise UsageError("other_terms", f"{path}: calibrated under other terms", "delete it and rerun the workflow")
        calibrations.setdefault(record["instance"], []).append(record)
        hashes.append(sha256_file(path))
    record = {
        "schema": "assize.admission/1",
        "benchmark": name,
        "instance": instance,
        "terms_digest": context.terms_digest,
        "calibrations": hashes,
        **admission.decide(calibrations),
    }
    write_record(context.study.admission(name, instance), record)
    if record["status"] == "barred":
        log(f"barred {name}/{instance}: {'; '.join(record['reasons'])}")
    return record


def prepare(context: Context, episode: Episode) -> dict:
    """Lay out a fresh workspace; behind a closed gate there is none, and the episode is void."""
    folder = context.study.episode_folder(episode)
    workspace = folder / "workspace"

    def work() -> dict:
        _pass_gate(context, episode)
        return {"status": "prepared", **_lay_out(context, episode, workspace)}

    record = {**_header(context, "prepared", episode), "reason": None, "task": {}, **_or_void(context, work)}
    write_record(folder / "prepared.json", record)
    return record


def _lay_out(context: Context, episode: Episode, workspace: Path) -> dict:
    remove_tree(workspace)
    workspace.mkdir(parents=True)
    return context.benchmark.prepare(context, episode, workspace)


def solve(context: Context, episode: Episode) -> dict:
    """Let the solver of the episode's condition work in its workspace; a further attempt starts from a fresh one."""
    folder = context.study.episode_folder(episode)
    workspace = folder / "workspace"
    prepared = _read_stage(context, episode, "prepared")
    solver = context.study.frozen["conditions"][episode.condition]["solver"]

    def work() -> dict:
        if solver == FROZEN:
            raise UsageError("frozen", f"{folder}: its work was frozen elsewhere: there is nothing to solve")
        if context.attempt > 1:
            _lay_out(context, episode, workspace)
        # Whoever has an allocation to itself works beside no evaluator in it.
        alone = context.study.benchmarks[episode.benchmark]["alone"]
        with _evaluators_turn(context) if alone else nullcontext():
            return context.benchmark.solve(context, episode, workspace)

    if prepared["status"] == "void":
        body = {"status": "void", "reason": prepared["reason"]}
    else:
        body = _or_void(context, work)
    record = {**_header(context, "solved", episode), "solver": solver, "reason": None, "detail": {}, **body}
    write_record(folder / "solved.json", record)
    return record


def snapshot(context: Context, episode: Episode) -> dict:
    """End the candidate and freeze its work. The workspace is removed: from here on only the archive counts."""
    folder = context.study.episode_folder(episode)
    solved = _read_stage(context, episode, "solved")
    archive = None
    if solved["status"] == "done" and not (folder / "workspace").is_dir():
        raise UsageError(
            "workspace_gone",
            f"{folder}/workspace: the work was frozen before and its workspace removed",
            f"delete {folder} and rerun the workflow: the episode is made again",
        )
    if solved["status"] == "done":
        body = _or_void(context, lambda: context.benchmark.snapshot(context, episode, folder / "workspace"))
        if isinstance(body, tuple):
            body, archive = body
    else:
        body = {"status": solved["status"], "reason": solved["reason"]}
    # Always an archive: what was not handed in is an empty one, and the record says so.
    write_atomic(folder / "submission.tar.gz", gzip.compress(b"\0" * 10240, mtime=0) if archive is None else archive)
    record = {
        **_header(context, "snapshot", episode),
        "reason": None,
        "scoring_status": None,
        "survivors": 0,
        "detail": {},
        "slurm": resources.slurm_allocation(),
        **body,
        "sha256": sha256_file(folder / "submission.tar.gz"),
        "size": (folder / "submission.tar.gz").stat().st_size,
    }
    write_record(folder / "snapshot.json", record)
    remove_tree(folder / "workspace")
    return record


def judged_before_grading(record: dict, gate: dict) -> dict | None:
    """The grade's body where there is nothing to run a grader on, else None. Pure."""
    if gate["status"] == "barred":
        return void("barred", f"calibration barred the instance: {'; '.join(gate['reasons'])}")
    if record["status"] == "missing":
        return void("no_submission", record["reason"])
    if record["status"] == "void":
        return void("infra", record["reason"])
    if record["status"] == "rejected":
        return failed("submission_rejected", record["reason"])
    if record["status"] == "failed":
        return failed(record["scoring_status"], record["reason"])
    return None


def void(scoring_status: str, reason: str) -> dict:
    """The body of a grade that was not judged."""
    return {
        "verdict": "void",
        "valid": False,
        "score": None,
        "analysis_score": None,
        "scoring_status": scoring_status,
        "reason": reason,
    }


def failed(scoring_status: str, reason: str) -> dict:
    """The body of a grade in which the candidate failed: a valid zero."""
    return {
        "verdict": "fail",
        "valid": True,
        "score": 0.0,
        "analysis_score": 0.0,
        "scoring_status": scoring_status,
        "reason": reason,
    }


def grade(context: Context, episode: Episode) -> dict:
    """Judge one snapshot and write its grade."""
    check_allocation(context)
    # Run by hand, a closed gate is an error; in the workflow the episode gets its row.
    gate = _read_gate(context, episode) if context.attempts else _pass_gate(context, episode)
    folder = context.study.episode_folder(episode)
    record = _read_stage(context, episode, "snapshot")
    evidence = folder / "evidence"
    shutil.rmtree(evidence, ignore_errors=True)
    started = time.time()
    body = early = judged_before_grading(record, gate)
    if early is None:
        with _evaluators_turn(context):
            started = time.time()
            body = _or_void(context, lambda: _judge(context, episode, folder, record, evidence))
    elif early["valid"]:
        body = _or_void(context, lambda: early | context.benchmark.facts(context, episode))
    if body.get("status") == "void":
        body = void("infra", body["reason"])
    provenance = {
        "terms": context.terms_digest,
        "snapshot": record["sha256"],
        "calibration": digest(gate["calibrations"]),
        "protocol_version": context.benchmark.protocol_version,
        "versions": resources.versions(),
        "sandbox": {"lane": context.terms["sandbox"]["lane"]},
        "resource_mode": context.terms["resource_mode"],
        "slurm": resources.slurm_allocation(),
        "attempt": context.attempt,
        "command": resources.command_line(),
    }
    body = {"oracle_exposed": "oracle_exposed" in gate["flags"], **body}
    timing = {"started": utc(started), "seconds": round(time.time() - started, 3)}
    header = _header(context, "grade", episode, version=2)
    result = grade_record(header, body, provenance, timing, hash_evidence(folder))
    write_record(folder / "grade.json", result)
    return result


def grade_record(header: dict, body: dict, provenance: dict, timing: dict, evidence: dict[str, str]) -> dict:
    """Put the record of a grade together. Pure.

    Parameters
    ----------
    header : ``schema``, ``episode`` and ``terms_digest``.
    body : what judging gave; its ``sandbox`` and ``provenance``, where it has them, come before those given here.
    provenance : what was known of the grade before it was judged.
    timing : ``started``, a UTC time, and ``seconds``.
    evidence : path below the episode's folder -> sha256.
    """
    own = {"sandbox": body["sandbox"]} if "sandbox" in body else {}
    return {
        **header,
        "checks": [],
        "tamper": [],
        "flags": [],
        "detail": {},
        "oracle_exposed": False,
        **{key: value for key, value in body.items() if key not in ("sandbox", "provenance")},
        "provenance": {**provenance, **own, **body.get("provenance", {})},
        "timing": timing,
        "evidence": evidence,
    }


def hash_evidence(folder: Path) -> dict[str, str]:
    """Path below an episode's folder -> sha256, of every file of its evidence."""
    found = (path for path in (folder / "evidence").rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256_file(path) for path in found}


def _judge(context: Context, episode: Episode, folder: Path, record: dict, evidence: Path) -> dict:
    archive = (folder / "submission.tar.gz").read_bytes()
    if sha256_file(folder / "submission.tar.gz") != record["sha256"]:
        raise InfrastructureError(
            "snapshot_changed",
            f"{folder / 'submission.tar.gz'} is not the archive that snapshot.json names",
            f"delete {folder} and rerun the workflow: the episode is made again",
        )
    evidence.mkdir(parents=True)
    return context.benchmark.grade(context, episode, archive, evidence)


def _read_stage(context: Context, episode: Episode, name: str) -> dict:
    path = context.study.episode_folder(episode) / f"{name}.json"
    record = read_record(path, name)
    if record["terms_digest"] != context.terms_digest:
        raise UsageError("other_terms", f"{path}: made under other terms than the study's", "rerun the workflow")
    return record


def check_allocation(context: Context) -> None:
    allocation = context.terms["allocation"]
    resources.check_allocation(
        context.terms["resource_mode"],
        allocation["cpus"],
        memory_mb(allocation["memory"]),
        resources.slurm_allocation(),
    )


def _evaluators_turn(context: Context):
    """In an allocation one evaluator is active at a time; elsewhere nothing was allocated that they would share."""
    return resources.one_evaluator() if context.terms["resource_mode"] == "slurm" else nullcontext()


def remove_tree(root: Path) -> None:
    """Remove a candidate's directory, whatever permissions it took away."""
    if not root.exists():
        return
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir() and not path.is_symlink())]:
        folder.chmod(0o700)
    shutil.rmtree(root)


@contextmanager
def scratch():
    """A temporary directory on the node, gone at the end. Others can pass through it, to what a lane gives to them."""
    with tempfile.TemporaryDirectory(prefix="assize-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        yield folder


def utc(seconds: float) -> str:
    """A time for a record."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
