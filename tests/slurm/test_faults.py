"""A study survives what happens on a cluster: after each fault it is complete, with the verdicts of an undisturbed run
and every episode once. Needs the cluster of tests/cluster/."""

import csv
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from conftest import copy_project, wait_for
from slurm_support import (
    NODE,
    SLOW_GRADE,
    SLOW_VERDICTS,
    SLURMCTLD,
    SLURMD,
    SPARE,
    Account,
    grading,
    job_of,
    needs_cluster,
    return_to_service,
    slurm,
    slurm_answers,
    write_slow_study,
)

pytestmark = needs_cluster

STUDY = "--configfile study.yaml"


@pytest.fixture
def account(tmp_path):
    account = Account("root", copy_project(tmp_path / "assize"), Path(sys.executable).parent.parent)
    write_slow_study(account)
    yield account
    # Whatever the test did: nothing of it stays in the queue.
    left = [line.split("|") for line in slurm("squeue", "--noheader", "--format=%A|%Z")]
    if ids := [job for job, folder in left if folder.startswith(str(tmp_path))]:
        slurm("scancel", *ids)


@pytest.fixture
def snapshots(account):
    """The study up to its snapshots: what is left is three grades and the census."""
    account.snakemake(f"--until snapshot {STUDY}")
    return account


def check_complete(account) -> None:
    """A plain rerun leaves the study complete, as if nothing had happened; and then there is nothing to do."""
    account.snakemake(STUDY)
    assert account.verdicts("slow") == SLOW_VERDICTS
    rows = list(csv.DictReader((account.root / "results/slow/census/grades.csv").open()))
    assert sorted(f"{row['condition']}/{row['instance']}/{row['repeat']}" for row in rows) == sorted(SLOW_VERDICTS)
    assert "Nothing to be done" in account.snakemake(STUDY).stderr
    assert not (account.root / "results/slow/holder.json").exists()


def attempts(account) -> set[int]:
    return {grade["provenance"]["attempt"] for grade in account.grades("slow")}


def finish(controller: subprocess.Popen) -> str:
    """What a controller said that was left to end by itself."""
    try:
        _, errors = controller.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        os.killpg(controller.pid, signal.SIGKILL)
        raise
    return errors


def kill_9(controller: subprocess.Popen) -> None:
    os.killpg(controller.pid, signal.SIGKILL)
    controller.communicate()


def test_kill_9_of_the_controller(snapshots):
    """No --unlock is needed; the running job is waited for, and no second one is submitted."""
    before = snapshots.slurm_jobs()
    controller = snapshots.start(STUDY)
    wait_for(lambda: grading(snapshots))
    kill_9(controller)
    again = snapshots.snakemake(STUDY).stderr
    assert "The last run of slow was cut off" in again
    assert "of an earlier run makes these files: waiting for it" in again
    check_complete(snapshots)
    assert len(set(snapshots.slurm_jobs()) - set(before)) == 1
    assert attempts(snapshots) == {1}


def test_kill_9_of_the_controller_whose_job_ends_before_the_next_run(snapshots):
    before = snapshots.slurm_jobs()
    controller = snapshots.start(STUDY)
    wait_for(lambda: grading(snapshots))
    kill_9(controller)
    wait_for(lambda: len(snapshots.grades("slow")) == 3)
    stamp = (snapshots.root / SLOW_GRADE).stat().st_mtime_ns
    check_complete(snapshots)
    assert (snapshots.root / SLOW_GRADE).stat().st_mtime_ns == stamp
    assert len(set(snapshots.slurm_jobs()) - set(before)) == 1


def test_kill_9_of_the_controller_while_agents_work(account):
    """Of two in one Slurm job one has ended its work and one has not: neither is asked to do it again."""
    agents = {"quick": "date +%s%N > when", "late": "date +%s%N > when; sleep 15"}
    write_slow_study(account, conditions={name: {"solver": "command", "command": agents[name]} for name in agents})
    episodes = account.root / "results/slow/episodes/command"
    quick, late = (episodes / name / "longest-line-bash/1" for name in agents)
    controller = account.start(STUDY)
    wait_for((quick / "snapshot.json").exists)
    kill_9(controller)
    work = (quick / "submission.tar.gz").read_bytes()
    assert not (late / "solved.json").exists()
    assert "of an earlier run makes these files: waiting for it" in account.snakemake(STUDY).stderr
    # It says when it was made.
    assert (quick / "submission.tar.gz").read_bytes() == work
    assert {name: verdict for name, (verdict, _) in account.verdicts("slow").items()} == {
        "quick/longest-line-bash/1": "fail",
        "late/longest-line-bash/1": "fail",
    }
    assert attempts(account) == {1}
    assert "Nothing to be done" in account.snakemake(STUDY).stderr


def test_scancel_of_a_running_grade(snapshots):
    controller = snapshots.start(STUDY)
    job = job_of(wait_for(lambda: grading(snapshots)))
    slurm("scancel", job)
    errors = finish(controller)
    assert controller.returncode == 0, errors
    assert f"Job {job} of grade: CANCELLED" in errors
    check_complete(snapshots)
    assert 2 in attempts(snapshots)


def test_without_retries_a_cancelled_grade_is_made_by_the_next_run(snapshots):
    controller = snapshots.start(f"--retries 0 --config attempts=1 {STUDY}")
    slurm("scancel", job_of(wait_for(lambda: grading(snapshots))))
    finish(controller)
    assert controller.returncode == 1
    assert not (snapshots.root / SLOW_GRADE).exists()
    check_complete(snapshots)


def restart_slurmctld(snapshots, signal_number) -> str:
    """Ended while a grade runs, and started again; gives what the study's controller said."""
    controller = snapshots.start(STUDY)
    wait_for(lambda: grading(snapshots))
    SLURMCTLD.end(signal_number)
    time.sleep(3)
    SLURMCTLD.start()
    wait_for(slurm_answers)
    try:
        errors = finish(controller)
    finally:
        # What an administrator does then: the node remembers jobs whose ids are given to others now.
        SLURMD.end(signal.SIGTERM)
        SLURMD.start("-c")
        return_to_service(NODE)
    assert controller.returncode == 0, errors
    return errors


def test_slurmctld_is_restarted(snapshots):
    restart_slurmctld(snapshots, signal.SIGTERM)
    check_complete(snapshots)
    assert attempts(snapshots) == {1}


def test_slurmctld_crashes(snapshots):
    """It has forgotten the job, or that it runs. Then it starts it again, which the node refuses, drains the node and
    holds the job for ever. The executor goes by what the job itself said about its end."""
    restart_slurmctld(snapshots, signal.SIGKILL)
    check_complete(snapshots)
    assert attempts(snapshots) == {1}


def test_slurmd_is_killed_and_started_again(snapshots):
    """The job lives on: its step needs slurmd only to say that it is done."""
    controller = snapshots.start(STUDY)
    wait_for(lambda: grading(snapshots))
    SLURMD.end()
    time.sleep(2)
    SLURMD.start()
    errors = finish(controller)
    assert controller.returncode == 0, errors
    check_complete(snapshots)
    assert attempts(snapshots) == {1}


def end(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()


@contextmanager
def lost_node():
    """The second node goes with all that runs on it; afterwards it is there again."""
    try:
        SPARE.end()
        for process in psutil.process_iter(["name", "environ"]):
            if (process.info["environ"] or {}).get("SLURMD_NODENAME") == "spare":
                end(process)
        for process in psutil.process_iter(["name", "cmdline"]):
            if process.info["name"] == "slurmstepd" and "spare" in " ".join(process.info["cmdline"] or []):
                end(process)
        slurm("scontrol", "update", "NodeName=spare", "State=DOWN", "Reason=lost")
        yield
    finally:
        SPARE.start()
        time.sleep(1)
        return_to_service("spare")


def test_a_node_is_lost_and_the_grade_is_made_on_another(snapshots):
    controller = snapshots.start(f"--submitit-partition both {STUDY}")
    process = wait_for(lambda: grading(snapshots))
    assert process.environ()["SLURMD_NODENAME"] == "spare"
    with lost_node():
        errors = finish(controller)
    assert controller.returncode == 0, errors
    check_complete(snapshots)
    slow = next(grade for grade in snapshots.grades("slow") if grade["episode"]["condition"] == "slow")
    assert slow["provenance"]["slurm"]["node"] == NODE


def test_a_job_over_its_time_limit(account):
    """The retry asks for more: a profile can say how much."""
    write_slow_study(account, seconds=19)
    account.snakemake(f"--until snapshot {STUDY}")
    longer = "'grade:runtime=1 if attempt == 1 else 5'"
    controller = account.start(f"--set-resources {longer} --group-components grade=1 {STUDY}")
    errors = finish(controller)
    assert controller.returncode == 0, errors
    assert "of grade: TIMEOUT" in errors
    check_complete(account)
    assert 2 in attempts(account)


def test_a_job_over_its_memory_limit(account):
    """The next attempt of an episode asks for more; an evaluator's memory is the study's, whatever happens."""
    hog = "python3 -c 'import time; held = bytearray(1300 << 20); time.sleep(4)'"
    write_slow_study(account, conditions={"hog": {"solver": "command", "command": hog}})
    account.snakemake(STUDY)
    rows = slurm(
        "sacct", "-X", "--noheader", "--parsable2", "-S", "now-10minutes", "--format=JobName,WorkDir,State,ReqMem"
    )
    asked = [
        (state.split()[0], memory)
        for name, folder, state, memory in (row.split("|") for row in rows)
        if folder == str(account.root) and name.startswith("episode-")
    ]
    assert asked[0][0] in ("FAILED", "OUT_OF_MEMORY")
    assert asked[-1][0] == "COMPLETED"
    assert [memory for _, memory in asked] == ["1G", "2G"]
    assert len(account.grades("slow")) == 1


def test_a_second_controller_is_told_who_holds_the_study(snapshots):
    controller = snapshots.start(STUDY)
    wait_for(lambda: grading(snapshots))
    second = snapshots.snakemake(STUDY, check=False)
    assert second.returncode == 1
    assert f"slow is being run by process {controller.pid} of root on" in second.stderr
    assert finish(controller) is not None
    assert controller.returncode == 0
    check_complete(snapshots)
    assert attempts(snapshots) == {1}


@contextmanager
def small_filesystem(folder: Path, megabytes: int):
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk(account):
    """Nothing is half-written and nothing is void; with room again, the study goes on."""
    results = account.root / "results"
    with small_filesystem(results, 8):
        account.snakemake(f"--until snapshot {STUDY}")
        filler = results / "filler"
        subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], capture_output=True)
        full = account.snakemake(STUDY, check=False)
        assert full.returncode == 1
        assert "No space left on device" in full.stderr
        assert account.verdicts("slow") == {}
        filler.unlink()
        check_complete(account)


def test_sigterm_to_a_running_adapter(snapshots):
    controller = snapshots.start(STUDY)
    wait_for(lambda: grading(snapshots)).terminate()
    errors = finish(controller)
    assert controller.returncode == 0, errors
    check_complete(snapshots)
    assert 2 in attempts(snapshots)
