"""The durable controller: Snakemake itself as a Slurm job that survives its time limit, a preemption and its node.

Before the limit, submitit's warning ends this life of the controller and requeues its job; so does the SIGTERM with
which Slurm announces a preemption. What runs in Slurm goes on meanwhile, and the next life finds it again (see the
executor's journal).

    results/<study>/controller/controller.json   the job, and the command that it runs
                               study.yaml        the config as it was submitted: later changes of the file are not taken
                               <job>_0_log.out   what Snakemake said, in all lives
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from assize import holder
from assize.errors import InfrastructureError, UsageError
from assize.profile import Profile, check_cores, read_profile
from assize.records import ROOT, read_record, write_record
from assize.study import Study, load_config, memory_mb, resolve

DAY = 24 * 60
# Slurm warns this long before the limit, or half the limit before it where that is less.
WARNING_S = 300
# Of the warning, what is left for killing what does not end by itself, and for the requeue.
RESERVE_S = 15
# How long what runs on this node has to end at a preemption: Slurm does not say when it kills.
PREEMPTION_S = 10
# submitit counts lives that end at the limit; a study takes as many as it takes.
MOST_LIVES = 100_000


class Controller:
    """What the Slurm job runs; submitit pickles it. One instance is one life.

    ``grace_s``: seconds that jobs on this node (admission and the census, or all jobs of a study in one allocation)
    have to end when the limit comes near.
    """

    def __init__(self, command: list[str], grace_s: int):
        self.command, self.grace_s = command, grace_s
        self.process = None
        self.told_to_end = False

    def __call__(self) -> None:
        usual = signal.signal(signal.SIGTERM, self._note)
        try:
            self._run()
        finally:
            signal.signal(signal.SIGTERM, usual)

    def _note(self, number, frame) -> None:
        self.told_to_end = True

    def _run(self) -> None:
        # The warning reaches every process of the job, and would end those that do not expect it.
        self.process = subprocess.Popen(self.command, preexec_fn=lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN))
        # Not wait(): the handler of the warning runs in this thread, and waits for the process too.
        while (status := self.process.poll()) != 0:
            if self.told_to_end:
                # Snakemake was told so too, and an end of its own is no failure. A job that Slurm is ending waits for
                # its kill. One that Slurm still calls running is about to be preempted, and not every site has it
                # requeued: this one takes that for its warning, whose handler ends this life.
                if _runs(os.environ.get("SLURM_JOB_ID")):
                    signal.raise_signal(signal.SIGUSR2)
                time.sleep(1)
            elif status is not None:
                raise RuntimeError(f"snakemake exited with status {status}; what it said is above")
            else:
                time.sleep(0.5)

    def checkpoint(self):
        """Called by submitit at the warning: end Snakemake, and say what the next life runs."""
        from submitit.helpers import DelayedSubmission

        if self.process:
            end(self.process.pid, min(PREEMPTION_S, self.grace_s) if self.told_to_end else self.grace_s)
        return DelayedSubmission(Controller(self.command, self.grace_s))


def _runs(job: str | None) -> bool:
    """Whether Slurm says that the job runs, and is not being ended."""
    try:
        state = job and job_state(job)
    except InfrastructureError:
        return False
    return bool(state) and state.word == "RUNNING"


def end(pid: int, grace_s: float) -> None:
    """End Snakemake and what it runs on this node.

    At SIGTERM it starts nothing more and waits for what runs. After ``grace_s`` it is killed, which loses nothing, and
    its jobs get a SIGTERM of their own, to take their sandboxes down.
    """
    import psutil
    from snakemake_executor_plugin_submitit import queues

    try:
        snakemake = psutil.Process(pid)
        snakemake.terminate()
        psutil.wait_procs([snakemake], timeout=grace_s)
        jobs = snakemake.children(recursive=True)
        snakemake.kill()
    except psutil.NoSuchProcess:
        return
    for process in jobs:
        queues.end(process.terminate)
    _, alive = psutil.wait_procs([snakemake, *jobs], timeout=5)
    for process in alive:
        queues.end(process.kill)


# ---------------------------------------------------------------- submission


@dataclass(frozen=True)
class Wishes:
    """What a person asks of ``submit``. What is None is chosen: see ``shape_of``."""

    profile: Path
    config: Path
    targets: tuple[str, ...] = ()
    minutes: int | None = None
    cpus: int | None = None
    memory: str | None = None


def submit(wishes: Wishes) -> tuple[Study, dict]:
    """Submit the controller of a study, and write its record; gives both.

    Raises
    ------
    UsageError : the study or the profile is wrong, or the study is being run.
    InfrastructureError : Slurm does not take the job.
    """
    from filelock import FileLock

    profile = read_profile(wishes.profile)
    study = Study(resolve(load_config(wishes.config), wishes.config, profile.resource_mode))
    if profile.submits:
        check_cores(study.frozen, profile.content.get("cores"))
    folder = study.root / "controller"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock", timeout=60):
        _refuse_a_second(study.root)
        shutil.copyfile(wishes.config, folder / "study.yaml")
        snakemake = Path(sys.executable).parent / "snakemake"
        command = [snakemake, *wishes.targets, "--profile", wishes.profile, "--configfile", folder / "study.yaml"]
        record = {
            "schema": "assize.controller/1",
            "job": _submit(study, wishes, profile, folder, [str(word) for word in command]),
            "submitted": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "command": [str(word) for word in command],
        }
        write_record(folder / "controller.json", record)
    return study, record


def _refuse_a_second(root: Path) -> None:
    record = read_controller(root)
    state = record and job_state(record["job"])
    if state and state.lives:
        hint = f"python scripts/controller.py status {root}, or cancel it first"
        raise UsageError("held", f"{root.name}: its controller is Slurm job {record['job']}, {state.word}", hint)
    if (found := holder.look(root)) and found.state == holder.ALIVE:
        raise UsageError("held", found.message, found.remedy)


def shape_of(wishes: Wishes, submits: bool, allocation: dict, site: dict, longest: int | None):
    """What the controller's job asks Slurm for. Pure.

    A controller that submits needs two CPUs and room for its DAG (measured: 13 kB a job, so 2 GiB hold 100,000); one
    that runs the study in its own allocation needs that allocation. Its limit is a day, or the partition's.
    """
    from snakemake_executor_plugin_submitit.slurm import Shape

    cpus, memory = (2, "2g") if submits else (allocation["cpus"], allocation["memory"])
    return Shape(
        cpus=wishes.cpus or cpus,
        memory_mb=memory_mb(wishes.memory or memory),
        minutes=wishes.minutes or min(DAY, longest or DAY),
        **{key: site.get(key) for key in ("partition", "account", "qos", "constraint")},
        extra=site.get("extra") or "",
    )


def warning_of(minutes: int) -> int:
    """How long before a limit of ``minutes`` Slurm warns, in seconds."""
    return min(WARNING_S, minutes * 60 // 2)


def _submit(study: Study, wishes: Wishes, profile: Profile, folder: Path, command: list[str]) -> str:
    """The id of the Slurm job."""
    import submitit
    from snakemake_executor_plugin_submitit import clear_allocation
    from snakemake_executor_plugin_submitit.node import preamble
    from snakemake_executor_plugin_submitit.queues import SlurmQueue
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    if not shutil.which("sbatch"):
        raise InfrastructureError(
            "no_slurm", "there is no sbatch here", "run snakemake --profile profiles/local instead"
        )
    clear_allocation(os.environ)
    allocation = next(iter(study.benchmarks.values()))["terms"]["allocation"]
    longest = SlurmQueue().limit(profile.site.get("partition"))
    shape = shape_of(wishes, profile.submits, allocation, profile.site, longest)
    warning = warning_of(shape.minutes)
    executor = submitit.SlurmExecutor(folder, max_num_timeout=MOST_LIVES)
    executor.update_parameters(
        **shape.parameters()
        | {
            "job_name": f"assize-{study.name}",
            # The warning goes to steps. A step does not inherit the job's CPUs.
            "use_srun": True,
            "srun_args": [f"--cpus-per-task={shape.cpus}"],
            "signal_delay_s": warning,
            # In an allocation of its own the study's jobs are this one's children: they find what the site sets up.
            "setup": [
                preamble(profile.site.get("modules"), profile.site.get("scratch")),
                f"cd {ROOT}",
                f"export PYTHONPATH={ROOT}/scripts",
            ],
        }
    )
    try:
        return executor.submit(Controller(command, max(1, warning - RESERVE_S))).job_id
    except (OSError, FailedJobError, FailedSubmissionError) as error:
        raise InfrastructureError("not_submitted", f"Slurm did not take the controller: {error}") from None


# ---------------------------------------------------------------- afterwards


@dataclass(frozen=True)
class JobState:
    """Slurm's word for a job's state (``RUNNING``, ``CANCELLED by 0``...), and whether it will still do something."""

    word: str
    lives: bool


def read_controller(root: Path) -> dict | None:
    """The record of the last controller of the study at ``root``, or None if none was submitted."""
    path = root / "controller" / "controller.json"
    return read_record(path, "controller") if path.exists() else None


def log_of(root: Path, record: dict) -> Path:
    return root / "controller" / f"{record['job']}_0_log.out"


def told(root: Path, record: dict, state: "JobState | None") -> str:
    """One line about a controller."""
    word = state.word if state else "no longer known to Slurm"
    return (
        f"Controller: Slurm job {record['job']}, {word}, submitted {record['submitted']}; log: {log_of(root, record)}"
    )


def job_state(job: str) -> JobState | None:
    """The state of one Slurm job; None of one that Slurm no longer knows.

    Raises
    ------
    InfrastructureError : Slurm does not answer.
    """
    from snakemake_executor_plugin_submitit import slurm

    queued = slurm.run(slurm.queue_command())
    # Without it nobody knows whether the job lives: accounting also calls running what has ended, or waits again.
    if queued is None:
        raise InfrastructureError("no_answer", "squeue does not answer", "try again later")
    accounted = slurm.run(slurm.accounting_command([job]))
    queue = {id: state for id, state, _ in slurm.parse_queue(queued)}
    account = slurm.state_of(job, slurm.parse_accounting(accounted or ""))
    # The queue is the quicker one to know: a job that is requeued has ended in accounting.
    word = queue.get(job) or account
    return word and JobState(word.split("|")[0], job in queue and slurm.is_active(queue[job]))


def study_tasks(root: Path) -> list:
    """The Slurm jobs of a study's own jobs that live: of those in the executor's journal, where one that ended while no
    controller lived stays until the next that submits."""
    from snakemake_executor_plugin_submitit import journal, slurm
    from snakemake_executor_plugin_submitit.queues import SlurmQueue
    from snakemake_executor_plugin_submitit.slurm import Outcome

    named = {}
    for id, _, name in slurm.parse_queue(slurm.run(slurm.queue_command()) or ""):
        named.setdefault(name, []).append(id)
    below = f"{root}/"
    tasks = [
        task
        for task in journal.read_batches(journal.ROOT, "slurm", named)
        if any(output.startswith(below) for output in task.outputs)
    ]
    answer = SlurmQueue().outcomes(tasks) if tasks else None
    return [task for task in tasks if answer is None or answer[0][task.id] is Outcome.ACTIVE]


def cancel(root: Path) -> dict:
    """End the controller of a study, then the jobs that it submitted.

    Returns
    -------
    ``controller`` and ``jobs``, the ids that were cancelled, and ``left``, those that Slurm did not end.

    Raises
    ------
    UsageError : no controller of the study lives, but someone else runs it.
    """
    from snakemake_executor_plugin_submitit import journal, slurm
    from snakemake_executor_plugin_submitit.queues import SlurmQueue

    record = read_controller(root)
    state = record and job_state(record["job"])
    controller = None
    if state and state.lives:
        controller = record["job"]
        deadline = time.monotonic() + 120
        while (state := job_state(controller)) and state.lives:
            if time.monotonic() > deadline:
                raise InfrastructureError("not_cancelled", f"Slurm job {controller} is still {state.word}")
            # More than once: a job that is just being requeued may outlive the first.
            slurm.run(["scancel", controller])
            time.sleep(1)
    if (found := holder.clear_if_gone(root)) and found.state == holder.ALIVE:
        raise UsageError("held", found.message, found.remedy)
    tasks = study_tasks(root)
    left = SlurmQueue().cancel(tasks) if tasks else []
    for task in tasks:
        if task.id not in left:
            journal.forget(task, keep_log=True)
    return {"controller": controller, "jobs": sorted(task.id for task in tasks if task.id not in left), "left": left}
