"""The phases of one task: build and freeze the candidate's work, then grade it where the candidate never was."""

from pathlib import Path

from assize.adapter import failed, remove_tree, scratch, void
from assize.archive import Rejected, check_file_map, freeze, unpack, write_file_map
from assize.benchmarks.command import grading
from assize.benchmarks.command.suite import Task
from assize.records import write_atomic
from assize.sandbox import Limits, Outcome, Phase

DEFAULT_TIMEOUT_S = 60.0


def phase_limits(task: Task, given: dict) -> Limits:
    """The limits of a phase: the study's, with the task's own ``timeout_s`` as its wall-clock."""
    return Limits.of(given, wall_s=task.timeout_s or given.get("wall_s", DEFAULT_TIMEOUT_S))


def build_and_freeze(lane, task: Task, workspace: Path, limits: Limits) -> tuple[dict, bytes | None]:
    """Run the task's build on the candidate's files, end all that it started, and freeze the directory.

    Returns
    -------
    (body, archive) : the body of a snapshot record; the archive is None where the work was rejected or did not build.
    """
    body = {"status": "frozen", "detail": {}}
    try:
        if task.build:
            outcome = lane.run_candidate(Phase(task.build, workspace, limits))
            body["survivors"] = outcome.survivors
            body["detail"] = {"build": outcome.as_json()}
            if outcome.exit_status != 0:
                return body | build_failure(outcome), None
        return body, freeze(workspace)
    except Rejected as reason:
        return body | {"status": "rejected", "reason": str(reason)}, None


def build_failure(outcome: Outcome) -> dict:
    """What a snapshot record says of a build that did not exit 0. Pure."""
    if outcome.limit == "wall":
        status, reason = "build_timed_out", f"the build was ended after {outcome.seconds:.1f} s"
    elif outcome.limit:
        status, reason = "build_over_limit", f"the build was ended for its {outcome.limit} limit"
    else:
        status, reason = "build_failed", f"the build exited {outcome.exit_status}"
    return {"status": "failed", "scoring_status": status, "reason": reason}


def grade_archive(lane, task: Task, archive: bytes, limits: Limits, evidence: Path | None = None) -> dict:
    """Unpack a frozen archive into a fresh directory, run the grader there, and judge.

    Returns
    -------
    The body of a grade; ``marker`` in its detail says whether an oracle probe left its mark.
    """
    with scratch() as folder:
        work = Path(folder, "work")
        work.mkdir()
        try:
            unpack(archive, work)
        except Rejected as reason:
            return failed("submission_rejected", str(reason))
        canary_leaked = bool(task.canary) and contains(work, task.canary.encode())
        outcome = lane.run_grader(Phase(task.grader_cmd, work, limits, task.grader_files))
        remove_tree(work)
    if evidence:
        write_atomic(evidence / "grader.log", outcome.output)
        if outcome.reward is not None:
            write_atomic(evidence / "reward.json", outcome.reward)
    body = grading.judge(outcome)
    # Without its output: that is evidence, and a candidate's words have no place beside a verdict.
    detail = {key: value for key, value in outcome.as_json().items() if key != "output_tail"}
    return body | {
        "detail": {"grader": detail, "marker": outcome.marker},
        "tamper": ["suite_canary_in_submission"] if canary_leaked else [],
        "sandbox": lane.provenance(),
    }


def judge_files(lane, task: Task, files: dict | None, limits: Limits) -> tuple[dict, dict | None]:
    """A whole episode at once: (body of the grade, body of the snapshot) for a submitted file map (None: none)."""
    if files is None:
        return void("no_submission", "no submission for this task"), None
    try:
        files = check_file_map(files)
    except Rejected as reason:
        return failed("submission_rejected", str(reason)), None
    with scratch() as folder:
        workspace = Path(folder, "work")
        workspace.mkdir()
        write_file_map(workspace, task.files)
        write_file_map(workspace, files)
        body, archive = build_and_freeze(lane, task, workspace, limits)
        remove_tree(workspace)
    if body["status"] == "rejected":
        return failed("submission_rejected", body["reason"]), body
    if body["status"] == "failed":
        return failed(body["scoring_status"], body["reason"]), body
    return grade_archive(lane, task, archive, limits), body


def contains(root: Path, needle: bytes) -> bool:
    """Whether a regular file under ``root`` holds ``needle``."""
    return any(needle in path.read_bytes() for path in root.rglob("*") if path.is_file() and not path.is_symlink())
