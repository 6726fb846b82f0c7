"""Run a problem's programs in a lane, with its targets out of their reach, and say how each ended."""

import json
import os
import shlex
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from assize.adapter import scratch
from assize.benchmarks.scicode.composition import Program
from assize.benchmarks.scicode.problems import Problem
from assize.errors import InfrastructureError
from assize.records import ROOT, sha256_file, strict_json
from assize.resources import own_folder
from assize.sandbox import Limits, Phase

RUNTIME = Path(__file__).parent / "runtime"
STAND_IN = RUNTIME / "standin"
LOCK = ROOT / "envs" / "scicode.lock"
VENV = ".venv-scicode"
STAMP = ".assize-lock"
INSIDE = "/scicode-runtime"
# What of the host's environment a step may have: facts of the processor without which BLAS computes wrong results.
PASSED_ON = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Official: 1800 s a step. 10.11's reference needs 2.4 GB.
DEFAULT_STEP_LIMITS = {"wall_s": 1800, "memory_mb": 4096, "output_mb": 16, "disk_mb": 1024, "processes": 256}
START_S = 120.0
# How a step is kept from the harness and from the other steps, inside the sandbox that the lane makes.
ISOLATION = {"bubblewrap": "namespaces", "container": "users", "subprocess": "none"}


@dataclass(frozen=True)
class Runtime:
    """The locked scientific packages: a venv on this machine and the digest of its lock."""

    folder: Path
    lock: str

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def mount(self) -> str:
        """For a lane's ``read_only_paths``. A venv runs from wherever it is shown."""
        return f"{self.folder}:{INSIDE}"

    def python_in(self, lane) -> str:
        """The Python to run in a lane: a container brings its own."""
        return {"bubblewrap": f"{INSIDE}/bin/python", "container": "python3"}.get(lane.name, self.python)


def find_runtime(venv: str, lock: str) -> Runtime:
    """The venv that the terms name.

    Raises
    ------
    InfrastructureError : it was not built, or was built from another lock.
    """
    folder = (ROOT / venv).resolve()
    stamp = folder / STAMP
    found = stamp.read_text().strip() if stamp.exists() else None
    if found != lock:
        state = "is not built" if found is None else f"was built from lock {found[:12]}, the terms say {lock[:12]}"
        raise InfrastructureError("runtime_missing", f"the SciCode runtime {folder} {state}", "run: make setup-scicode")
    return Runtime(folder, lock)


def runtime_files(stand_in: bool = True) -> dict[str, str]:
    """The harness's own modules, for the grader's directory; without the ``scicode`` package where asked."""
    return {
        str(path.relative_to(RUNTIME)): path.read_text(encoding="utf-8")
        for path in sorted(RUNTIME.rglob("*.py"))
        if stand_in or not path.is_relative_to(STAND_IN)
    }


def run_programs(
    lane,
    runtime: Runtime,
    problem: Problem,
    programs: dict[str, Program],
    limits: dict,
    *,
    targets: bytes | None = None,
    workers: int = 1,
    expected_s: dict[str, float] | None = None,
    derive_to: Path | None = None,
    stand_in: bool = True,
) -> dict[str, dict]:
    """Run programs of one problem, each with the cases of its step.

    Parameters
    ----------
    programs : a name of the run -> program; the name may be other than the step's, as when one step is run twice.
    limits : of one step, as in DEFAULT_STEP_LIMITS.
    targets : an h5 file with the targets of these steps, or None where the study has none.
    workers : how many run at once.
    expected_s : seconds that a step took before, for longest first.
    derive_to : write the targets that the cases compare with to this new h5 file, instead of judging.
    stand_in : whether the ``scicode`` package is there.

    Returns
    -------
    Name -> passed, signature, phase, origin, flags, survivors, seconds, output, runtime (packages that judged).

    Raises
    ------
    InfrastructureError : the runner did not start or did not finish, through no limit of the candidate's.
    """
    limits = DEFAULT_STEP_LIMITS | limits
    expected_s = expected_s or {}
    job = {
        "mode": "derive" if derive_to else "grade",
        "isolation": ISOLATION[lane.name],
        "targets": "targets.h5" if targets is not None else None,
        "dependencies": problem.dependencies,
        "workers": max(1, min(workers, len(programs))),
        **limits,
        "steps": [
            {
                "name": name,
                "id": program.step,
                "program": program.text,
                "lines": list(program.lines),
                "cases": list(problem.step(program.step).cases),
                "expected_s": expected_s.get(program.step, 0.0),
            }
            for name, program in programs.items()
        ],
    }
    files = runtime_files(stand_in) | {"job.json": json.dumps(job)}
    if targets is not None:
        files["targets.h5"] = targets
    with scratch() as folder:
        work = Path(folder, "work")
        work.mkdir()
        phase = Phase(_command(runtime.python_in(lane)), work, _sandbox_limits(job), files)
        outcome = lane.run_grader(phase)
        if derive_to:
            _collect(runtime, work, derive_to)
    results = _results(outcome, programs)
    harness = {name: result["harness"] for name, result in results.items() if result["harness"]}
    if harness:
        raise InfrastructureError("step_not_started", f"{problem.id}: the harness failed: {harness}")
    return results


def _command(python: str) -> str:
    """The shell command of the runner: its environment is empty but for what is named here."""
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
    variables |= dict.fromkeys(THREADS, "1") | {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    settings = " ".join(shlex.quote(f"{name}={value}") for name, value in variables.items())
    return f'exec env -i {settings} {shlex.quote(python)} "$GRADER_DIR/runner.py"'


def _sandbox_limits(job: dict) -> Limits:
    """Limits of the whole sandbox: never the ones that a step is meant to meet."""
    workers, steps = job["workers"], len(job["steps"])
    wall_s = START_S + job["wall_s"] * -(-steps // workers)
    return replace(
        Limits(),
        wall_s=wall_s,
        cpu_s=int(wall_s * job["processes"]),
        memory_mb=(workers + 1) * job["memory_mb"],
        processes=workers * job["processes"] + 64,
        file_mb=job["disk_mb"],
        disk_mb=workers * job["disk_mb"] + 64,
    )


def _results(outcome, programs: dict[str, Program]) -> dict[str, dict]:
    """Each program's result. One without, since the whole sandbox was ended for a limit, failed for that limit."""
    reward = strict_json(outcome.reward.decode()) if outcome.reward else {"results": {}, "runtime": {}}
    results = {name: result | {"runtime": reward["runtime"]} for name, result in reward["results"].items()}
    missing = [name for name in programs if name not in results]
    if missing and outcome.limit is None:
        tail = outcome.output[-1000:].decode("utf-8", "replace").strip()
        raise InfrastructureError(
            "runner_failed", f"the step runner ended (exit {outcome.exit_status}) without {', '.join(missing)}: {tail}"
        )
    ended = {
        "passed": False,
        "signature": f"over the sandbox's {outcome.limit} limit",
        "phase": "program",
        "origin": "code",
        "flags": [],
        "survivors": 0,
        "harness": None,
        "seconds": round(outcome.seconds, 3),
        "output": "",
        "output_bytes": 0,
        "runtime": reward["runtime"],
    }
    return results | dict.fromkeys(missing, ended)


def _collect(runtime: Runtime, work: Path, target: Path) -> None:
    """Put the derived targets of each step, one file each, into one."""
    call_h5file(runtime, "join", str(target), *sorted(str(path) for path in work.glob("*.h5")))


def call_h5file(runtime: Runtime, *arguments: str) -> str:
    """Run h5file.py, which needs h5py, with the runtime's Python; its stdout.

    Raises
    ------
    InfrastructureError : it failed.
    """
    command = [runtime.python, "-I", str(RUNTIME / "h5file.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise InfrastructureError("h5_unreadable", f"h5file.py {arguments[0]}: {done.stderr.strip()[-1000:]}")
    return done.stdout


def cut_targets(runtime: Runtime, source, steps: list[str]) -> bytes:
    """A small h5 file with the targets of some steps: a sandbox is never shown the others."""
    with tempfile.TemporaryDirectory(prefix="assize-targets-") as folder:
        cut = Path(folder, "targets.h5")
        call_h5file(runtime, "cut", str(source), str(cut), *steps)
        return cut.read_bytes()


def survey(runtime: Runtime, path, cases: dict[str, int]) -> dict:
    """What of ``cases`` (step -> number of cases) an h5 file lacks: missing, unreadable, attributes, cases."""
    with tempfile.TemporaryDirectory(prefix="assize-targets-") as folder:
        listing = Path(folder, "cases.json")
        listing.write_text(json.dumps(cases))
        return json.loads(call_h5file(runtime, "survey", str(path), str(listing)))


@contextmanager
def core_slots(wanted: int, cpus: int | None):
    """Hold between 1 and ``wanted`` (at least 1) of this node's cores for steps; yields how many.

    All the evaluators of a user in one Slurm job (or, outside one, on one machine) share as many slots as there are
    cores, so that steps that run at once are never more than the cores that are there for them.
    """
    from filelock import FileLock, Timeout

    available = len(os.sched_getaffinity(0))
    total = max(1, min(available, cpus or available))
    # Named like an evaluator's own lock, with which those of jobs that are long over are removed.
    name = f"evaluator-{os.environ.get('SLURM_JOB_ID', 'node')}-core"
    locks = [FileLock(own_folder() / f"{name}-{number}.lock") for number in range(total)]
    held = []
    try:
        while not held:
            for lock in locks:
                if len(held) < wanted:
                    try:
                        lock.acquire(timeout=0 if held or lock is not locks[-1] else 0.2)
                        held.append(lock)
                    except Timeout:
                        continue
        yield len(held)
    finally:
        for lock in held:
            lock.release()


def lock_digest() -> str:
    """sha256 of the lock of the scientific packages."""
    return sha256_file(LOCK)
