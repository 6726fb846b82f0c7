"""Lanes: three ways to run a candidate and its grader, with one shape.

A lane has two methods. ``run_candidate`` runs a command in a working directory and ends every process that it
started. ``run_grader`` does the same in a fresh sandbox that also holds the grader's files, which are written only
then and which the candidate phase never had. A lane that cannot start raises InfrastructureError; it is never
replaced by a weaker one.
"""

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from assize.errors import UsageError

LANES = ("bubblewrap", "container", "subprocess")

REWARD = "reward.json"
REWARD_MAX_BYTES = 1 << 20

# A probe that could read the grader's directory leaves this file in its working directory.
MARKER = ".assize-oracle-exposed"

# The variable that tells a candidate where its task is.
TASK_DIR = "ASSIZE_TASK_DIR"


@dataclass(frozen=True)
class Limits:
    """What one phase may use. Crossing a limit ends the phase and is the candidate's failure."""

    wall_s: float = 60.0
    cpu_s: int = 120
    memory_mb: int = 4096
    processes: int = 256
    file_mb: int = 256
    disk_mb: int = 1024
    output_mb: int = 16

    @classmethod
    def of(cls, given: dict, wall_s: float | None = None) -> "Limits":
        """Limits from a study's ``limits`` section; ``wall_s`` of a task comes before the study's."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            raise UsageError("bad_limits", f"limits: unknown {', '.join(unknown)}; allowed: {', '.join(sorted(known))}")
        limits = cls(**given)
        return limits if wall_s is None else replace(limits, wall_s=wall_s)

    def as_json(self) -> dict:
        return asdict(self)


@dataclass(frozen=True)
class Outcome:
    """How one phase ended.

    ``exit_status`` is None when the phase was ended for a limit (``limit`` names it: wall, cpu, memory, processes,
    disk or output). ``output`` holds the first and last bytes of stdout and stderr together; ``output_bytes`` counts
    all of them. ``survivors`` is how many processes were still alive when the command itself had ended; all are dead.
    """

    exit_status: int | None
    limit: str | None
    seconds: float
    output: bytes
    output_bytes: int
    survivors: int
    reward: bytes | None = None
    reward_fault: str | None = None
    marker: bool = False

    @property
    def timed_out(self) -> bool:
        return self.limit == "wall"

    def as_json(self) -> dict:
        """For a record: how it ended, and the end of what it printed."""
        return {
            "exit": self.exit_status,
            "limit": self.limit,
            "timed_out": self.timed_out,
            "seconds": round(self.seconds, 3),
            "survivors": self.survivors,
            "output_bytes": self.output_bytes,
            "output_tail": self.output[-2000:].decode("utf-8", "replace"),
        }


@dataclass(frozen=True)
class Phase:
    """What a lane is asked to run: a shell command in ``work``, and the grader's files in the grading phase.

    ``task_files`` are for a candidate that is to be told its task: path -> content, in a directory of their own, which
    the environment names TASK_DIR, and which it cannot write to. ``network`` is for a candidate only, and only where
    the study says so.
    """

    command: str
    work: Path
    limits: Limits
    grader_files: dict[str, str | bytes] | None = None
    task_files: dict[str, str] | None = None
    network: bool = False


def open_lane(name: str, image: str | None = None, engine: str | None = None, options: dict | None = None):
    """The lane called ``name``, checked to be usable here.

    Raises
    ------
    UsageError : there is no such lane, or the container lane was given no image.
    InfrastructureError : the lane cannot start on this machine.
    """
    options = options or {}
    if name == "bubblewrap":
        from assize.sandbox.bubblewrap import BubblewrapLane

        return BubblewrapLane(read_only_paths=options.get("read_only_paths", ()))
    if name == "container":
        from assize.sandbox.container import ContainerLane

        return ContainerLane(image=image, engine=engine, engine_limits=options.get("engine_limits"))
    if name == "subprocess":
        from assize.sandbox.subprocess_lane import SubprocessLane

        return SubprocessLane()
    raise UsageError("unknown_lane", f"sandbox: {name!r} is not a lane", f"allowed: {', '.join(LANES)}")
