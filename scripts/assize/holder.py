"""Who runs a study: one controller at a time, and whoever comes second is told which.

Snakemake's own lock does not name its holder, stays behind after a kill -9, and goes with the end of any other study of
the same checkout. This record stands beside it: written at the start of a run, touched while it lives, removed at its
end. A lock of Snakemake's is removed only where its holder is known to be gone.
"""

import os
import platform
import signal
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from assize.cli import log
from assize.errors import UsageError
from assize.records import read_record, write_record

ALIVE, GONE = "alive", "gone"
# A holder touches its record this often. One that cannot be asked is taken for gone after so long a silence: far more
# than what file systems and busy hosts delay.
BEAT_S = 30
SILENT_S = 600
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


def state_of(holder: Holder, mine: Holder, started: float | None, job_lives: bool | None, silent_s: float) -> str:
    """Whether a holder lives, as far as the process ``mine`` can tell. Pure.

    Where neither this host's processes nor Slurm can tell, its record does: a live holder keeps touching it.

    Parameters
    ----------
    started : start of the process that has the holder's id on this host; None if none is seen.
    job_lives : whether Slurm says that the holder's job is in the queue; None if it was not asked or did not answer.
    silent_s : seconds since the holder last touched its record.
    """
    if holder.host == mine.host:
        if started is not None:
            return ALIVE if abs(started - holder.started) < 1 else GONE
        # Some hosts hide the processes of other users.
        if holder.user == mine.user:
            return GONE
    elif holder.job is not None and holder.job == mine.job:
        return GONE if mine.restarts > holder.restarts else ALIVE
    elif holder.job is not None and job_lives is not None:
        return ALIVE if job_lives else GONE
    return ALIVE if silent_s < SILENT_S else GONE


def take(root: Path) -> None:
    """Write this process down as the holder of the study at ``root``, ``results/<study>``, until ``release``.

    Raises
    ------
    UsageError : another process holds it that is not known to be gone.
    """
    with _guard(root):
        found = _read(root)
        if found and found != me() and _state(root, found) == ALIVE:
            raise UsageError("held", f"{root.name} is being run by {found}.", _remedy(root, found))
        _write(root)
    place = root.absolute()
    if place not in _beats:
        _beats[place] = threading.Event()
        name = f"holder of {root.name}"
        threading.Thread(target=_beat, args=(place, _beats[place]), name=name, daemon=True).start()


def release(root: Path) -> None:
    """Give the study free at the end of a run, if this process holds it."""
    if over := _beats.pop(root.absolute(), None):
        over.set()
    with _guard(root):
        if _read(root) == me():
            _path(root).unlink()


# Set to end the thread that touches the record of a study which this process holds.
_beats: dict[Path, threading.Event] = {}


def _beat(root: Path, over: threading.Event) -> None:
    while not over.wait(BEAT_S):
        try:
            if touch(root, over):
                continue
        except OSError as error:
            # The file system may come back before anyone takes this process for gone.
            log(f"{_path(root)}: {error}")
            continue
        log(f"error: {root.name} was taken over by {_read(root)}: this run was silent for too long, and ends")
        os.kill(os.getpid(), signal.SIGTERM)
        return


def touch(root: Path, over: threading.Event) -> bool:
    """Show that this process, which holds the study, lives; False where another one has taken it since."""
    with _guard(root):
        if over.is_set():
            return True
        found = _read(root)
        if found is None:
            _write(root)
        elif found == me():
            os.utime(_path(root))
        return found in (None, me())


def _write(root: Path) -> None:
    write_record(_path(root), {"schema": "assize.holder/1", **asdict(me())})


@dataclass(frozen=True)
class Finding:
    """Who holds a study, or held it, in words and with what can be done, and whether it is alive or gone."""

    message: str
    remedy: str
    state: str

    def __str__(self):
        return f"{self.message} {self.remedy}".rstrip()


def look(root: Path) -> Finding | None:
    """Who holds the study; None if nobody does. Changes nothing."""
    found = _read(root)
    if found is None and not _path(root).exists():
        return None
    if found and _state(root, found) == ALIVE:
        return Finding(f"{root.name} is being run by {found}.", _remedy(root, found), ALIVE)
    who = str(found) if found else f"its record, {_path(root)}, cannot be read"
    return Finding(f"The last run of {root.name} was cut off ({who}).", "The next one removes its locks.", GONE)


def clear_if_gone(root: Path) -> Finding | None:
    """As ``look``; of a holder that is gone, the record and Snakemake's locks on the study's files are removed."""
    me()
    if not _path(root).exists():
        return None
    with _guard(root):
        found = look(root)
        if found and found.state == GONE:
            _remove_snakemake_locks(root)
            _path(root).unlink(missing_ok=True)
            return replace(found, remedy="Its locks are removed.")
    return found


def _remedy(root: Path, found: Holder) -> str:
    ways = f"Wait for it, or end it: python scripts/controller.py cancel {root}, or Ctrl-C where it runs."
    if found.host == me().host and found.user == me().user:
        return ways
    return f"{ways} If it is gone, it stops counting {SILENT_S // 60} minutes after its last sign of life."


def _state(root: Path, holder: Holder) -> str:
    mine = me()
    asked = holder.host != mine.host and holder.job not in (None, mine.job) and holder.user == mine.user
    lives = _job_lives(holder.job) if asked else None
    return state_of(holder, mine, _start_of(holder.pid), lives, _silent_s(root))


def _silent_s(root: Path) -> float:
    """Seconds since the record was touched, both by the clock of its file system: those of hosts differ."""
    try:
        with tempfile.TemporaryFile(dir=root) as file:
            now = os.fstat(file.fileno()).st_mtime
    except PermissionError:
        now = time.time()
    try:
        # Opened, since what a network file system knows of a closed file may be old.
        with open(_path(root)) as record:
            return now - os.fstat(record.fileno()).st_mtime
    except FileNotFoundError:
        return SILENT_S


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
