"""What the tests share: the lanes of this machine, tasks made in a line, and a copy of the project to run in."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from assize.benchmarks.command.suite import Task
from assize.errors import AssizeError
from assize.sandbox import Limits, open_lane

# Started in the background by a shell, the tests ignore SIGINT, and so would all that they start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]
# What is in there runs in containers.
collect_ignore = ["images"]
# Made by tests/cluster/up; an image of a site's own can be named.
IMAGE = os.environ.get("ASSIZE_TEST_IMAGE", "localhost/assize-base:bookworm")
# The config of a study of two instances and two conditions.
SMALL = {
    "name": "small",
    "benchmarks": {
        "command": {
            "suite": {"path": "config/suites/starter.json"},
            "instances": ["interval-merge-python", "longest-line-bash"],
            "calibration": {"repetitions": 1},
        }
    },
    "conditions": {"reference": {"solver": "reference"}, "noop": {"solver": "noop"}},
}


def pytest_xdist_make_scheduler(config, log):
    """All tests of the cluster in one worker: in two they would only wait for each other."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return "tests/slurm" if nodeid.startswith("tests/slurm/") else super()._split_scope(nodeid)

    return Scheduling(config, log)


def lane_or_skip(name: str):
    """A lane of this machine. One that is missing skips the test, and says why."""
    try:
        return open_lane(name, image=IMAGE)
    except AssizeError as error:
        pytest.skip(f"lane {name}: {error.message}")


@pytest.fixture(params=["bubblewrap", "container"])
def lane(request):
    """Each lane that isolates."""
    return lane_or_skip(request.param)


@pytest.fixture
def limits():
    """Limits small enough that a test which runs into one ends soon."""
    return Limits(wall_s=20, cpu_s=20, memory_mb=512, processes=64, file_mb=64, disk_mb=128, output_mb=4)


def make_task(grader: str, **fields) -> Task:
    """A task whose grader is the shell script ``grader``; its reference is a program that prints 42."""
    defaults = {
        "id": "task",
        "instruction": "print 42",
        "grader_cmd": 'sh "$GRADER_DIR/grade.sh"',
        "grader_files": {"grade.sh": grader, "spec.json": '{"expected": "oracle-42"}'},
        "reference_files": {"solution.sh": "echo 42\n"},
        "files": {},
        "build": None,
        "timeout_s": None,
        "language": "bash",
        "image": None,
        "canary": None,
    }
    return Task(**defaults | fields)


def copy_project(target: Path) -> Path:
    """Copy the project's files to ``target`` as a clone would have them, what is not yet committed included."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


@pytest.fixture
def whole_cluster():
    """The test cluster's one node, for this test alone: most ask for all of it."""
    from filelock import FileLock

    with FileLock(Path(tempfile.gettempdir(), f"assize-test-cluster-{os.getuid()}.lock")):
        yield


def wait_for(condition, seconds=120):
    """What ``condition()`` gives, as soon as that is true."""
    deadline = time.time() + seconds
    while time.time() < deadline:
        if value := condition():
            return value
        time.sleep(0.2)
    raise AssertionError(f"nothing in {seconds} s")


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; nothing once it has ended, as a process that was listed may have by now."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture
def project(tmp_path):
    """A checkout of the project to run workflows in."""
    return Project(copy_project(tmp_path / "project"))


class Project:
    """A checkout, and the commands that a user gives in it."""

    def __init__(self, root: Path):
        self.root = root

    def run(self, *command, env=None, check=True) -> subprocess.CompletedProcess:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=self.root,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
        )
        assert not check or done.returncode == 0, f"{command} exited {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done

    def script(self, name: str, *arguments, **options):
        return self.run(sys.executable, f"scripts/{name}", *arguments, **options)

    def snakemake(self, *arguments, profile="profiles/local", **options):
        snakemake = Path(sys.executable).parent / "snakemake"
        return self.run(snakemake, "--profile", profile, *arguments, **options)

    def jobs(self, *arguments, **options) -> dict[str, int]:
        """How many jobs of each rule a dry-run plans."""
        done = self.snakemake("--dry-run", *arguments, **options)
        text = done.stdout + done.stderr
        if "Nothing to be done" in text:
            return {}
        table = text.split("Job stats:")[1].split("\n\n")[0].splitlines()[3:]
        return {name: int(count) for name, count in (line.split() for line in table) if name != "total"}


def pytest_terminal_summary(terminalreporter):
    """Tell what was measured, and name every skipped test: a lane that did not run must not read as passed."""
    measured = [pair for report in terminalreporter.stats.get("passed", []) for pair in report.user_properties]
    if measured:
        terminalreporter.section("measured")
        for name, value in measured:
            terminalreporter.write_line(f"{name}: {value}")
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section(f"{len(skipped)} skipped, not passed")


def pytest_sessionfinish(session, exitstatus):
    """With ASSIZE_NO_SKIP=1 (CI), a skip is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("ASSIZE_NO_SKIP") and reporter and reporter.stats.get("skipped") and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
