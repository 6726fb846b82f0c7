"""The durable controller on a real Slurm, and a study inside one allocation. Needs the cluster of tests/cluster/."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from conftest import copy_project, wait_for
from slurm_support import SLOW_VERDICTS, Account, grading, job_of, needs_cluster, slurm, write_slow_study

pytestmark = needs_cluster


@pytest.fixture
def account(tmp_path):
    """A checkout whose profile asks for either node: on one of 16 CPUs, no evaluator starts beside a controller."""
    account = Account("root", copy_project(tmp_path / "assize"), Path(sys.executable).parent.parent)
    profile = account.root / "profiles/slurm/config.yaml"
    content = yaml.safe_load(profile.read_text()) | {"submitit-partition": "both"}
    profile.write_text(yaml.safe_dump(content))
    yield account
    for folder in (account.root / "results").glob("*/controller"):
        account.run(f"python scripts/controller.py cancel {folder.parent}", check=False)


def submit(account, arguments="") -> str:
    """The id of the controller's job."""
    done = account.run(f"python scripts/controller.py submit {arguments}")
    return json.loads(done.stdout)["record"]["job"]


def status(account) -> dict:
    return json.loads(account.run("python scripts/controller.py status --json").stdout)


def wait_until_done(account, seconds=400) -> dict:
    def done():
        found = status(account)
        return found if found["controller"]["state"].startswith(("COMPLETED", "FAILED", "CANCELLED")) else None

    return wait_for(done, seconds)


def job_field(job: str, field: str) -> str:
    text = " ".join(slurm("scontrol", "show", "job", job))
    return text.split(f"{field}=")[1].split()[0]


def test_the_default_study_outlives_its_controllers_time_limit(account):
    """A limit of one minute, with the warning after half of it: the study takes several lives and no grade twice."""
    before = set(account.slurm_jobs())
    controller = submit(account, "--time 1")
    found = wait_until_done(account)
    log = account.run("python scripts/controller.py logs").stdout
    assert found["controller"]["state"] == "COMPLETED", log
    assert int(job_field(controller, "Restarts")) >= 2, log
    counts = {line["condition"]: (line["passed"], line["failed"], line["void"]) for line in found["conditions"]}
    assert counts == {"reference": (6, 0, 0), "noop": (0, 6, 0), "wrong": (0, 6, 0), "incomplete": (5, 0, 1)}
    assert found["held"] is None
    assert found["slurm_jobs"] == []
    # One Slurm job each for the calibrations, the episodes and the grades: none was cut off, and none was made again.
    jobs = set(account.slurm_jobs()) - before - {controller}
    assert len(jobs) == 3
    wait_for(lambda: {account.slurm_jobs()[job] for job in jobs} == {"COMPLETED"})
    grades = account.grades("starter")
    assert len(grades) == 24
    assert {grade["provenance"]["attempt"] for grade in grades} == {1}
    account.snakemake()
    assert set(account.slurm_jobs()) - before - {controller} == jobs


def test_a_study_with_a_controller_takes_no_second_one_and_is_cancelled_whole(account):
    write_slow_study(account, seconds=4)
    controller = submit(account, "--configfile study.yaml")
    process = wait_for(lambda: grading(account))
    grade_job = job_of(process)
    again = account.run("python scripts/controller.py submit --configfile study.yaml", check=False)
    assert again.returncode == 2
    assert f"its controller is Slurm job {controller}, RUNNING" in json.loads(again.stdout)["error"]["message"]
    by_hand = account.snakemake("--configfile study.yaml", check=False)
    assert by_hand.returncode == 1
    assert f"slow is being run by Slurm job {controller}, process" in by_hand.stderr
    told = account.run("python scripts/controller.py status").stdout
    assert f"Slurm job {controller}, RUNNING" in told
    assert "of 3 episodes" in told

    ended = json.loads(account.run("python scripts/controller.py cancel").stdout)
    assert ended == {"ok": True, "controller": controller, "jobs": [grade_job], "left": []}
    assert slurm("squeue", "--noheader", "--states=PENDING,RUNNING", "--jobs", f"{controller},{grade_job}") == []
    account.snakemake("--configfile study.yaml")
    assert account.verdicts("slow") == SLOW_VERDICTS


def test_a_study_that_is_submitted_is_not_changed_by_its_file(account):
    write_slow_study(account)
    slurm("scontrol", "update", "PartitionName=both", "State=DOWN")
    try:
        submit(account, "--configfile study.yaml")
        (account.root / "study.yaml").write_text("name: other\n")
    finally:
        slurm("scontrol", "update", "PartitionName=both", "State=UP")
    assert wait_until_done(account)["controller"]["state"] == "COMPLETED"
    assert account.verdicts("slow") == SLOW_VERDICTS


def test_a_wrong_study_is_told_before_anything_is_submitted(account):
    write_slow_study(account, repeats=0)
    before = set(account.slurm_jobs())
    done = account.run("python scripts/controller.py submit --configfile study.yaml", check=False)
    assert done.returncode == 2
    assert "repeats: 0 is not allowed" in done.stderr
    assert set(account.slurm_jobs()) == before


def test_a_study_inside_one_allocation(account):
    write_slow_study(account)
    before = set(account.slurm_jobs())
    job = submit(account, "--profile profiles/allocation --configfile study.yaml")
    assert wait_until_done(account)["controller"]["state"] == "COMPLETED"
    assert set(account.slurm_jobs()) - before == {job}
    assert account.verdicts("slow") == SLOW_VERDICTS
    allocations = [grade["provenance"]["slurm"] for grade in account.grades("slow")]
    assert {(slurm["job_id"], slurm["cpus"], slurm["memory_mb"]) for slurm in allocations} == {(job, 16, 30720)}


def test_a_study_inside_an_allocation_outlives_it(account):
    """At the warning it waits for the grade that runs, and goes on with the others in the next life."""
    write_slow_study(account, seconds=2)
    job = submit(account, "--profile profiles/allocation --configfile study.yaml")
    wait_for(lambda: grading(account))
    slurm("scancel", "--signal=USR2", job)
    found = wait_until_done(account)
    log = account.run("python scripts/controller.py logs").stdout
    assert found["controller"]["state"] == "COMPLETED", log
    assert "Will exit after finishing currently running jobs" in log
    assert int(job_field(job, "Restarts")) == 1
    assert account.verdicts("slow") == SLOW_VERDICTS
    assert {grade["provenance"]["attempt"] for grade in account.grades("slow")} == {1}


@pytest.mark.parametrize("profile", ["slurm", "allocation"])
def test_a_controller_that_is_told_of_its_preemption_goes_on_afterwards(account, profile):
    """As Slurm announces one: a SIGTERM to the job's steps, while the job is still called running."""
    write_slow_study(account, seconds=2)
    job = submit(account, f"--profile profiles/{profile} --configfile study.yaml")
    wait_for(lambda: grading(account))
    slurm("scancel", "--signal=TERM", job)
    found = wait_until_done(account)
    log = account.run("python scripts/controller.py logs").stdout
    assert found["controller"]["state"] == "COMPLETED", log
    assert int(job_field(job, "Restarts")) == 1
    assert account.verdicts("slow") == SLOW_VERDICTS
    assert {grade["provenance"]["attempt"] for grade in account.grades("slow")} == {1}


def test_a_site_without_its_scratch_directory_is_told_so(account):
    """The settings of a node hold for the controller's own job too: in an allocation the study runs inside it."""
    profile = (account.root / "profiles/allocation/config.yaml").read_text()
    (account.root / "site").mkdir()
    (account.root / "site/config.yaml").write_text(f"{profile}submitit-scratch: /missing/$USER\n")
    submit(account, "--profile site")
    assert wait_until_done(account)["controller"]["state"].startswith("FAILED")
    assert "submitit-scratch: /missing/$USER (/missing/root)" in account.run("python scripts/controller.py logs").stdout
    assert account.grades("starter") == []
