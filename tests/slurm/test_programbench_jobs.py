"""ProgramBench in Slurm's allocations, by an ordinary user. Needs the cluster of tests/cluster/."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import yaml

from assize.records import read_record
from conftest import copy_project, wait_for
from programbench_support import LINES, REPAIRED, grades_of, ordinary_store
from slurm_support import ENVIRONMENT, Account, needs_cluster

__all__ = ["ordinary_store"]

pytestmark = needs_cluster


@pytest.fixture(scope="module")
def ordinary(ordinary_store):
    """The user ``assize``, with the local tasks in a store of their own and a study of both."""
    root = Path("/home/assize/assize-programbench")
    shutil.rmtree(root, ignore_errors=True)
    copy_project(root)
    config = yaml.safe_load((root / "config/studies/programbench-local.yaml").read_text())
    config["name"] = "programbench-slurm"
    config["benchmarks"]["programbench"]["calibration"] = {"repetitions": 1}
    agent = r"printf '#!/bin/sh\nprintf \"#!/bin/sh\\necho 5\\n\" >executable; chmod +x executable\n' >compile.sh"
    config["conditions"] = {
        "correct": config["conditions"]["correct"],
        # What a solver commits, and pushes to main.
        "agent": {
            "solver": "command",
            "command": f"{agent} && git add . && git commit -qm x && git push -q origin HEAD:main",
        },
        "compile-hang": config["conditions"]["compile-hang"],
    }
    (root / "study.yaml").write_text(yaml.safe_dump(config))
    subprocess.run(["chown", "-R", "assize:assize", root], check=True)
    account = Account("assize", root, root / ".venv")
    account.run("make setup-programbench-local PYTHON=/usr/bin/python3")
    yield account
    shutil.rmtree(root, ignore_errors=True)


def left_by(account) -> list[str]:
    """What evaluators and solvers of the study left in the account's store, and in the node's temporary folder."""
    mine = "--filter label=assize.study=programbench-slurm"
    ids = account.run(f"podman ps --all --quiet {mine}; podman images --quiet {mine}").stdout.split()
    folders = temporary_folder(account).glob("*")
    return ids + [str(path) for path in folders if path.suffix != ".lock"]


def temporary_folder(account) -> Path:
    """Where evaluators of the account keep their temporary files, as they themselves say."""
    place = "import sys; sys.path.insert(0, 'scripts'); from assize.resources import own_folder; print(own_folder())"
    return Path(account.run(f'python -c "{place}"').stdout.strip())


def test_each_evaluation_is_a_job_of_its_own_and_no_limit_is_claimed(ordinary):
    before = ordinary.slurm_jobs()
    grades = [
        f"results/programbench-slurm/episodes/programbench/{condition}/{instance}/1/grade.json"
        for condition in ("correct", "agent")
        for instance in (LINES, REPAIRED)
    ]
    ordinary.snakemake(f"{' '.join(grades)} --configfile study.yaml")
    made = {job for job in ordinary.slurm_jobs() if job not in before}
    results = ordinary.root / "results" / "programbench-slurm"
    found = grades_of(results)
    assert {key: grade["scoring_status"] for key, grade in found.items()} == {
        ("correct", LINES): "resolved",
        ("correct", REPAIRED): "resolved",
        ("agent", LINES): "not_resolved",
        ("agent", REPAIRED): "not_resolved",
    }
    calibrations = [json.loads(path.read_text()) for path in results.glob("calibration/programbench/*/1.json")]
    allocations = [record["slurm"] for record in calibrations]
    allocations += [grade["provenance"]["slurm"] for grade in found.values()]
    for slurm in allocations:
        assert (slurm["cpus"], slurm["memory_mb"], slurm["partition"]) == (16, 30720, "main")
    jobs = [slurm["job_id"] for slurm in allocations]
    assert len(set(jobs)) == len(jobs) == 6
    # With them, four episodes and one look at the images.
    assert len(made) == 11
    for record in [*calibrations, *(grade["provenance"] for grade in found.values())]:
        sandbox = record["sandbox"]
        assert (sandbox["engine_limits"], sandbox["network"], sandbox["workers"]) == (None, "none", 16)
    assert {grade["provenance"]["resource_mode"] for grade in found.values()} == {"slurm"}
    snapshot = json.loads((results / f"episodes/programbench/agent/{LINES}/1/snapshot.json").read_text())
    assert len(snapshot["detail"]["commit"]) == 40
    assert left_by(ordinary) == []
    # It would have been seen.
    planted = temporary_folder(ordinary) / "planted"
    planted.mkdir()
    assert left_by(ordinary) == [str(planted)]
    planted.rmdir()


def test_what_a_cancelled_grade_left_is_swept_by_the_next(ordinary):
    grade = f"results/programbench-slurm/episodes/programbench/compile-hang/{REPAIRED}/1/grade.json"
    before = ordinary.slurm_jobs()
    script = f". {ENVIRONMENT}; cd {ordinary.root}; PATH={ordinary.environment}/bin:$PATH; exec snakemake {grade}"
    script += " --retries 0 --profile profiles/slurm --configfile study.yaml"
    controller = subprocess.Popen(
        ["runuser", "-u", "assize", "--", "bash", "-c", script], cwd="/", stderr=subprocess.PIPE, text=True
    )
    job = wait_for(lambda: hanging_job(ordinary, before), 240)
    ordinary.run(f"scancel {job}")
    _, errors = controller.communicate(timeout=120)
    assert controller.returncode == 1, errors
    assert f"Job {job} of grade-programbench: CANCELLED" in errors
    assert not (ordinary.root / grade).exists()
    ordinary.snakemake(f"{grade} --configfile study.yaml")
    assert read_record(ordinary.root / grade, "grade")["scoring_status"] == "build_timed_out"
    assert left_by(ordinary) == []


def hanging_job(account, before) -> str | None:
    """The id of the new job in which the grade's build hangs, or None."""
    episode = f"compile-hang/{REPAIRED}/1"
    for process in psutil.process_iter(["cmdline", "username"]):
        command = process.info["cmdline"] or []
        if process.info["username"] == account.user and episode in command and "grade" in command:
            time.sleep(4)
            jobs = account.run("squeue --noheader --states=RUNNING --format=%A").stdout.split()
            return next((job for job in jobs if job not in before), None)
    return None
