"""Snakemake executor ``submitit``: each job, or group of jobs, is one task that submitit runs in Slurm.

The task runs Snakemake's own command for the job under the local executor, inside the allocation: a group of 25 small
grades pays for one start of Snakemake. Jobs of one shape that are ready together go out as one job array. With
``--submitit-cluster local`` the same tasks are processes of this machine.
"""

import asyncio
import copy
import os
import shutil
import threading
import time
import uuid
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase
from submitit.core.utils import FailedJobError, FailedSubmissionError

from . import journal, node, slurm
from .groups import Groups, members_of, outputs_of
from .journal import Task
from .queues import Patience, open_queue
from .slurm import Outcome, Shape, shape_of

# Seconds: between the first looks at jobs that were just submitted. Then less and less often.
FIRST_WAIT = 0.5


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    cluster: str = field(
        default="auto",
        metadata={"help": "slurm, local (processes of this machine), or auto: Slurm where there is an sbatch."},
    )
    partition: str | None = field(
        default=None, metadata={"type": str, "help": "Slurm partition; resource slurm_partition."}
    )
    account: str | None = field(default=None, metadata={"type": str, "help": "Slurm account; resource slurm_account."})
    qos: str | None = field(default=None, metadata={"type": str, "help": "Slurm quality of service; resource qos."})
    constraint: str | None = field(default=None, metadata={"type": str, "help": "Node features; resource constraint."})
    extra: str | None = field(
        default=None, metadata={"type": str, "help": "More sbatch flags, long ones; resource slurm_extra."}
    )
    modules: str | None = field(
        default=None,
        metadata={"type": str, "help": "Lines of bash that a job runs on its node first, such as module load."},
    )
    scratch: str | None = field(
        default=None,
        metadata={"type": str, "help": "Directory on the node for temporary files, such as /scratch/$USER."},
    )
    lost_after: int = field(
        default=300,
        metadata={"help": "Seconds after which a job that Slurm answers not to know has failed.", "type": int},
    )

    def __post_init__(self):
        if self.cluster not in ("slurm", "local", "auto"):
            raise WorkflowError(f"--submitit-cluster {self.cluster}: one of slurm, local and auto")
        try:
            node.check_scratch(self.scratch or "")
        except ValueError as error:
            raise WorkflowError(str(error)) from None


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    auto_deploy_default_storage_provider=False,
)


def clear_allocation(environment: dict) -> None:
    """Forget the job that the controller itself may run in: sbatch would take its limits for wishes. Which Slurm is
    meant, and which of its clusters, stays."""
    for name in list(environment):
        ours = name.startswith(("SLURM_", "SLURMD_", "SBATCH_", "SRUN_"))
        if ours and name not in ("SLURM_CONF", "SLURM_CLUSTERS"):
            del environment[name]


class Executor(RemoteExecutor):
    def __init__(self, workflow, logger):
        # All of this before the base class starts the thread that looks at jobs.
        clear_allocation(os.environ)
        self.queue = open_queue(workflow.executor_settings.cluster)
        self.groups = Groups(workflow)
        self.run_id = uuid.uuid4().hex[:8]
        self.folder = journal.ROOT / f"{time.strftime('%Y-%m-%dT%H%M%S')}-{self.run_id}"
        self.batches = 0
        # Held while something is submitted; once ``stopping`` is set, nothing is.
        self.gate = threading.Lock()
        self.stopping = False
        self.closing = False
        self.doubtful: set[str] = set()  # names of batches that Slurm may have taken though sbatch failed
        self.waiting: list = []  # jobs to submit
        self.patience: dict[Shape, Patience] = {}
        self.begun: set = set()  # jobs that were submitted, or found to run, at least once
        self.live: dict[str, Task] = {}  # tasks that are not over
        self.cpus: dict[str, int] = {}  # by task id
        self.inherited: list[Task] | None = None  # of a controller that died; None until looked for
        self.unknown_since: dict[str, float] = {}
        self.task_cores = 1
        self.wait_s = FIRST_WAIT
        self.wake = threading.Event()
        self.outage = False
        self.told: set[str] = set()  # reasons of pending jobs that were warned of
        super().__init__(workflow, logger)

    # ------------------------------------------------------------ the command of a task

    @property
    def cores(self):
        return self.task_cores

    def get_job_args(self, job):
        """Within the task: the CPUs and other resources that the task has, and the local executor, whatever profile the
        environment names. One failed member of a group does not stop the others."""
        limits = self.get_resource_declarations(job)
        return (
            f"{super().get_job_args(job)} {limits} --executor local --profile none --workflow-profile none --keep-going"
        )

    def script_of(self, job, folder: Path) -> str:
        self.task_cores = max(1, job.threads)
        settings = self.workflow.executor_settings
        return node.script(str(folder), settings.modules, settings.scratch, os.getcwd(), self.format_job_exec(job))

    # ------------------------------------------------------------ submission

    def run_jobs(self, jobs):
        for job in jobs:
            self.run_job_pre(job)
        with self.gate:
            found = [(job, tasks) for job in jobs if (tasks := self.inherited_for(job))]
            self.end_outdated(found)
            for job, tasks in found:
                self.attach(job, tasks)
            attached = {job for job, _ in found}
            self.waiting += [job for job in jobs if job not in attached]
            self.submit_waiting()

    def run_job(self, job):
        self.run_jobs([job])

    def inherited_for(self, job) -> list[Task]:
        """The tasks of a dead controller that make files of this job. Once only: what they leave is submitted."""
        if self.inherited is None:
            self.inherited = self.find_inherited()
        if job in self.begun:
            return []
        outputs = outputs_of(job)
        return [task for task in self.inherited if task.outputs & outputs]

    def end_outdated(self, found: list) -> None:
        """Cancel the tasks that make a file otherwise than this run would, as after a change of params."""
        outdated = {}
        for job, tasks in found:
            for member in members_of(job):
                contents = self.groups.contents(member)
                old = {task.id: task for task in tasks if task.makes_otherwise(contents)}
                if old:
                    self.groups.outdated.add(member)
                    outdated |= old
        if outdated:
            names = " ".join(outdated)
            self.logger.warning(f"Jobs of an earlier run make files otherwise than this run would: cancelling {names}.")
            # One that is left is waited for, as the others are; nothing that it makes is taken.
            self.queue.cancel(outdated.values())

    def attach(self, job, tasks: list[Task]) -> None:
        """Have a job wait for the tasks of a controller that died."""
        self.begun.add(job)
        names = ",".join(task.id for task in tasks)
        self.logger.info(f"Job {names} of an earlier run makes these files: waiting for it.")
        # Not registered: that would mark as incomplete what the task has completed since.
        self.report_job_submission(
            SubmittedJobInfo(job, external_jobid=names, aux={"tasks": tasks, "own": False, "made": set()}),
            register_job=False,
        )

    def find_inherited(self) -> list[Task]:
        """Tasks that still run and make files of this workflow. This run holds the lock on those files, so that whoever
        submitted them is dead."""
        if not journal.ROOT.exists():
            return []
        named = {}
        for id, _, name in self.queue.listing() or []:
            named.setdefault(name, []).append(id)
        ours = {str(file) for job in self.dag.jobs for file in job.output}
        tasks = [task for task in journal.read_batches(journal.ROOT, self.queue.cluster, named) if task.outputs & ours]
        if not tasks:
            return []
        answer = self.queue.outcomes(tasks)
        outcomes = answer[0] if answer else {}
        for task in tasks:
            # In an outage it is taken for alive; the usual looks at jobs will tell.
            outcome = outcomes.get(task.id, Outcome.ACTIVE)
            if outcome is Outcome.ACTIVE:
                self.live[task.id] = task
            else:
                journal.forget(task, keep_log=outcome is not Outcome.SUCCESS)
        return [task for task in tasks if task.id in self.live]

    def submit_waiting(self) -> None:
        """Submit what waits, in batches of one shape. Called with the gate held."""
        if self.doubtful:
            if self.queue.listing() is None:
                return
            for name in self.doubtful:
                self.queue.cancel_named(name)
            self.doubtful.clear()
        ready, self.waiting = self.waiting, []
        parts = []
        for job in ready:
            part = self.groups.remaining(job) if job in self.begun else job
            if part is None:
                self.report_job_success(SubmittedJobInfo(job))
            else:
                parts.append((self.shape(part), job, part))
        parts.sort(key=lambda entry: repr(entry[0]))
        for shape, entries in groupby(parts, key=lambda entry: entry[0]):
            entries = list(entries)
            patience = self.patience.setdefault(shape, Patience(self.queue.largest_batch))
            while entries:
                size = patience.largest
                self.submit_batch(shape, patience, entries[:size])
                entries = entries[size:]

    def shape(self, job) -> Shape:
        settings = self.workflow.executor_settings
        limit = None
        if job.is_group():
            limit = self.queue.limit(job.resources.get("slurm_partition") or settings.partition)
        try:
            return shape_of(job.resources, job.threads, settings, limit)
        except ValueError as error:
            raise WorkflowError(str(error)) from None

    def submit_batch(self, shape: Shape, patience: Patience, entries: list) -> None:
        used = sum(self.cpus.values())
        no_room = self.queue.capacity is not None and used and used + shape.cpus > self.queue.capacity
        if self.stopping or no_room or time.monotonic() < patience.until:
            self.waiting += [job for _, job, _ in entries]
            return
        self.batches += 1
        name = f"{label(entries[0][1])}-{self.run_id}-{self.batches}"
        folder = (self.folder / str(self.batches)).absolute()
        folder.mkdir(parents=True)
        contents = [self.groups.contents(part) for _, _, part in entries]
        scripts = [folder / f"{index}.sh" for index in range(len(entries))]
        for script, (_, _, part) in zip(scripts, entries, strict=True):
            script.write_text(self.script_of(part, folder))
            # Marked before a task can end, and only what it makes: what is done of a group stays done.
            part.register()
            self.note(part)
        journal.write_batch(folder, name, self.queue.cluster, contents, ids=None)
        try:
            ids = self.queue.submit(folder, name, shape, scripts)
        except (OSError, FailedJobError, FailedSubmissionError) as error:
            self.submission_failed(name, folder, patience, entries, error)
            return
        patience.accepted()
        journal.write_batch(folder, name, self.queue.cluster, contents, ids)
        self.wait_s = FIRST_WAIT
        self.wake.set()
        for index, (id, (_, job, part)) in enumerate(zip(ids, entries, strict=True)):
            task = Task(id, index, folder, contents[index], name)
            self.live[id], self.cpus[id] = task, shape.cpus
            self.begun.add(job)
            self.groups.outdated.difference_update(members_of(part))
            aux = {"tasks": [task], "own": True, "members": len(members_of(part))}
            self.report_job_submission(SubmittedJobInfo(job, external_jobid=id, aux=aux), register_job=False)

    def note(self, job) -> None:
        """Write Snakemake's note of how files are made as soon as they are on their way: when they are done, perhaps no
        controller lives, and an old note would have them made again. Until then they stay marked as incomplete."""
        persistence = copy.copy(self.workflow.persistence)
        persistence._unmark_incomplete = lambda key: None
        for member in members_of(job):
            self.workflow.async_run(persistence.finished(member))

    def submission_failed(self, name: str, folder: Path, patience: Patience, entries: list, error: Exception) -> None:
        """Slurm may have taken the jobs all the same, as when its answer came too late. While it does not answer at
        all, or refuses what it will take later, that is no failure of the jobs."""
        (folder / journal.RECORD).unlink()
        jobs = [job for _, job, _ in entries]
        # Looked for again before the next submission: it may enter the queue only then.
        self.doubtful.add(name)
        if self.queue.listing() is None:
            self.logger.warning(f"Slurm does not answer: {len(jobs)} jobs wait to be submitted.")
            self.waiting += jobs
            return
        self.queue.cancel_named(name)
        for_good = slurm.REFUSED_FOR_GOOD.search(str(error))
        first = patience.since is None
        if not for_good and patience.refused(len(jobs), time.monotonic(), busy=bool(self.live)):
            shutil.rmtree(folder)
            self.waiting += jobs
            if first:
                self.logger.warning(f"Slurm refuses {len(jobs)} jobs for now, they are tried again: {error}")
            return
        self.logger.error(f"The submission of {name}, {len(jobs)} jobs, failed: {error}")
        for job in jobs:
            if job in self.begun:
                self.keep_done(job)
            self.report_job_error(SubmittedJobInfo(job))

    # ------------------------------------------------------------ the end of tasks

    async def check_active_jobs(self, active_jobs):
        # A run that has nothing to do is over before its first look, and has no threads left to look with.
        if not active_jobs and not self.waiting:
            return
        # In a thread of its own, since Snakemake's own coroutines are run to their end on the way.
        for info in await asyncio.to_thread(self.still_active, active_jobs):
            yield info

    def still_active(self, infos: list[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
        """One round: look at all tasks, report what ended, submit what can be. Gives the jobs that go on."""
        tasks = {task.id: task for info in infos for task in info.aux["tasks"]}
        outcomes, words = self.look(list(tasks.values()))
        going = []
        for info in infos:
            if not info.aux["own"]:
                made = [task.outputs for task in info.aux["tasks"] if outcomes[task.id] is Outcome.SUCCESS]
                info.aux["made"].update(*made)
            info.aux["tasks"] = [task for task in info.aux["tasks"] if outcomes[task.id] is Outcome.ACTIVE]
            if info.aux["tasks"] or not (info.aux["own"] or self.is_seen(info)):
                going.append(info)
            elif info.aux["own"]:
                self.report_end(info, outcomes, words, tasks)
            else:
                # It waited for a dead controller's tasks. They may have made all of its files, or some.
                with self.gate:
                    self.waiting.append(info.job)
        with self.gate:
            for id, task in tasks.items():
                if outcomes[id] is not Outcome.ACTIVE:
                    journal.forget(task, keep_log=outcomes[id] is not Outcome.SUCCESS)
            self.submit_waiting()
        return going

    def is_seen(self, info: SubmittedJobInfo) -> bool:
        """Whether this node sees what a dead controller's tasks made: on a shared file system perhaps only after the
        time of ``latency-wait``."""
        now = time.monotonic()
        until = info.aux.setdefault("until", now + self.workflow.execution_settings.latency_wait)
        made = {member for member in members_of(info.job) if outputs_of(member) <= info.aux["made"]}
        made -= self.groups.outdated
        return now >= until or made <= self.groups.done(made)

    def look(self, tasks: list[Task]) -> tuple[dict[str, Outcome], dict[str, str]]:
        """What became of the tasks, and the queue's words for it. Who was unknown for too long is taken for lost."""
        answer = self.queue.outcomes(tasks) if tasks else ({}, {})
        if (answer is None) != self.outage:
            self.outage = answer is None
            self.logger.warning("Slurm does not answer: waiting." if self.outage else "Slurm answers again.")
        self.warn_of_hopeless()
        if answer is None:
            return {task.id: Outcome.ACTIVE for task in tasks}, {}
        outcomes, words = answer
        now = time.monotonic()
        for task in tasks:
            if outcomes[task.id] is not Outcome.UNKNOWN:
                self.unknown_since.pop(task.id, None)
                continue
            # A slurmctld that crashed forgets its youngest jobs. They run on, and say themselves how they ended.
            succeeded = task.succeeded()
            unknown_s = now - self.unknown_since.setdefault(task.id, now)
            if succeeded is None and unknown_s < self.workflow.executor_settings.lost_after:
                outcomes[task.id] = Outcome.ACTIVE
            else:
                outcomes[task.id] = Outcome.SUCCESS if succeeded else Outcome.FAILURE
        for task in tasks:
            if outcomes[task.id] is not Outcome.ACTIVE:
                self.live.pop(task.id, None)
                self.cpus.pop(task.id, None)
                self.wait_s = FIRST_WAIT
        return outcomes, words

    def warn_of_hopeless(self) -> None:
        for job, reason in self.queue.hopeless.items():
            if job in self.live and reason not in self.told:
                self.told.add(reason)
                self.logger.warning(f"Job {job} will not start by itself ({reason}): {slurm.remedy(reason)}.")

    def report_end(self, info: SubmittedJobInfo, outcomes: dict, words: dict, tasks: dict[str, Task]) -> None:
        id, job = info.external_jobid, info.job
        if outcomes[id] is Outcome.SUCCESS:
            self.report_job_success(info)
            return
        if self.stopping:
            return
        log = tasks[id].log
        self.logger.error(f"Job {id} of {label(job)}: {words[id]}. The end of its log, {log}:\n{tail(log)}")
        if self.goes_on(info, words[id]):
            self.logger.info(f"Job {id} got some of its work done: the rest is submitted again.")
            with self.gate:
                self.waiting.append(job)
            return
        self.keep_done(job)
        self.report_job_error(info, msg=f"Job {id}: {words[id]}. ")

    def goes_on(self, info: SubmittedJobInfo, words: str) -> bool:
        """Whether a group that was ended from outside came nearer to its end: then that was no attempt of its jobs."""
        from_outside = info.job.is_group() and slurm.word_of(words) in slurm.FROM_OUTSIDE
        return from_outside and 0 < len(self.groups.unfinished(info.job)) < info.aux["members"]

    def keep_done(self, job) -> None:
        """Before a group's failure is reported: nothing that is done of it is removed, and after its last attempt what
        follows on that runs all the same. To Snakemake a group is done as a whole, or not at all."""
        done = self.groups.spare(job)
        if not done or job.attempt <= job.restart_times:
            return
        part, scheduler = self.groups.part(job, done), self.workflow.scheduler
        # As the scheduler does it, which looks at the DAG with this lock held.
        with scheduler._lock:
            self.dag.register_running({part})
            self.workflow.async_run(part.postprocess())
            self.workflow.async_run(self.dag.finish(part))
            scheduler.finished_jobs += len(part)

    async def sleep(self):
        """From half a second up to ``seconds-between-status-checks``: a small study need not wait."""
        until = time.monotonic() + self.wait_s
        while not self.closing and not self.wake.is_set() and time.monotonic() < until:
            await asyncio.sleep(0.05)
        self.wake.clear()
        most = self.workflow.remote_execution_settings.seconds_between_status_checks
        self.wait_s = min(self.wait_s * 1.5, max(most, FIRST_WAIT))

    # ------------------------------------------------------------ the end of the run

    def shutdown(self):
        self.closing = True
        self.wake.set()
        super().shutdown()

    def cancel(self):
        """Submit nothing more, then end what was submitted, and look that nothing of it is left."""
        self.stopping = True
        with self.gate:
            self.waiting.clear()
        tasks = list(self.live.values())
        left = self.queue.cancel(tasks, self.run_id)
        if left:
            self.logger.error(f"These jobs could not be cancelled: {' '.join(left)}")
        for task in tasks:
            if task.id not in left:
                journal.forget(task, keep_log=True)
        self.shutdown()

    def cancel_jobs(self, active_jobs):
        """Not used: the base class would cancel what is not being looked at just now."""


def tail(log: Path, characters=3000) -> str:
    try:
        return log.read_text(errors="replace")[-characters:]
    except OSError as error:
        return f"(none: {error.strerror})"


def label(job) -> str:
    """The part of the job's name in squeue that says what it is."""
    return job.groupid if job.is_group() else job.rule.name
