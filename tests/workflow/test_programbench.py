"""ProgramBench's local study through the workflow, on this machine."""

import json
import shutil
import subprocess

import pytest
import yaml

from assize.benchmarks.programbench.engine import STUDY
from assize.records import read_record
from programbench_support import LINES, ORG, REPAIRED, SHIPPED, engine_or_skip, grades_of, tasks

__all__ = ["tasks"]

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
