"""The default study on a real Slurm: as root and as an ordinary user. Needs the cluster of tests/cluster/."""

import csv
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import copy_project, wait_for
from slurm_support import Account, needs_cluster

pytestmark = needs_cluster


@pytest.fixture(scope="module")
def ordinary():
    """The user ``assize``, set up as the README says. Its Python is the system's: root's may be out of its reach."""
    root = Path("/home/assize/assize-test")
    shutil.rmtree(root, ignore_errors=True)
    copy_project(root)
    shutil.chown(root, "assize", "assize")
    subprocess.run(["chown", "-R", "assize:assize", root], check=True)
    account = Account("assize", root, root / ".venv")
    account.run("make setup PYTHON=/usr/bin/python3")
    yield account
    shutil.rmtree(root, ignore_errors=True)


def check_grades(account, study, jobs: set[str]) -> None:
    """Every grade was made in an allocation of the study's size, in a job that accounting knows as completed."""
    grades = account.grades(study)
    assert len(grades) > 0
    for grade in grades:
        provenance = grade["provenance"]
        assert provenance["resource_mode"] == "slurm"
        slurm = provenance["slurm"]
        assert (slurm["cpus"], slurm["memory_mb"], slurm["partition"]) == (16, 30720, "main")
        assert slurm["job_id"] in jobs
        assert slurm["node"]
        assert provenance["sandbox"]["lane"] == "bubblewrap"
        assert "engine_limits" not in provenance["sandbox"]
    rows = list(csv.DictReader((account.root / "results" / study / "census" / "grades.csv").open()))
    assert len(rows) == len(grades)


def test_an_ordinary_user_runs_the_default_study_and_reruns_one_grade(ordinary):
    before = ordinary.slurm_jobs()
    ordinary.snakemake()
    made = {job: state for job, state in ordinary.slurm_jobs().items() if job not in before}
    # 12 calibrations, 24 episodes and 24 grades, at most 25 a Slurm job.
    assert len(made) == 3
    # Nothing of the executor's is left where nothing failed.
    assert not (ordinary.root / ".snakemake" / "submitit").exists()
    wait_for(lambda: {ordinary.slurm_jobs()[job] for job in made} == {"COMPLETED"})
    check_grades(ordinary, "starter", set(made))
    census = json.loads((ordinary.root / "results/starter/census/census.json").read_text())
    verdicts = {row["condition"]: (row["passed"], row["failed"], row["void"]) for row in census["conditions"]}
    assert verdicts == {"reference": (6, 0, 0), "noop": (0, 6, 0), "wrong": (0, 6, 0), "incomplete": (5, 0, 1)}

    target = "results/starter/episodes/command/wrong/run-length-c/1/grade.json"
    stamps = {path: path.stat().st_mtime_ns for path in (ordinary.root / "results").rglob("*.json")}
    before = ordinary.slurm_jobs()
    (ordinary.root / target).unlink()
    ordinary.snakemake(target)
    assert len(ordinary.slurm_jobs()) == len(before) + 1
    changed = [path for path, stamp in stamps.items() if path.stat().st_mtime_ns != stamp]
    assert changed == [ordinary.root / target]
    ordinary.snakemake()
    assert len(ordinary.slurm_jobs()) == len(before) + 1
