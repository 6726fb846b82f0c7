"""The local ProgramBench tasks: what tests/images/build makes is what the official package takes."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile

import pytest

from assize.benchmarks.programbench.official import find_official, open_official
from programbench_support import (
    BARE,
    LINES,
    ORG,
    REPAIRED,
    SHIPPED,
    build_tasks,
    engine_or_skip,
    images,
    submission,
    tasks,
)

__all__ = ["tasks"]

# The official evaluator on one submission, in a process of its own: it reads its settings when it is imported.
OFFICIAL = """
import json, sys
from pathlib import Path
from programbench.eval.eval import DOCKER_RUN_ARGS, Evaluator
from programbench.submission import score_from_tests, test_results_map
from programbench.utils import load_data
# It tries to install a plugin, and goes on where that fails: it need not wait for that.
DOCKER_RUN_ARGS += ["--env", "PIP_RETRIES=0", "--env", "PIP_TIMEOUT=1"]
tasks, instance, archive = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
task = next(task for task in load_data.load_all_instances(tasks / "tasks") if task["instance_id"] == instance)
result = Evaluator(
    tests_branches=load_data.get_active_branches(task),
    tests_by_branch={name: branch["tests"] for name, branch in task["branches"].items()},
    ignored_tests=load_data.get_ignored_tests(task),
    ignored_branches=load_data.get_ignored_branches(task),
    image_name=task["image_name"],
    submission_archive=archive,
    blob_dir=tasks / "blobs" / instance,
    remove_hashes=task["eval_clean_hashes"],
    instance_id=instance,
    docker_cpus=2,
    branch_retries=0,
).run()
record = archive.with_name("eval.json")
record.write_text(result.model_dump_json())
tests = test_results_map(record, task)
said = {"tests": tests, "score": score_from_tests(tests), "warnings": result.warnings, "error": result.error_code}
print(json.dumps(said))
"""


def pack(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content.encode())
            tar.addfile(member, io.BytesIO(content.encode()))
    return buffer.getvalue()


@pytest.fixture
def official(tasks, tmp_path):
    """What the official evaluator says of a condition at an instance."""
    engine = engine_or_skip()

    def run(condition: str, instance: str) -> dict:
        (tmp_path / "submission.tar.gz").write_bytes(pack(submission(tasks, condition, instance)))
        done = subprocess.run(
            [sys.executable, "-c", OFFICIAL, tasks, instance, tmp_path / "submission.tar.gz"],
            env=os.environ | {"PROGRAMBENCH_DOCKER_EXECUTABLE": engine, "PROGRAMBENCH_DOCKER_ORG": ORG},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def inside(tasks):
    """What a command prints in a fresh container of an instance's image."""
    engine = engine_or_skip()

    def run(instance: str, *command: str, user="root") -> subprocess.CompletedProcess:
        options = ["run", "--rm", "--pull=never", "--network=none", "--user", user, images(tasks)[instance]["id"]]
        return subprocess.run([engine, *options, *command], capture_output=True, text=True)

    return run


@pytest.mark.parametrize("instance", [SHIPPED, REPAIRED, BARE, LINES])
def test_an_image_has_a_reference_that_agent_can_run_and_nobody_can_read(inside, instance):
    stat = inside(instance, "stat", "--format=%F %U %G %a", "/workspace/executable").stdout
    assert stat == "regular file root root 111\n"
    command = [
        "bash",
        "-c",
        "cat /workspace/executable >/tmp/copy; /workspace/executable 2>&1; cat /workspace/README.md",
    ]
    done = inside(instance, *command, user="agent")
    assert "Permission denied" in done.stderr
    assert "usage: " in done.stdout
    for tool in ("bash", "git", "tar", "python3", "pip3"):
        assert inside(instance, "which", tool).returncode == 0, tool


@pytest.mark.parametrize(("instance", "plugins"), [(LINES, {"xdist", "pytest_timeout"}), (BARE, set())])
def test_only_the_bare_image_lacks_the_plugins(inside, instance, plugins):
    look = "import importlib.util as u, pytest; print(pytest.__version__, *filter(u.find_spec, %r))"
    modules = ("xdist", "pytest_timeout", "pytest_rerunfailures", "pytest_dependency")
    version, *found = inside(instance, "python3", "-c", look % (modules,)).stdout.split()
    assert tuple(map(int, version.split(".")[:2])) >= (8, 2)
    assert set(found) == plugins


def test_building_again_keeps_the_images_and_gives_the_same_bytes(tasks, tmp_path):
    shutil.copytree(tasks / "runtime", tmp_path / "again" / "runtime")
    again = build_tasks(tmp_path / "again")
    files = [path.relative_to(tasks) for path in tasks.rglob("*") if path.is_file() and path.name != "built.json"]
    assert len(files) > 30
    for path in files:
        assert (again / path).read_bytes() == (tasks / path).read_bytes(), path


def test_the_second_task_has_three_branches_one_ignored_and_ignored_tests(tasks):
    # It reads its settings when it is imported, and other tests of this process need it pinned.
    open_official(find_official(), "podman", 16, None)
    from programbench.utils import load_data

    task = next(task for task in load_data.load_all_instances(tasks / "tasks") if task["instance_id"] == LINES)
    assert (len(task["branches"]), len(load_data.get_active_branches(task))) == (3, 2)
    assert len(load_data.get_ignored_tests(task)) == 2
    assert sum(len(task["branches"][branch]["tests"]) for branch in load_data.get_active_branches(task)) == 41
    for branch in task["branches"]:
        assert (tasks / "blobs" / LINES / "tests" / f"{branch}.tar.gz").is_file()


@pytest.mark.parametrize(
    ("instance", "condition", "passed", "listed"),
    [
        (REPAIRED, "correct", 3, 3),
        (REPAIRED, "incorrect", 0, 3),
        (REPAIRED, "half-right", 2, 3),
        (LINES, "reference", 39, 39),
        (LINES, "correct", 39, 39),
        (LINES, "half-right", 16, 39),
        # A root conftest.py makes a program that is wrong throughout pass everything.
        (LINES, "root-conftest", 39, 39),
        # Its results name other tests than the list does: each counts twice, and once as not run.
        (SHIPPED, "correct", 3, 6),
        (LINES, "root-pyproject", 40, 80),
        # Without its plugins the image cannot run any test: officially a zero.
        (BARE, "correct", 0, 3),
    ],
)
def test_what_the_official_evaluator_says(official, instance, condition, passed, listed):
    result = official(condition, instance)
    assert (sum(result["tests"].values()), len(result["tests"])) == (passed, listed)
    assert result["score"] == passed / listed
    assert bool(result["warnings"]) == (listed in (6, 80))


@pytest.mark.parametrize("condition", ["compile-failure", "executable-directory"])
def test_a_build_that_gives_no_program_is_an_official_zero(official, condition):
    result = official(condition, REPAIRED)
    assert (result["score"], len(result["tests"])) == (0, 3)
    assert result["error"] or not any(result["tests"].values())


def test_every_condition_hands_in_both_programs(tasks):
    conditions = {path.stem for path in (tasks / "submissions").iterdir()}
    assert conditions == {
        *("reference", "correct", "incorrect", "half-right", "compile-failure", "compile-hang", "non-utf8"),
        *("root-conftest", "root-pyproject", "executable-directory", "hanging-test"),
    }
    for condition in conditions:
        for instance in (SHIPPED, REPAIRED, BARE, LINES):
            assert "compile.sh" in submission(tasks, condition, instance), (condition, instance)
