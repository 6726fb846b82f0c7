"""ProgramBench's local study through the workflow: on this machine, and by an ordinary user in Slurm's allocations."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import yaml

from assize.benchmarks.programbench.engine import STUDY
from assize.records import read_record
from conftest import copy_project, wait_for
from programbench_support import LINES, ORG, REPAIRED, SHIPPED, engine_or_skip, ordinary_store, tasks
from slurm_support import ENVIRONMENT, Account

__all__ = ["ordinary_store", "tasks"]

# condition: instance -> (valid, analysis score, scoring status).
NOT_BUILT = dict.fromkeys((LINES, REPAIRED), (True, 0.0, "build_failed"))
PASSED = dict.fromkeys((LINES, REPAIRED), (True, 1.0, "resolved"))
EXPECTED = {
    "reference": PASSED,
    "noop": NOT_BUILT,
    "correct": PASSED,
    "incorrect": dict.fromkeys((LINES, REPAIRED), (True, 0.0, "not_resolved")),
    "half-right": {LINES: (True, 16 / 39, "not_resolved"), REPAIRED: (True, 2 / 3, "not_resolved")},
    "compile-failure": NOT_BUILT,
    "compile-hang": dict.fromkeys((LINES, REPAIRED), (True, 0.0, "build_timed_out")),
    # Bytes that are no text are graded like all others: one program prints them where a test looks.
    "non-utf8": {LINES: (True, 1.0, "resolved"), REPAIRED: (True, 2 / 3, "not_resolved")},
    "executable-directory": dict.fromkeys((LINES, REPAIRED), (True, 0.0, "no_executable")),
    "hanging-test": {LINES: (True, 38 / 39, "not_resolved"), REPAIRED: (True, 2 / 3, "not_resolved")},
    # It works where pytest's root is the candidate's.
    "root-conftest": {LINES: (True, 1.0, "resolved"), REPAIRED: (True, 0.0, "not_resolved")},
    "root-pyproject": dict.fromkeys((LINES, REPAIRED), (False, None, "naming_artefact")),
}
FLAGGED = {"root-conftest": ["root_file:conftest.py"], "root-pyproject": ["root_file:pyproject.toml"]}


def grades_of(results: Path) -> dict[tuple[str, str], dict]:
    found = [read_record(path, "grade") for path in results.glob("episodes/programbench/*/*/1/grade.json")]
    return {(grade["episode"]["condition"], grade["episode"]["instance"]): grade for grade in found}


@pytest.fixture
def local(project, tasks):
    """A checkout in which `make setup-programbench-local` has run."""
    folder = project.root / ".programbench-local"
    shutil.copytree(tasks, folder)
    made = ["--engine", engine_or_skip(), "--tasks", folder / "tasks", "--blobs", folder / "blobs", "manifest"]
    made += ["--pin-images", "--images", ORG, "--output", folder / "manifest.json"]
    project.script("programbench_adapter.py", *made)
    return project


def test_every_condition_of_the_local_study_ends_in_its_status(local):
    project = local
    project.snakemake("--configfile", "config/studies/programbench-local.yaml")
    results = project.root / "results" / "programbench-local"
    grades = grades_of(results)
    assert set(grades) == {(condition, instance) for condition, ends in EXPECTED.items() for instance in ends}
    for (condition, instance), grade in grades.items():
        ended = grade["valid"], grade["analysis_score"], grade["scoring_status"]
        assert ended == (*EXPECTED[condition][instance][:1], pytest.approx(EXPECTED[condition][instance][1]), ended[2])
        assert ended[2] == EXPECTED[condition][instance][2], (condition, instance, grade["reason"])
        assert grade["tamper"] == FLAGGED.get(condition, [])
        assert grade["provenance"]["resource_mode"] == "none"
        assert grade["provenance"]["sandbox"]["engine_limits"] is None
        assert (grade["provenance"]["seconds"], grade["provenance"]["attempt"]) == ({"compile": 20, "run_tests": 60}, 1)
        assert "evidence/eval.json" in grade["evidence"]
    census = read_record(results / "census" / "census.json", "census")
    counts = {row["condition"]: (row["passed"], row["failed"], row["void"]) for row in census["conditions"]}
    assert counts["reference"] == (2, 0, 0)
    assert counts["compile-hang"] == (0, 2, 0)
    assert counts["root-pyproject"] == (0, 0, 2)
    assert census["indicted"] is False
    # Told of each task, once; it withholds nothing.
    assert census["oracle_exposed"] == [f"programbench/{instance}" for instance in (LINES, REPAIRED)]
    assert {grade["oracle_exposed"] for grade in grades.values()} == {True}
    assert leftovers("programbench-local") == []
    # A second run has nothing to do.
    assert project.jobs("--configfile", "config/studies/programbench-local.yaml") == {}


def leftovers(study: str) -> list[str]:
    """Containers and images that carry the study's label."""
    mine = ["--filter", f"label={STUDY}={study}"]
    found = []
    for listing in (["ps", "--all", "--quiet"], ["images", "--quiet"]):
        command = [engine_or_skip(), *listing, *mine]
        found += subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return found


def test_one_reference_that_fails_closes_the_gate_for_all_after_all_were_calibrated(local):
    config = yaml.safe_load((local.root / "config/studies/programbench-local.yaml").read_text())
    config["benchmarks"]["programbench"] |= {"instances": [REPAIRED, SHIPPED], "calibration": {"repetitions": 1}}
    config["conditions"] = {"correct": config["conditions"]["correct"]}
    (local.root / "study.yaml").write_text(yaml.safe_dump(config))
    local.snakemake("--configfile", "study.yaml")
    results = local.root / "results" / "programbench-local"
    passed = {
        name: read_record(results / f"calibration/programbench/{name}/1.json", "calibration")["passed"]
        for name in (REPAIRED, SHIPPED)
    }
    assert passed == {REPAIRED: True, SHIPPED: False}
    for name in (REPAIRED, SHIPPED):
        gate = read_record(results / f"admission/programbench/{name}.json", "admission")
        assert gate["status"] == "barred"
        assert any("naming_artefact" in reason for reason in gate["reasons"])
        assert all(reason.startswith(SHIPPED) for reason in gate["reasons"])
        prepared = read_record(results / f"episodes/programbench/correct/{name}/1/prepared.json", "prepared")
        assert (prepared["status"], prepared["task"]) == ("void", {})
    assert {grade["scoring_status"] for grade in grades_of(results).values()} == {"barred"}
    assert leftovers("programbench-local") == []


def test_a_bundle_is_graded_again_with_its_reference(local):
    """The reference hands in nothing: that its condition is one must outlive the freezing of its work."""
    config = yaml.safe_load((local.root / "config/studies/programbench-local.yaml").read_text())
    config["benchmarks"]["programbench"] |= {"instances": [LINES], "calibration": {"repetitions": 1}}
    config["conditions"] = {name: config["conditions"][name] for name in ("reference", "compile-failure")}
    (local.root / "study.yaml").write_text(yaml.safe_dump(config))
    local.snakemake("--configfile", "study.yaml")
    bundle = json.loads(local.script("reproduce.py", "bundle", "results/programbench-local").stdout)["output"]
    # The tests' own files are in folders of this machine, and not in the bundle.
    done = local.script("reproduce.py", "rerun", bundle, check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (4, "not_trusted")
    comparison = json.loads(local.script("reproduce.py", "rerun", bundle, "--trust").stdout)["comparison"]
    assert (comparison["identical"], comparison["planned"], comparison["changed"]) == (2, 2, [])
    again = {key: grade["verdict"] for key, grade in grades_of(local.root / "results/programbench-local-rerun").items()}
    assert again == {("reference", LINES): "pass", ("compile-failure", LINES): "fail"}


# ------------------------------------------------------------ as an ordinary user, on Slurm

on_slurm = [
    pytest.mark.skipif(not ENVIRONMENT.exists(), reason="no Slurm: bring one up with tests/cluster/up, as root"),
    pytest.mark.skipif(os.geteuid() != 0, reason="the test cluster's users are root and assize: run the tests as root"),
]


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


@pytest.mark.usefixtures("whole_cluster")
class TestOnSlurm:
    pytestmark = on_slurm

    def test_each_evaluation_is_a_job_of_its_own_and_no_limit_is_claimed(self, ordinary):
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

    def test_what_a_cancelled_grade_left_is_swept_by_the_next(self, ordinary):
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
