"""Where tasks run: in Slurm, or as processes of this machine. Both submit, say what became of it, and cancel."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
import submitit

from . import slurm
from .journal import Task
from .slurm import Outcome, Shape


def open_queue(cluster: str) -> "SlurmQueue | LocalQueue":
    """``auto`` is Slurm where there is an sbatch."""
    if cluster == "auto":
        cluster = "slurm" if shutil.which("sbatch") else "local"
    return {"slurm": SlurmQueue, "local": LocalQueue}[cluster]()


def submit_all(executor: submitit.Executor, scripts: list[Path]) -> list[submitit.Job]:
    """Submit each script as a task, all at once: under Slurm, more than one are one array.

    The task is a function of the standard library: a job imports nothing of Snakemake before Snakemake itself starts.
    """
    with executor.batch():
        jobs = [executor.submit(subprocess.check_call, ["bash", str(script)]) for script in scripts]
    return jobs


class Patience:
    """With a Slurm that refuses a batch for now, because the queue is full or its controller is busy: the same jobs are
    tried again, after ever longer waits and in batches of half the size, since an array may be what is too much."""

    # Seconds. A refusal that outlasts a restart of Slurm is taken to be for good.
    most = 600
    longest_wait = 60

    def __init__(self, largest: int):
        self.largest = largest
        self.since = None
        self.wait = 0.5
        self.until = 0.0

    def refused(self, size: int, now: float, busy: bool) -> bool:
        """Whether to try again. ``busy`` says that jobs of this run are in the queue: when they end there is room."""
        if self.since is None or busy:
            self.since = now
        self.largest = max(1, size // 2)
        self.wait = min(self.wait * 2, self.longest_wait)
        self.until = now + self.wait
        return now - self.since < self.most

    def accepted(self) -> None:
        """The size stays: what was too much once will be again."""
        self.since, self.wait = None, 0.5


class SlurmQueue:
    cluster = "slurm"
    # Slurm keeps the queue.
    capacity = None
    # A job that squeue no longer lists may stay "running" in accounting for ever; look at least this often.
    seconds_between_queue_checks = 30
    # Slurm knows of the end of a job within this time, or not at all.
    seconds_to_end = 15

    def __init__(self):
        self._limits = None
        self._largest_batch = None
        self._last_listing = 0.0
        # Job -> the reason that it pends for, of reasons that waiting does not help.
        self.hopeless: dict[str, str] = {}

    def limit(self, partition: str | None) -> int | None:
        """The longest time of a job in minutes, or None where there is none or it cannot be found out."""
        if self._limits is None:
            self._limits = slurm.parse_limits(slurm.run(["sinfo", "--noheader", "--format=%P|%l"]) or "")
        # Several partitions can be named: the job goes to whichever starts it first.
        limits = [self._limits.get(name) for name in partition.split(",")] if partition else [self._limits.get(None)]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def largest_batch(self) -> int:
        """Tasks of an array: by Slurm's default at most 1001, and what this Slurm allows."""
        if self._largest_batch is None:
            size = slurm.parse_array_size(slurm.run(["scontrol", "show", "config"]) or "")
            self._largest_batch = min(500, size or 500)
        return self._largest_batch

    def submit(self, folder: Path, name: str, shape: Shape, scripts: list[Path]) -> list[str]:
        executor = submitit.SlurmExecutor(folder)
        executor.update_parameters(job_name=name, array_parallelism=len(scripts), **shape.parameters())
        return [job.job_id for job in submit_all(executor, scripts)]

    def listing(self) -> list[tuple[str, str, str]] | None:
        """(Id, state, name) of what squeue lists, or None where it does not answer."""
        text = slurm.run(slurm.queue_command())
        self.hopeless = slurm.parse_hopeless(text or "")
        return None if text is None else slurm.parse_queue(text)

    def outcomes(self, tasks: Iterable[Task]) -> tuple[dict[str, Outcome], dict[str, str]] | None:
        """What became of each task, and Slurm's word for it; None while neither sacct nor squeue answers."""
        tasks = list(tasks)
        ids = [task.id for task in tasks]
        queued, listing = {}, None
        text = slurm.run(slurm.accounting_command(ids))
        names = {task.name for task in tasks}
        rows = slurm.parse_accounting(text or "", None if "" in names else names)
        accounted = {id: slurm.state_of(id, rows) for id in ids}
        # Most rounds need no squeue: only what accounting does not know, or calls a failure, is looked up there.
        doubtful = any(not slurm.is_active(state) and not slurm.is_success(state) for state in accounted.values())
        if doubtful or time.monotonic() - self._last_listing > self.seconds_between_queue_checks:
            self._last_listing = time.monotonic()
            listing = self.listing()
            queued = {job: state for job, state, _ in listing or []}
        if text is None and listing is None:
            return None
        # "Unknown" is said only where both were asked and answered, or accounting is missing for good or for now.
        found = {id: slurm.outcome(accounted[id], queued.get(id), listing is not None) for id in ids}
        words = {id: accounted[id] or queued.get(id) or "unknown to Slurm" for id in ids}
        if listing is not None:
            self._end_ghosts(tasks, queued, found, words)
        return found, words

    def _end_ghosts(self, tasks: Iterable[Task], queued: dict, found: dict, words: dict) -> None:
        """A slurmctld that crashed may wait for jobs that ended meanwhile. Or it starts them again, which fails, and
        holds them for ever. What is over leaves the queue.

        Where a task says itself that it succeeded, that stands. That it failed is believed of no job that lives: it is
        what a task says when Slurm preempts it, and starts it again later.
        """
        for task in tasks:
            state = queued.get(task.id)
            held = state in slurm.HELD
            if not held and not (found[task.id] is Outcome.ACTIVE and slurm.is_active(state)):
                continue
            succeeded = task.succeeded(0 if held else self.seconds_to_end)
            if held or succeeded:
                found[task.id] = Outcome.SUCCESS if succeeded else Outcome.FAILURE
                words[task.id] = f"{state} in the queue, over by its own word" if succeeded else state
                slurm.run(["scancel", task.id])

    def cancel(self, tasks: Iterable[Task], run: str | None = None) -> list[str]:
        """Cancel the tasks, and whatever else of the run is in the queue; gives the ids that are left after all.

        What is of the run and no task is what an interrupted sbatch submitted: only its name is known. It may enter the
        queue after a first look, so that two in a row must find nothing.
        """
        ids = {task.id for task in tasks}
        left, empty = sorted(ids), 0
        deadline = time.monotonic() + 120
        while empty < 2 and time.monotonic() < deadline:
            if left:
                # By task, not by array: tasks of an attached array that make nothing of ours go on.
                slurm.run(["scancel", *left])
            time.sleep(0.5)
            left = self._left(ids, run)
            empty = 0 if left else empty + 1
        return left

    def cancel_named(self, name: str) -> None:
        """Cancel what an sbatch submitted that failed nonetheless, as on a time-out of its answer."""
        for job in {job.split("_")[0] for job, state, other in self.listing() or [] if other == name}:
            slurm.run(["scancel", job])

    def _left(self, ids: set[str], run: str | None) -> list[str]:
        listing = self.listing()
        if listing is None:
            return sorted(ids)
        active = [(job, name) for job, state, name in listing if slurm.is_active(state)]
        return [job for job, name in active if job in ids or (run and f"-{run}-" in name)]


class LocalQueue:
    """Processes that submitit starts. It would start all at once: ``capacity`` makes the others wait."""

    cluster = "local"
    largest_batch = 1
    capacity = os.cpu_count()

    def __init__(self):
        self.hopeless: dict[str, str] = {}
        # submitit's jobs, since a process that has ended stays a zombie until they look at it.
        self._jobs = {}

    def limit(self, partition: str | None) -> None:
        return None

    def submit(self, folder: Path, name: str, shape: Shape, scripts: list[Path]) -> list[str]:
        executor = submitit.LocalExecutor(folder)
        # signal_delay_s=0: a task is ended at its limit, and not before.
        executor.update_parameters(timeout_min=shape.minutes or 365 * 24 * 60, signal_delay_s=0, stderr_to_stdout=True)
        jobs = submit_all(executor, scripts)
        self._jobs |= {job.job_id: job for job in jobs}
        return [job.job_id for job in jobs]

    def listing(self) -> list:
        return []

    def outcomes(self, tasks: Iterable[Task]) -> tuple[dict[str, Outcome], dict[str, str]]:
        found = {}
        for task in tasks:
            succeeded = task.succeeded()
            if succeeded is None and self._process(task):
                found[task.id] = Outcome.ACTIVE
            else:
                found[task.id] = Outcome.SUCCESS if task.succeeded() else Outcome.FAILURE
        return found, {id: outcome.value for id, outcome in found.items()}

    def cancel(self, tasks: Iterable[Task], run: str | None = None) -> list[str]:
        """End all processes of the tasks. Some start others until they are ended: look until none is left."""
        folders = {str(task.folder) for task in tasks}
        begun = time.monotonic()
        while processes := members(folders):
            if time.monotonic() - begun > 30:
                break
            for process in processes:
                end(process.kill if time.monotonic() - begun > 10 else process.terminate)
            psutil.wait_procs(processes, timeout=1)
        return [str(process.pid) for process in processes]

    def cancel_named(self, name: str) -> None:
        """Nothing: a process that could not be started does not run."""

    def _process(self, task: Task) -> psutil.Process | None:
        """The live process of a task, ours or a dead controller's. A process id alone may be another's by now."""
        if task.id in self._jobs:
            # Looks at the process, and so lets a zombie go.
            self._jobs[task.id].done()
        try:
            process = psutil.Process(int(task.id))
            return process if str(task.folder) in process.cmdline() else None
        except psutil.Error:
            return None


def members(folders: set[str]) -> list[psutil.Process]:
    """The live processes of tasks in these folders, by what submitit gives them: those whose parent is gone too."""
    found = []
    for process in psutil.process_iter():
        try:
            named = folders & {process.environ().get("SUBMITIT_FOLDER"), *process.cmdline()}
            if named and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def end(action) -> None:
    try:
        action()
    except psutil.NoSuchProcess:
        pass
