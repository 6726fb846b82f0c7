"""Who runs a study: one controller at a time, and whoever comes second is told which.

Snakemake's own lock does not name its holder, stays behind after a kill -9, and goes with the end of any other study of
the same checkout. This record stands beside it: written at the start of a run, removed at its end. A lock of
Snakemake's is removed only where its holder is known to be gone.
"""

import os
import platform
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from assize.errors import UsageError
from assize.records import read_record, write_record

ALIVE, GONE, UNKNOWN = "alive", "gone", "unknown"
# Where Snakemake keeps the names of the files that its runs read and write.
SNAKEMAKE_LOCKS = Path(".snakemake/locks")


@dataclass(frozen=True)
class Holder:
    """A process that runs a study. ``started`` is its start in seconds since the epoch: a process id is given again.

    ``job`` is the Slurm job that it runs in, if any, and ``restarts`` how often Slurm had restarted that job.
    """

    host: str
    pid: int
    started: float
    user: str
    job: str | None
    restarts: int

    def __str__(self):
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.started))
        job = f"Slurm job {self.job}, " if self.job else ""
        return f"{job}process {self.pid} of {self.user} on {self.host}, since {since}"


@cache
def me() -> Holder:
    """This process, as it was when first asked: the executor clears Slurm's variables from the environment later."""
    import psutil

    process = psutil.Process()
    return Holder(
        host=platform.node(),
        pid=process.pid,
        started=process.create_time(),
        user=process.username(),
        job=os.environ.get("SLURM_JOB_ID"),
        restarts=int(os.environ.get("SLURM_RESTART_COUNT", 0)),
    )


def state_of(holder: Holder, mine: Holder, started: float | None, job_lives: bool | None) -> str:
    """Whether a holder lives, as far as the process ``mine`` can tell. Pure.

    Parameters
    ----------
    started : start of the process that has the holder's id on this host; None if there is none.
    job_lives : whether Slurm says that the holder's job is in the queue; None if it was not asked or did not answer.
    """
    if holder.host == mine.host:
        return ALIVE if started is not None and abs(started - holder.started) < 1 else GONE
    if holder.job is None:
        return UNKNOWN
    if holder.job == mine.job:
        return GONE if mine.restarts > holder.restarts else ALIVE
    return {True: ALIVE, False: GONE, None: UNKNOWN}[job_lives]


def take(root: Path) -> None:
    """Write this process down as the holder of the study at ``root``, ``results/<study>``.

    Raises
    ------
    UsageError : a live process holds it. One that cannot be asked does not count: it has lost Snakemake's lock.
    """
    with _guard(root):
        found = _read(root)
        if found and found != me() and _state(found) == ALIVE:
            raise UsageError("held", f"the study {root.name} is being run by {found}", _remedy(root))
        write_record(_path(root), {"schema": "assize.holder/1", **asdict(me())})


def release(root: Path) -> None:
    """Give the study free at the end of a run, if this process holds it."""
    with _guard(root):
        if _read(root) == me():
            _path(root).unlink()


@dataclass(frozen=True)
class Finding:
    """Who holds a study, or held it, in words, and whether it is alive, gone, or cannot be asked (unknown)."""

    message: str
    state: str


def look(root: Path) -> Finding | None:
    """Who holds the study; None if nobody does. Of a holder that is gone, the locks are removed."""
    me()
    if not _path(root).exists():
        return None
    with _guard(root):
        found = _read(root)
        state = _state(found) if found else GONE
        if state == GONE:
            _remove_snakemake_locks(root)
            _path(root).unlink(missing_ok=True)
            return Finding(f"The last run of {root.name} was cut off ({found}). Its locks are removed.", GONE)
    if state == UNKNOWN:
        message = f"{root.name} may be run by {found}, which cannot be asked from here. If it is gone: --unlock once."
        return Finding(message, UNKNOWN)
    return Finding(f"{root.name} is being run by {found}. {_remedy(root)}", ALIVE)


def _remedy(root: Path) -> str:
    return f"Wait for it, or end it: python scripts/controller.py cancel {root}, or Ctrl-C where it runs."


def _state(holder: Holder) -> str:
    mine = me()
    asked = holder.host != mine.host and holder.job not in (None, mine.job) and holder.user == mine.user
    return state_of(holder, mine, _start_of(holder.pid), _job_lives(holder.job) if asked else None)


def _start_of(pid: int) -> float | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def _job_lives(job: str) -> bool | None:
    from snakemake_executor_plugin_submitit import slurm

    text = slurm.run(slurm.queue_command())
    return (
        None if text is None else any(id == job and slurm.is_active(state) for id, state, _ in slurm.parse_queue(text))
    )


def _remove_snakemake_locks(root: Path) -> None:
    """Remove the locks on files of one study. Those of other studies of this checkout stay."""
    for lock in SNAKEMAKE_LOCKS.glob("*.lock"):
        if any(line.startswith(f"{root}/") for line in lock.read_text().splitlines()):
            lock.unlink(missing_ok=True)


def _path(root: Path) -> Path:
    return root / "holder.json"


def _guard(root: Path):
    from filelock import FileLock

    root.mkdir(parents=True, exist_ok=True)
    return FileLock(root / ".holder.lock", timeout=60)


def _read(root: Path) -> Holder | None:
    """None also of a record that is damaged: nobody is known to hold the study."""
    try:
        record = read_record(_path(root), "holder")
    except UsageError:
        return None
    return Holder(**{key: value for key, value in record.items() if key != "schema"})
