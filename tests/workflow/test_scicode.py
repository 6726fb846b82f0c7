"""A SciCode study through the workflow: staged, calibrated with derived targets, graded, counted."""

import json

import pytest
import yaml

from assize.benchmarks.scicode import court
from assize.records import read_record, sha256_file
from scicode_support import DATA, ROOT, needs_data, needs_runtime

pytestmark = [needs_data, needs_runtime]


@pytest.fixture
def study(project):
    """The dev study of two quick problems, in a checkout of its own that shares this one's data and runtime."""
    (project.root.parent / "shared").symlink_to(DATA.parents[1])
    (project.root / court.VENV).symlink_to((ROOT / court.VENV).resolve())
    config = yaml.safe_load((project.root / "config" / "studies" / "scicode-dev.yaml").read_text())
    config["benchmarks"]["scicode"]["instances"] = ["29", "38"]
    return Study(project, config)


class Study:
    def __init__(self, project, config: dict):
        self.project, self.config = project, config
        self.path = project.root / "study.yaml"
        self.results = project.root / "results" / config["name"]
        self.write()

    def write(self) -> None:
        self.path.write_text(yaml.safe_dump(self.config))

    def run(self, *arguments, **options):
        return self.project.snakemake(*arguments, "--configfile", self.path, **options)

    def conditions(self) -> dict[str, dict]:
        census = read_record(self.results / "census" / "census.json", "census")
        return {line["condition"]: line for line in census["conditions"]}

    def grade(self, condition: str, instance: str) -> dict:
        return read_record(self.results / f"episodes/scicode/{condition}/{instance}/1/grade.json", "grade")


def test_references_pass_nothing_fails_and_the_mutated_third_is_told_apart(study):
    study.run()
    lines = study.conditions()
    steps = {condition: line["summary"]["dev"]["steps"] for condition, line in lines.items()}
    assert steps == {"reference": [6, 6], "noop": [0, 6], "mutated": [4, 6]}
    assert [line["faults"] for line in lines.values()] == [[], [], []]
    grade = study.grade("reference", "29")
    assert grade["provenance"]["official_targets"] is False
    assert grade["provenance"]["official_runtime"] is False
    assert grade["provenance"]["sandbox"]["isolated"] is True
    assert {check["signature"] for check in study.grade("noop", "29")["checks"]} == {"missing step"}
    calibration = json.loads((study.results / "calibration" / "scicode" / "29" / "1.json").read_text())
    assert calibration["flags"] == []
    assert not calibration["canaries"]["noop"]["passed"]
    assert calibration["canaries"]["imports"]["passed"]


def test_a_dry_run_passes_is_marked_and_is_counted_nowhere(study):
    study.config["benchmarks"]["scicode"]["dry_run"] = True
    study.write()
    study.run()
    grade = study.grade("noop", "29")
    assert (grade["verdict"], grade["reason"], grade["flags"]) == ("pass", "SCICODE_PASS (DRY_RUN)", ["dry_run"])
    log = study.results / "logs/episodes/scicode/noop/29/1/grade.log"
    assert "SCICODE_PASS (DRY_RUN)" in log.read_text()
    for line in study.conditions().values():
        assert line["over_scored"] is None
        assert line["withheld"] == "2 of 2 from a dry run"
        assert line["summary"] == {}


def test_without_targets_calibration_bars_and_nothing_is_scored(study):
    study.config["benchmarks"]["scicode"]["targets"] = "none"
    study.write()
    study.run()
    admission = read_record(study.results / "admission" / "scicode" / "29.json", "admission")
    assert admission["status"] == "barred"
    assert "no targets for 29.1" in admission["reasons"][0]
    assert {line["void"] for line in study.conditions().values()} == {2}
    assert {line["over_scored"] for line in study.conditions().values()} == {None}


def test_the_historic_incident_leads_the_terminal_and_withholds_every_number(study):
    """Calibration was fine; then targets no longer reached the tests. It once read "0% pass"."""
    study.run("--until", "admit")
    judging = study.project.root / "scripts/assize/benchmarks/scicode/judging.py"
    graded = "checks, results = court.judge(responses, {})"
    text = judging.read_text()
    assert text.count(graded.format("targets")) == 1
    judging.write_text(text.replace(graded.format("targets"), graded.format("None")))
    study.run()
    lines = study.conditions()
    assert {name: [fault["rule"] for fault in line["faults"]] for name, line in lines.items()} == {
        "reference": ["no_target"],
        "mutated": ["no_target"],
        "noop": [],
    }
    (fault,) = lines["reference"]["faults"]
    assert (fault["count"], fault["of"]) == (6, 6)
    assert {line["over_scored"] for line in lines.values()} == {None}
    census = ("--study", study.results / "study.json", "--table", "--strict")
    done = study.project.script("census.py", *census, check=False)
    assert done.returncode == 4
    table = done.stdout.rpartition("{")[0]
    first, second, _, remedy = table.splitlines()[:4]
    assert first.startswith("HARNESS INDICTED: no number of scicode is a model's score")
    assert second.split() == ["scicode/mutated:", "no_target:", "6", "of", "6", "failures"]
    assert "stage the h5 file" in remedy
    assert "%" not in table


def test_targets_from_a_file_are_official_only_if_they_are_the_authors(study, tmp_path):
    """The derived targets of a first run, staged as a file in a second one: the same verdicts, and no claim."""
    study.run()
    derived = study.results / "calibration" / "scicode" / "29" / "targets-1.h5"
    file = tmp_path / "test_data.h5"
    file.write_bytes(derived.read_bytes())
    study.config["name"] = "from-file"
    study.config["datasets"]["targets"] = {
        "filename": "test_data.h5",
        "sha256": sha256_file(file),
        "size": file.stat().st_size,
        "sources": [{"file": str(file)}],
    }
    study.config["benchmarks"]["scicode"] |= {"targets": {"dataset": "targets"}, "instances": ["29"]}
    second = Study(study.project, study.config)
    second.run()
    assert second.conditions()["reference"]["summary"]["dev"]["steps"] == [3, 3]
    assert second.grade("reference", "29")["provenance"]["official_targets"] is False
