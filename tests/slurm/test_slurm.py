"""The default study on a real Slurm: as root and as an ordinary user. Needs the cluster of tests/cluster/."""

import csv
import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from conftest import IMAGE, copy_project, wait_for
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


def doctor(account, profile: str, arguments="", status=0) -> list[tuple[str, str, str, str]]:
    """(Status, check, place, what was found and its remedy) of each line of the doctor on a node, for a boxed study."""
    folder = account.root / "site"
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text((account.root / "profiles/slurm/config.yaml").read_text() + profile)
    config = yaml.safe_load((account.root / "config/study.yaml").read_text())
    config["benchmarks"]["command"]["sandbox"] = {"lane": "container", "image": IMAGE}
    (folder / "study.yaml").write_text(yaml.safe_dump(config))
    command = f"python scripts/doctor.py --json --profile site --configfile site/study.yaml {arguments}"
    done = account.run(command, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    told = [finding.values() for finding in json.loads(done.stdout)["findings"]]
    return [(status, check, place, f"{found}; {remedy}") for check, found, place, remedy, status in told]


def test_the_doctor_looks_at_a_node_as_a_grade_would_meet_it(ordinary):
    before = ordinary.slurm_jobs()
    lines = doctor(ordinary, "submitit-partition: main\nsubmitit-account: default\nsubmitit-qos: normal\n", "--on-node")
    assert {status for status, *_ in lines} <= {"ok", "absent"}, lines
    login = [check for _, check, place, _ in lines if not place]
    assert login == [
        *("python", "packages", "executor", "settings", "slurm", "partition", "allocation", "account", "qos"),
        *("submission", "queue", "accounting"),
    ]
    node = {check: found for _, check, place, found in lines if place}
    assert len({place for _, _, place, _ in lines if place}) == 1
    assert "bubblewrap starts" in node["user namespaces"]
    assert "podman" in node["engine"]
    assert "rootless" in node["engine"]
    assert "created, run and committed" in node["containers"]
    assert IMAGE in node["images"]
    assert {"subuid", "subgid", "XDG_RUNTIME_DIR", "home", "scratch", "results"} <= set(node)
    assert len(ordinary.slurm_jobs()) == len(before) + 1
    assert not list((ordinary.root / ".snakemake").glob("doctor-*"))
    left = ordinary.run(
        "podman ps --all --quiet --filter label=assize.doctor; podman images --quiet 'localhost/assize-doctor-*'"
    )
    assert left.stdout.strip() == ""


def test_the_doctor_submits_nothing_while_something_is_missing(ordinary):
    before = ordinary.slurm_jobs()
    lines = doctor(ordinary, "submitit-partition: gpu\nsubmitit-account: nobody\n", "--on-node", status=3)
    missing = {check: found for status, check, _, found in lines if status == "missing"}
    assert set(missing) == {"partition", "allocation", "account", "submission"}
    assert "no gpu" in missing["partition"]
    assert "Invalid partition" in missing["submission"]
    assert ordinary.slurm_jobs() == before


def test_the_doctor_names_the_setting_that_fails_on_the_node(ordinary):
    (finding,) = (
        line for line in doctor(ordinary, "submitit-scratch: /missing/$USER\n", "--on-node", 3) if line[0] != "ok"
    )
    assert finding[:2] == ("missing", "node")
    assert "submitit-scratch: /missing/$USER (/missing/assize)" in finding[3]
