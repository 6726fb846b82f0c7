"""The controller's parts that need no Slurm: what it asks for, how it ends Snakemake, and how far a study is."""

import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest
import yaml
from snakemake_executor_plugin_submitit import queues

from assize import controller, holder, progress
from assize.controller import Wishes, shape_of
from assize.errors import InfrastructureError, UsageError
from assize.profile import check_cores, read_profile
from assize.records import write_record
from assize.study import Episode, load_config, resolve
from conftest import ROOT, wait_for

ALLOCATION = {"cpus": 16, "memory": "30g"}
WISHES = Wishes(Path("profiles/slurm"), Path("config/study.yaml"))


def test_a_controller_that_submits_is_small_and_one_in_its_allocation_is_the_allocation():
    small = shape_of(WISHES, True, ALLOCATION, {}, None)
    assert (small.cpus, small.memory_mb, small.minutes) == (2, 2048, 1440)
    whole = shape_of(WISHES, False, ALLOCATION, {}, None)
    assert (whole.cpus, whole.memory_mb) == (16, 30720)


def test_what_is_asked_for_comes_first_and_the_partitions_limit_is_kept():
    asked = Wishes(WISHES.profile, WISHES.config, minutes=90, cpus=4, memory="512m")
    shape = shape_of(asked, True, ALLOCATION, {"partition": "long", "account": "a", "extra": "--nice=5"}, 600)
    assert (shape.cpus, shape.memory_mb, shape.minutes) == (4, 512, 90)
    assert (shape.partition, shape.account, shape.extra) == ("long", "a", "--nice=5")
    assert shape_of(WISHES, True, ALLOCATION, {}, 600).minutes == 600


def test_slurm_warns_five_minutes_before_the_limit_or_at_half_of_a_short_one():
    assert [controller.warning_of(minutes) for minutes in (1, 8, 10, 1440)] == [30, 240, 300, 300]


def test_profiles_are_read(tmp_path):
    slurm, allocation = read_profile("profiles/slurm"), read_profile("profiles/allocation")
    assert (slurm.submits, slurm.resource_mode) == (True, "slurm")
    assert (allocation.submits, allocation.resource_mode) == (False, "slurm")
    (tmp_path / "config.yaml").write_text(
        "executor: submitit\nsubmitit-partition: long\nconfig: {resource_mode: none}\n"
    )
    own = read_profile(tmp_path)
    assert (own.site, own.resource_mode) == ({"partition": "long"}, "none")
    with pytest.raises(UsageError, match="no such profile"):
        read_profile(tmp_path / "other")
    (tmp_path / "config.yaml").write_text("- a list\n")
    with pytest.raises(UsageError, match="is a mapping"):
        read_profile(tmp_path)


def test_a_controller_is_not_submitted_with_a_profile_of_another_allocation(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    study = yaml.safe_load((ROOT / "config/study.yaml").read_text())
    config = tmp_path / "study.yaml"
    config.write_text(yaml.safe_dump(study | {"name": "half", "allocation": {"cpus": 8, "memory": "15g"}}))
    with pytest.raises(UsageError, match="cores: 16, and the study's allocation 8 CPUs") as caught:
        controller.submit(Wishes(Path("profiles/slurm"), config))
    assert "--cores 8" in caught.value.hint
    assert not Path("results/half").exists()
    frozen = resolve(load_config(config), config, "none")
    check_cores(frozen, "all")


@pytest.mark.parametrize("obeys", [True, False], ids=["it ends at SIGTERM", "it waits for its job"])
def test_snakemake_and_its_jobs_are_ended(tmp_path, obeys):
    """One that waits for its job is killed after the grace, and the job gets its own SIGTERM."""
    mark = tmp_path / "job-was-asked-to-end"
    job = f"trap 'touch {mark}; exit' TERM; while :; do sleep 0.1; done"
    ignore = "pass" if obeys else "import signal; signal.signal(signal.SIGTERM, lambda *_: None)"
    script = f"{ignore}; import subprocess, sys; subprocess.run(['bash', '-c', sys.argv[1]])"
    process = subprocess.Popen([sys.executable, "-c", script, job])
    # The shell, once it loops: before that its trap may not be set.
    wait_for(lambda: len(psutil.Process(process.pid).children(recursive=True)) == 2)
    family = psutil.Process(process.pid).children(recursive=True)
    controller.end(process.pid, 1)
    if obeys:
        # As Snakemake does, once its jobs are done; here nothing waited for the job.
        for member in family:
            queues.end(member.kill)
    else:
        assert mark.exists()
        assert not [member for member in family if member.is_running()]
    assert not psutil.pid_exists(process.pid) or process.poll() is not None


def test_a_controller_fails_with_snakemake_and_its_next_life_runs_the_same():
    life = controller.Controller(["bash", "-c", "exit 3"], 5)
    with pytest.raises(RuntimeError, match="snakemake exited with status 3"):
        life()
    following = life.checkpoint().function
    assert (following.command, following.grace_s) == (life.command, life.grace_s)
    controller.Controller(["true"], 5)()


class HandlerRan(Exception):
    """What a handler of submitit's does, or Slurm's kill: nothing runs after it."""


def raise_it(*_):
    raise HandlerRan


# As Slurm does at a preemption: the controller and Snakemake are both told, and Snakemake ends of itself.
PREEMPTED = ["bash", "-c", "kill -TERM $PPID; exit 1"]


def test_a_controller_that_is_told_of_a_preemption_goes_the_way_of_the_warning(monkeypatch):
    monkeypatch.setattr(controller, "job_state", lambda job: controller.JobState("RUNNING", True))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    usual = signal.signal(signal.SIGUSR2, raise_it)
    try:
        with pytest.raises(HandlerRan):
            controller.Controller(PREEMPTED, 5)()
    finally:
        signal.signal(signal.SIGUSR2, usual)


@pytest.mark.parametrize("state", [controller.JobState("CANCELLED by 0", False), None], ids=["cancelled", "forgotten"])
def test_a_controller_whose_job_is_being_ended_waits_for_that(monkeypatch, state):
    """It neither fails, which would have its state say so, nor requeues what a person has cancelled."""
    asked = []

    def job_state(job):
        asked.append(job)
        if len(asked) > 1:
            raise HandlerRan
        return state

    monkeypatch.setattr(controller, "job_state", job_state)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with pytest.raises(HandlerRan):
        controller.Controller(PREEMPTED, 5)()


def test_without_squeue_nobody_says_whether_a_controller_lives(tmp_path, monkeypatch):
    programs = {"squeue": "exit 1", "sacct": "echo '7|RUNNING|0:0|n1'", "scancel": "touch cancelled"}
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    root = Path("results/s")
    record = {"schema": "assize.controller/1", "job": "7", "submitted": "2026-01-01T00:00:00Z", "command": ["true"]}
    write_record(root / "controller/controller.json", record)
    for ask in (lambda: controller.job_state("7"), lambda: controller._refuse_a_second(root)):
        with pytest.raises(InfrastructureError, match="squeue does not answer"):
            ask()
    with pytest.raises(InfrastructureError, match="squeue does not answer"):
        controller.cancel(root)


def test_no_controller_is_submitted_beside_a_run_on_another_host(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = Path("results/s")
    other = replace(holder.me(), host="login1", job=None)
    write_record(root / "holder.json", {"schema": "assize.holder/1", **asdict(other)})
    with pytest.raises(UsageError, match="on login1") as caught:
        controller._refuse_a_second(root)
    assert "after its last sign of life" in caught.value.hint


def test_progress_counts_what_is_planned_judged_and_left():
    episodes = [Episode("command", "a", name, 1) for name in "wxyz"] + [Episode("command", "b", "w", 1)]
    verdicts = dict(zip(episodes, [("pass", 10.0), ("fail", 20.0), ("void", 30.0), None, None], strict=True))
    first, second = progress.lines_of(verdicts)
    assert (first.planned, first.passed, first.failed, first.void, first.done, first.left) == (4, 1, 1, 1, 3, 1)
    assert (second.condition, second.done, second.left) == ("b", 0, 1)


def test_the_estimate_goes_by_the_pace_of_the_last_hour():
    assert progress.seconds_left([], 5) is None
    assert progress.seconds_left([10.0], 5) is None
    assert progress.seconds_left([10.0, 20.0, 30.0], 0) is None
    assert progress.seconds_left([10.0, 20.0, 30.0], 5) == 50.0
    # A night's pause before the last hour does not count.
    assert progress.seconds_left([0.0, 50_000.0, 50_010.0], 5) == 50.0
