"""What the ProgramBench tests share: the local tasks of tests/images/, and the engine to run them on."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from assize.records import read_record
from conftest import IMAGE, ROOT, lane_or_skip

SHIPPED = "testorg__calculator.abc1234"
REPAIRED = "testorg__calculator-repaired.abc1234"
BARE = "testorg__calculator-bare.abc1234"
OLDER = "testorg__calculator-older.abc1234"
LINES = "assize__lines.8525aaa"
ORG = "localhost/programbench"


def engine_or_skip() -> str:
    """The engine that has the base image. Where there is none, the test is skipped and says why."""
    return lane_or_skip("container").engine


def build_tasks(out: Path) -> Path:
    """Run tests/images/build; what it prints is in ``<out>/built.json``."""
    engine = engine_or_skip()
    if importlib.util.find_spec("programbench") is None:
        pytest.skip("programbench is not installed: make setup-test")
    command = [sys.executable, ROOT / "tests/images/build", out, "--engine", engine]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (out / "built.json").write_text(done.stdout)
    return out


@pytest.fixture(scope="session")
def tasks(tmp_path_factory) -> Path:
    """The local tasks, built once for all workers of a run."""
    from filelock import FileLock

    shared = tmp_path_factory.getbasetemp().parent / "programbench-tasks"
    with FileLock(f"{shared}.lock"):
        return shared if (shared / "built.json").exists() else build_tasks(shared)


@pytest.fixture(scope="module")
def ordinary_store():
    """The image store of the cluster's ordinary user, for this module alone: others remove what they brought there."""
    from filelock import FileLock

    with FileLock(Path(tempfile.gettempdir(), f"assize-test-store-{os.getuid()}.lock")):
        yield


def images(tasks: Path) -> dict:
    """instance -> image reference, digest and id."""
    return json.loads((tasks / "images.json").read_text())


def submission(tasks: Path, condition: str, instance: str) -> dict[str, str]:
    """The files that a condition hands in at an instance."""
    return json.loads((tasks / "submissions" / f"{condition}.json").read_text())[instance]


__all__ = [
    "BARE",
    "IMAGE",
    "LINES",
    "OLDER",
    "ORG",
    "REPAIRED",
    "SHIPPED",
    "build_tasks",
    "engine_or_skip",
    "images",
    "ordinary_store",
    "submission",
    "tasks",
]


def grades_of(results: Path) -> dict[tuple[str, str], dict]:
    found = [read_record(path, "grade") for path in results.glob("episodes/programbench/*/*/1/grade.json")]
    return {(grade["episode"]["condition"], grade["episode"]["instance"]): grade for grade in found}
