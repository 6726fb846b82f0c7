"""An episode up to its snapshot: a solver works in a container of its own (workspace.py), which ends with its work.

What was packed before and the reference need none.
"""

from pathlib import Path

from assize import resources
from assize.archive import Rejected
from assize.benchmarks.programbench import agents, freezing
from assize.benchmarks.programbench import workspace as layout
from assize.benchmarks.programbench.engine import Engine, find_engine
from assize.benchmarks.programbench.places import Place
from assize.benchmarks.programbench.replay import ARCHIVE, open_submissions
from assize.errors import UsageError
from assize.records import read_record, strict_json, write_atomic
from assize.study import DEFAULT_TIMEOUT_S

# Where an episode's folder says which container is its workspace.
CONTAINER = "container.json"
# Seconds that a container outlives its solver's time: for the steps around it, each of them bounded.
MARGIN_S = 3600


def archived(condition: dict, instance: str) -> Path | None:
    """The archive that a replay condition hands in as it is; None where its work is files, or there is none."""
    if condition["solver"] != "replay":
        return None
    submissions = open_submissions(condition["submissions"]["programbench"])
    return submissions / instance / ARCHIVE if isinstance(submissions, Path) else None


def prepare(context, court, episode, workspace: Path) -> dict:
    """Start the episode's container; the record's task is the prompt and the full contract of its layout."""
    import json

    condition = context.study.frozen["conditions"][episode.condition]
    task = court.task(episode.instance)
    image = court.image(task)
    contract = layout.contract(episode.instance) | {
        "image": image["image"],
        "image_digest": image["digest"],
        "resource_mode": court.resource_mode,
        "engine_limits": court.engine_limits,
        "slurm": resources.slurm_allocation(),
    }
    if condition["solver"] == "reference" or archived(condition, episode.instance):
        return {"task": contract | {"container": None}}
    lifetime = condition.get("timeout_s", DEFAULT_TIMEOUT_S) + MARGIN_S
    # Where jobs share an allocation, a grade may come before the agent's turn, or before the snapshot.
    lifetime += 60 * context.study.minutes(episode.benchmark)
    place = Place(context.study.name, str(episode))
    container = layout.prepare(court.engine, image["id"], place, lifetime, court.engine_limits)
    note = {"container": container, "image": image["id"], "engine": court.engine.name}
    write_atomic(workspace / CONTAINER, json.dumps(note).encode())
    return {"task": contract | {"container": container}}


def _container(workspace: Path) -> tuple[Engine, str, str]:
    """(engine, container, image) of a prepared episode."""
    path = workspace / CONTAINER
    if not path.is_file():
        remedy = "delete the episode's folder and rerun the workflow"
        raise UsageError("workspace_gone", f"{path}: no such file", remedy)
    note = strict_json(path.read_text())
    return find_engine(note["engine"]), note["container"], note["image"]


def solve(context, episode, workspace: Path) -> dict:
    """Let the condition's solver work, then end its processes and count those that had outlived it.

    The container stays, ended, only where there is something to freeze.
    """
    condition = context.study.frozen["conditions"][episode.condition]
    if condition["solver"] == "reference":
        return {"status": "done"}
    archive = archived(condition, episode.instance)
    if archive:
        if not archive.is_file():
            return {"status": "missing", "reason": f"{archive}: no such file"}
        write_atomic(workspace / ARCHIVE, archive.read_bytes())
        return {"status": "done", "detail": {"archive": str(archive)}}
    engine, container, _ = _container(workspace)
    kept = False
    try:
        body = _work(engine, container, condition, episode.instance)
        if body["status"] == "done":
            # Whatever it left running would go on beside the next evaluator, and could push until the snapshot.
            survivors = agents.end(engine, container)
            body, kept = body | {"detail": body.get("detail", {}) | {"survivors": survivors}}, True
    finally:
        if not kept:
            engine.remove(container)
    return body


def _work(engine: Engine, container: str, condition: dict, instance: str) -> dict:
    if condition["solver"] == "noop":
        return {"status": "done"}
    if condition["solver"] == "command":
        timeout = condition.get("timeout_s", DEFAULT_TIMEOUT_S)
        ended = agents.run_agent(engine, container, condition["command"], timeout)
        return {"status": "done", "detail": {"agent": ended}}
    files = open_submissions(condition["submissions"]["programbench"]).get(instance)
    if files is None:
        return {"status": "missing", "reason": f"no submission for {instance}"}
    try:
        return {"status": "done", "detail": agents.commit_files(engine, container, files)}
    except Rejected as reason:
        return {"status": "rejected", "reason": str(reason)}


def snapshot(context, episode, workspace: Path) -> tuple[dict, bytes | None]:
    """Freeze the committed ``main`` of the shared repository; every process of the solver has been ended."""
    condition = context.study.frozen["conditions"][episode.condition]
    if condition["solver"] == "reference":
        # The cleanroom's own executable is judged: there is nothing to hand in.
        return {"status": "frozen", "detail": {"reference": True}}, None
    if archived(condition, episode.instance):
        return {"status": "frozen"}, (workspace / ARCHIVE).read_bytes()
    engine, container, image = _container(workspace)
    solved = read_record(context.study.episode_folder(episode) / "solved.json", "solved")
    try:
        body, archive = freezing.snapshot(engine, container, image)
    except Exception:
        if context.last_attempt:
            engine.remove(container)
        raise
    # They were ended with the solver's work.
    return body | {"survivors": solved["detail"].get("survivors", body["survivors"])}, archive
