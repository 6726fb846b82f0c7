"""A suite that breaks the form is refused with the task and the field."""

import copy
import json

import pytest

from assize.benchmarks.command.probe import PROBES, probe_files
from assize.benchmarks.command.suite import read_suite, suite_faults
from assize.errors import UsageError
from assize.records import ROOT

STARTER = json.loads((ROOT / "config" / "suites" / "starter.json").read_text())


def broken(change):
    suite = copy.deepcopy(STARTER)
    change(suite)
    return suite_faults(suite)


@pytest.mark.parametrize("field", ["id", "instruction", "grader_cmd", "grader_files", "reference_files", "guards"])
def test_a_missing_field_is_named_with_its_task(field):
    (fault,) = broken(lambda suite: suite["tasks"][1].pop(field))
    assert fault.startswith(
        "task number 1: missing id" if field == "id" else f"task word-count-python: missing {field}"
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda s: s["tasks"][1].update(id=s["tasks"][0]["id"]), "task interval-merge-python: id: it is given twice"),
        (lambda s: s["tasks"][0].update(grader_cmd=3), "task interval-merge-python: grader_cmd: 3 has the wrong type"),
        (lambda s: s["tasks"][0]["guards"].update(min_guard_count=0), "guards.min_guard_count: 0 is not allowed"),
        (lambda s: s["tasks"][0].update(timeout_s=0), "timeout_s: 0 is not allowed"),
        (lambda s: s["tasks"][0].update(id="../x"), "id:"),
        (lambda s: s["tasks"][0]["grader_files"].update({"../x": ""}), "grader_files: path '../x' climbs out"),
        (lambda s: s["tasks"][0]["reference_files"].update({"a": 1}), "reference_files.a: 1 has the wrong type"),
        (lambda s: s.update(grading="checks"), "grading:"),
        (lambda s: s.update(tasks=[]), "tasks:"),
    ],
)
def test_a_fault_names_task_and_field(change, expected):
    assert any(expected in fault for fault in broken(change)), broken(change)


def test_another_file_than_the_pinned_one_is_refused():
    path = ROOT / "config" / "suites" / "starter.json"
    suite = read_suite(path)
    assert read_suite(path, suite.sha256) == suite
    with pytest.raises(UsageError, match="the study's terms say 0000"):
        read_suite(path, "0" * 64)


def test_the_starter_suite_covers_its_languages_and_runs_every_candidate_out_of_reach():
    suite = read_suite(ROOT / "config" / "suites" / "starter.json")
    assert len(suite.tasks) >= 6
    assert {"python", "bash", "c"} < {task.language for task in suite.tasks.values()}
    for task in suite.tasks.values():
        assert '"run-candidate"' in task.grader_files["grade.py"]
        assert probe_files(task.reference_files) is not None


def test_a_language_without_a_probe_is_not_called_hidden():
    assert probe_files({"main.zig": "..."}) is None
    assert probe_files({"Makefile": "all:", "main.c": "..."}) == {"Makefile": "all:", "main.c": PROBES[".c"]}
