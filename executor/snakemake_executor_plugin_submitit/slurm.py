"""What Slurm is asked, and what its answers mean. The builders and parsers are pure; only ``run`` starts a program."""

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from enum import Enum

from submitit.slurm.slurm import read_job_id

# Every state that ends a job, by `man sacct`. All others, and what a later Slurm may add, are states of a live job: if
# one of them is an end after all, the job leaves squeue and is lost there (see ``outcome``).
FAILED = frozenset(
    ["BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"]
    + ["REVOKED", "TIMEOUT", "SPECIAL_EXIT", "REQUEUE_HOLD"]
)
COMPLETED = "COMPLETED"
# Why a job is held in the queue by Slurm itself, for ever: it could not be started again. Nobody will release it.
HELD_FOR_EVER = ("launch_failed_requeued_held", "JobHoldMaxRequeue")
# In squeue, of a job that is there and will not start.
HELD = ("LAUNCH_FAILED", "SPECIAL_EXIT", "REQUEUE_HOLD")
# Ends that say nothing of what ran in the job. Who cancels a job means that job, and that counts as its failure.
FROM_OUTSIDE = ("BOOT_FAIL", "DEADLINE", "NODE_FAIL", "PREEMPTED", "TIMEOUT")
# Reasons of a pending job that no passing of time resolves, and what does. An administrator may, so it is waited for.
HOPELESS = {
    r"(QOS|Assoc)\w*WallDuration\w*|PartitionTimeLimit": (
        "ask for less time (runtime, group-components), or set another submitit-partition or submitit-qos"
    ),
    r"(QOS|Assoc)Max\w+PerJob(Limit)?|PartitionNodeLimit": (
        "ask for less, or set another submitit-account, submitit-qos or submitit-partition"
    ),
    "BadConstraints": "correct submitit-constraint",
    "InvalidAccount": "correct submitit-account",
    "InvalidQOS": "correct submitit-qos",
    "AccountNotAllowed|QOSNotAllowed": "set another submitit-account, submitit-qos or submitit-partition",
    "JobHeldUser|JobHeldAdmin": "scontrol release it, or have it released",
    "DependencyNeverSatisfied": "correct submitit-extra",
}
# What sbatch says of a job that it will never take. Anything else may pass: a full queue, a controller that is busy.
REFUSED_FOR_GOOD = re.compile(
    r"invalid(?! (job array|auth|job credential))|unrecognized|not permitted|permission denied|can ?not be satisfied"
    r"|configuration (is )?not available|more processors requested",
    re.IGNORECASE,
)


class Outcome(Enum):
    ACTIVE = "active"
    SUCCESS = "success"
    FAILURE = "failure"
    # Slurm answered, and does not know the job.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Shape:
    """What a job asks Slurm for. Jobs of one shape can go out as one array. Memory in MiB, time in minutes."""

    cpus: int
    memory_mb: int | None
    minutes: int | None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    extra: str = ""

    def parameters(self) -> dict:
        """The parameters of submitit's SlurmExecutor; what is None is left to Slurm."""
        return {
            "cpus_per_task": self.cpus,
            "mem": None if self.memory_mb is None else f"{self.memory_mb}M",
            "time": self.minutes,
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            # After a preemption or the loss of a node, Slurm starts the job again under the same id.
            "additional_parameters": {"requeue": True} | parse_flags(self.extra),
            # No step: srun adds its start-up to each job, and submitit's signal before the time limit, which goes to
            # steps, would end a short job as soon as it starts. At the limit the job gets SIGTERM in any case.
            "use_srun": False,
            "stderr_to_stdout": True,
            "wckey": None,
        }


def shape_of(resources, threads: int, settings, limit: int | None = None) -> Shape:
    """The shape of a job: what the job says goes before what the executor's settings say.

    ``limit`` is the longest time that the partition allows, in minutes, and is given for groups only. Snakemake adds
    up the runtimes of what a group runs one after another, and Slurm would never start a job beyond the limit. A group
    that is cut off at the limit loses one member's work: a retry leaves out what is done.
    """

    def text(resource, setting):
        value = resources.get(resource)
        return str(value) if value not in (None, "") else setting

    minutes = resources.get("runtime")
    minutes = int(minutes) if minutes else None
    if limit is not None and minutes is not None:
        minutes = min(minutes, limit)
    memory = resources.get("mem_mb")
    return Shape(
        cpus=max(1, int(threads)),
        memory_mb=int(memory) if memory else None,
        minutes=minutes,
        partition=text("slurm_partition", settings.partition),
        account=text("slurm_account", settings.account),
        qos=text("qos", settings.qos),
        constraint=text("constraint", settings.constraint),
        extra=text("slurm_extra", settings.extra) or "",
    )


def parse_flags(text: str) -> dict:
    """``--nice=10 --exclusive --gres gpu:1`` as submitit takes it. ValueError: a flag that is none to give here."""
    flags, last = {}, None
    for word in shlex.split(text):
        if word.startswith("--") and len(word) > 2:
            last, equals, value = word[2:].partition("=")
            flags[last] = value if equals else True
            last = None if equals else last
        elif last is not None and not word.startswith("-"):
            flags[last], last = word, None
        else:
            raise ValueError(f"slurm_extra: {word!r} in {text!r}: only --name, --name=value are understood")
    if "job-name" in flags:
        raise ValueError(
            f"slurm_extra: --job-name in {text!r}: jobs are found by the name that they are given; omit it"
        )
    return flags


def parse_minutes(text: str) -> int | None:
    """Minutes of Slurm's ``days-hours:minutes:seconds``; None where there is no limit."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip())
    if not found:
        return None
    days, hours, minutes, _ = (int(part or 0) for part in found.groups())
    return (days * 24 + hours) * 60 + minutes


def parse_limits(text: str) -> dict[str | None, int | None]:
    """Partition -> its longest time in minutes, of ``sinfo --format=%P|%l``; the default partition under None too."""
    limits = {}
    for line in text.splitlines():
        name, _, limit = line.partition("|")
        limits[name.rstrip("*")] = parse_minutes(limit)
        if name.endswith("*"):
            limits[None] = parse_minutes(limit)
    return limits


def parse_accounting(text: str, names=None) -> dict[str, str]:
    """Job id -> state, of ``sacct --parsable2 --noheader --format=JobID,State,ExitCode,NodeList,JobName``.

    The state keeps its exit code and nodes, for a message. What waits of an array is one row, ``7_[1-3,5%2]``. Job ids
    begin again one day: with ``names``, rows of jobs that are called otherwise are another's, of long ago.
    """
    states = {}
    for line in text.splitlines():
        id, *state = line.split("|", 4)
        if not state or "." in id or (names is not None and state[-1] not in names):
            continue
        for job in expand(id):
            states[job] = "|".join(state[:3])
    return states


def parse_queue(text: str) -> list[tuple[str, str, str]]:
    """(Job id, state, job name) of ``squeue --array --format=%i|%T|%r|%j``. What is held for ever failed to launch."""
    rows = (line.split("|", 3) for line in text.splitlines() if line.count("|") >= 3)
    return [
        (job, "LAUNCH_FAILED" if reason.replace(" ", "_") in HELD_FOR_EVER else state, name)
        for job, state, reason, name in rows
    ]


def parse_hopeless(text: str) -> dict[str, str]:
    """Job -> the reason that it pends for, of reasons that waiting does not help; from the text of ``parse_queue``."""
    found = {}
    for line in text.splitlines():
        job, state, reason, *_ = [*line.split("|", 3), "", ""]
        if state == "PENDING" and remedy(reason):
            found[job] = reason
    return found


def remedy(reason: str) -> str | None:
    """What helps a job that pends for this reason; None where waiting does."""
    return next((what for pattern, what in HOPELESS.items() if re.fullmatch(pattern, reason)), None)


def parse_array_size(text: str) -> int | None:
    """The most tasks of an array, of ``scontrol show config``. Where there are no arrays, 1."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", text, re.MULTILINE)
    return max(1, int(found[1])) if found else None


def state_of(id: str, accounted: dict[str, str]) -> str | None:
    """The state of a job. Tasks of an array that were cancelled before they started share one row, under its id."""
    return accounted.get(id) or accounted.get(id.split("_")[0])


def expand(name: str) -> list[str]:
    """The ids that a row of sacct stands for; none where Slurm has cut the list short."""
    try:
        parts = read_job_id(name)
    except ValueError:
        return []
    jobs = []
    for job, *bounds in parts:
        if bounds:
            jobs += [f"{job}_{index}" for index in range(int(bounds[0]), int(bounds[-1]) + 1)]
        else:
            jobs.append(job)
    return jobs


def is_active(state: str | None) -> bool:
    return state is not None and not is_success(state) and word_of(state) not in FAILED


def is_success(state: str | None) -> bool:
    return state is not None and word_of(state) == COMPLETED


def word_of(state: str) -> str:
    """``CANCELLED`` of ``CANCELLED by 1000|0:15|node7``."""
    return re.split(r"[ |+]", state, maxsplit=1)[0]


def outcome(accounted: str | None, queued: str | None, asked_queue: bool) -> Outcome:
    """What became of a job, by its state in accounting and in the queue; None where that does not know it.

    The queue is believed where it says that a job lives: a preempted job, or one whose node was lost, ends in
    accounting and is in the queue again. So no failure is believed before the queue was heard. A job that lives in
    accounting alone has no end that will ever be written.
    """
    if is_active(queued) or (queued is None and not asked_queue and not is_success(accounted)):
        return Outcome.ACTIVE
    if accounted is not None and not is_active(accounted):
        return Outcome.SUCCESS if is_success(accounted) else Outcome.FAILURE
    if queued is not None:
        return Outcome.SUCCESS if is_success(queued) else Outcome.FAILURE
    return Outcome.UNKNOWN


def accounting_command(ids) -> list[str]:
    """Where SLURM_CLUSTERS names other clusters than this one, all programs but sacct follow it of themselves."""
    jobs = ",".join(sorted({job.split("_")[0] for job in ids}))
    clusters = os.environ.get("SLURM_CLUSTERS")
    where = ["--clusters", clusters] if clusters else []
    fields = "--format=JobID,State,ExitCode,NodeList,JobName"
    return ["sacct", "-X", "--parsable2", "--noheader", *where, fields, "--jobs", jobs]


def queue_command(fields="%i|%T|%r|%j") -> list[str]:
    """All of the user's jobs: asked by id, squeue would fail altogether for one id that it has forgotten."""
    return ["squeue", "--me", "--array", "--states=all", "--noheader", f"--format={fields}"]


def run(command: list[str], seconds=60) -> str | None:
    """What the program printed, or None where it failed or did not answer in time."""
    try:
        # In a session of its own: Ctrl-C must not end the program that cancels the jobs.
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, start_new_session=True)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
