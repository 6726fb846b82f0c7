"""An episode: work that was made before goes in as it is; a solver works in a container of its own (workspace.py)."""

from pathlib import Path

from assize.adapter import remove_tree
from assize.archive import Rejected, check_file_map, freeze, write_file_map
from assize.benchmarks.programbench.replay import ARCHIVE, open_submissions

WORK = "solution"


def prepare(context, court, episode, workspace: Path) -> dict:
    (workspace / WORK).mkdir()
    return {"task": {}}


def solve(context, episode, workspace: Path) -> dict:
    condition = context.study.frozen["conditions"][episode.condition]
    if condition["solver"] in ("reference", "noop"):
        return {"status": "done"}
    submissions = open_submissions(condition["submissions"]["programbench"])
    if isinstance(submissions, Path):
        archive = submissions / episode.instance / ARCHIVE
        if not archive.is_file():
            return {"status": "missing", "reason": f"no {archive}"}
        (workspace / ARCHIVE).write_bytes(archive.read_bytes())
        return {"status": "done", "detail": {"archive": str(archive)}}
    files = submissions.get(episode.instance)
    if files is None:
        return {"status": "missing", "reason": f"no submission for {episode.instance}"}
    try:
        write_file_map(workspace / WORK, check_file_map(files))
    except Rejected as reason:
        return {"status": "rejected", "reason": str(reason)}
    return {"status": "done", "detail": {"files": sorted(files)}}


def snapshot(context, episode, workspace: Path) -> tuple[dict, bytes | None]:
    if (workspace / ARCHIVE).exists():
        return {"status": "frozen"}, (workspace / ARCHIVE).read_bytes()
    try:
        return {"status": "frozen"}, freeze(workspace / WORK)
    except Rejected as reason:
        return {"status": "rejected", "reason": str(reason)}, None
    finally:
        remove_tree(workspace / WORK)
