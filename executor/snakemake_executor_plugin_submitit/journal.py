"""What was submitted and which files it makes, on disk: a later controller finds the jobs of one that died.

Snakemake's own note of a job's external id does not serve here. The local executor inside the job replaces it when a
rule starts, ``rerun-incomplete`` makes Snakemake ignore it, and a later run may put other jobs into a group.

    .snakemake/submitit/<run>/<batch>/batch.json     name, cluster, ids (none before they are known), and per task the
                                                     files it makes and a digest of what makes them
                                      <index>.sh     the command of a task, ready to paste
                                      <id>_0_log.out, pickles, submission file: submitit's
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from submitit.core.utils import JobPaths, pickle_load

ROOT = Path(".snakemake/submitit")
RECORD = "batch.json"


@dataclass(frozen=True)
class Task:
    """One submitted job. ``id`` is Slurm's (``7`` or ``7_3``), or the process id of a local one.

    ``contents`` gives by output a digest of what makes it. ``name`` is the batch's, and so the job's in Slurm.
    """

    id: str
    index: int
    folder: Path
    contents: dict[str, str] = field(default_factory=dict, repr=False, hash=False)
    name: str = ""

    @property
    def outputs(self) -> frozenset[str]:
        return frozenset(self.contents)

    @property
    def script(self) -> Path:
        return self.folder / f"{self.index}.sh"

    @property
    def log(self) -> Path:
        return JobPaths(self.folder, self.id).stdout

    def makes_otherwise(self, contents: dict[str, str]) -> bool:
        """Whether the task makes one of these files, and not with this content."""
        return any(file in contents and contents[file] != content for file, content in self.contents.items())

    def succeeded(self, seconds_ago=0.0) -> bool | None:
        """What the task itself left behind about its end: None where it left nothing, or only just now."""
        path = JobPaths(self.folder, self.id).result_pickle
        try:
            if time.time() - path.stat().st_mtime < seconds_ago:
                return None
            return pickle_load(path)[0] == "success"
        except (OSError, EOFError):
            return None


def write_batch(folder: Path, name: str, cluster: str, contents: list[dict[str, str]], ids: list[str] | None) -> None:
    """Written once before the submission, without ids, and once after it. ``contents``: see ``Task``."""
    aside = folder / f"{RECORD}.new"
    aside.write_text(json.dumps({"name": name, "cluster": cluster, "ids": ids, "contents": contents}, indent=1))
    os.replace(aside, folder / RECORD)


def read_batches(root: Path, cluster: str, named: dict[str, list[str]]) -> Iterator[Task]:
    """The tasks of all batches of ``cluster`` below ``root``.

    ``named`` gives the queue's job ids by job name, for batches whose controller died before it wrote them down.
    """
    for record in sorted(root.glob(f"*/*/{RECORD}")):
        batch = json.loads(record.read_text())
        if batch["cluster"] == cluster:
            for id in batch["ids"] or named.get(batch["name"], []):
                index = batch["ids"].index(id) if batch["ids"] else int(id.partition("_")[2] or 0)
                yield Task(id, index, record.parent.absolute(), batch["contents"][index], batch["name"])


def forget(task: Task, keep_log: bool) -> None:
    """Remove the files of a task that is over, and the batch's with its last task. No other file is ever removed."""
    paths = JobPaths(task.folder, task.id)
    over = [paths.submitted_pickle, paths.result_pickle] + ([] if keep_log else [task.log, task.script])
    for path in over:
        path.unlink(missing_ok=True)
    record = task.folder / RECORD
    if record.exists() and not list(task.folder.glob("*_submitted.pkl")):
        for path in [record, *task.folder.glob(".submission_file_*.sh"), *task.folder.glob("*_submission.sh")]:
            path.unlink(missing_ok=True)
        for folder in (task.folder, task.folder.parent, task.folder.parent.parent):
            try:
                folder.rmdir()
            except OSError:
                break
