"""Resource modes: what an allocation is, and when an evaluator refuses to run."""

import errno
import os
import subprocess
import sys
import time

import pytest

from assize.errors import InfrastructureError, UsageError
from assize.resources import check_allocation, is_disk_fault, one_evaluator, own_folder, parse_allocation, parse_memory
from conftest import ROOT

JOB = {
    "SLURM_JOB_ID": "17",
    "SLURMD_NODENAME": "n1",
    "SLURM_CPUS_ON_NODE": "16",
    "SLURM_MEM_PER_NODE": "30720",
    "SLURM_JOB_PARTITION": "main",
    "SLURM_JOB_ACCOUNT": "default",
}


def test_an_allocation_is_read_from_slurms_environment():
    assert parse_allocation({}) is None
    assert parse_allocation(JOB) == {
        "job_id": "17",
        "node": "n1",
        "cpus": 16,
        "memory_mb": 30720,
        "partition": "main",
        "account": "default",
    }


def test_an_array_task_is_named_as_sacct_names_it():
    task = JOB | {"SLURM_ARRAY_JOB_ID": "15", "SLURM_ARRAY_TASK_ID": "2"}
    assert parse_allocation(task)["job_id"] == "15_2"


def test_memory_given_by_cpu_and_memory_without_limit():
    by_cpu = {key: value for key, value in JOB.items() if key != "SLURM_MEM_PER_NODE"}
    assert parse_allocation(by_cpu | {"SLURM_MEM_PER_CPU": "2000"})["memory_mb"] == 32000
    assert parse_allocation(by_cpu)["memory_mb"] is None
    assert parse_allocation(JOB | {"SLURM_MEM_PER_NODE": "0"})["memory_mb"] is None


@pytest.mark.parametrize("mode", ["none", "container"])
def test_other_modes_ask_for_no_allocation(mode):
    check_allocation(mode, 16, 30720, None)


@pytest.mark.parametrize(
    ("allocation", "message"),
    [
        (None, "not in a Slurm job"),
        (JOB | {"SLURM_CPUS_ON_NODE": "8"}, "8 CPUs, 16 asked for"),
        (JOB | {"SLURM_MEM_PER_NODE": "1024"}, "1024 MiB, 30720 asked for"),
    ],
)
def test_slurm_mode_refuses_no_allocation_and_a_smaller_one(allocation, message):
    with pytest.raises(UsageError, match=message):
        check_allocation("slurm", 16, 30720, allocation and parse_allocation(allocation))


def test_slurm_mode_runs_in_the_studys_allocation():
    check_allocation("slurm", 16, 30720, parse_allocation(JOB))


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("JobId=9 MinMemoryNode=30G TRES=cpu=16,mem=30G,node=1,billing=16 Socks/Node=*", 30720),
        ("JobId=9 ReqTRES=cpu=1,mem=1500M,node=1 AllocTRES=cpu=1,mem=1500M,node=1", 1500),
        ("JobId=9 TRES=cpu=16,node=1", None),
        ("", None),
    ],
)
def test_memory_is_read_from_what_scontrol_says(text, memory):
    assert parse_memory(text) == memory


def test_one_evaluator_at_a_time_in_an_allocation(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = """
import sys
sys.path.insert(0, "scripts")
from assize.resources import one_evaluator
with one_evaluator():
    print("active", flush=True)
    sys.stdin.readline()
"""
    command = [sys.executable, "-c", script]
    pipes = {"cwd": ROOT, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    first = subprocess.Popen(command, **pipes)
    assert first.stdout.readline() == "active\n"
    second = subprocess.Popen(command, **pipes)
    assert "another evaluator is active" in second.stderr.readline()
    # Killed, it holds nothing.
    first.kill()
    assert second.stdout.readline() == "active\n"
    third = subprocess.Popen(command, env=os.environ | {"SLURM_JOB_ID": "17"}, **pipes)
    assert third.stdout.readline() == "active\n"
    for process in (first, second, third):
        process.kill()
        process.communicate()


def test_who_holds_the_evaluator_may_take_it_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with one_evaluator(), one_evaluator():
        assert [path.name for path in own_folder().iterdir()] == ["evaluator-node.lock"]


def test_locks_of_jobs_that_are_long_over_are_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name, days in (("evaluator-1.lock", 31), ("evaluator-2.lock", 1)):
        (own_folder() / name).touch()
        os.utime(own_folder() / name, (time.time() - days * 86400,) * 2)
    with one_evaluator():
        assert sorted(path.name for path in own_folder().iterdir()) == ["evaluator-2.lock", "evaluator-node.lock"]


def test_a_folder_that_another_prepared_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / f"assize-{os.getuid()}").symlink_to("/var")
    with pytest.raises(InfrastructureError, match="not this user's own"):
        own_folder()


def test_a_full_disk_is_known_at_whatever_remove():
    wrapped = InfrastructureError("lane", "cannot unpack")
    wrapped.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert is_disk_fault(wrapped)
    assert not is_disk_fault(OSError(errno.ENOENT, "no such file"))
