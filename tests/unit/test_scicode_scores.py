"""SciCode's census: indictments by signature, the historic incident, and the numbers of a condition."""

import pytest

from assize import indictment
from assize.benchmarks.scicode.benchmark import manifest
from assize.benchmarks.scicode.scores import summary
from assize.signatures import failures
from assize.study import Episode


def grade(instance: str, *checks: dict, verdict: str = "fail") -> dict:
    episode = {"benchmark": "scicode", "condition": "model", "instance": instance, "repeat": 1}
    return {
        "episode": episode,
        "verdict": verdict,
        "scoring_status": "not_solved",
        "reason": "0 of 9 steps pass",
        "checks": list(checks),
    }


def indict(grades: list[dict]) -> list[dict]:
    return indictment.indict(failures(grades), indictment.read_rules())[0]


def check(id: str = "1.1", signature: str | None = None, origin: str = "tests", **fields) -> dict:
    verdict = "pass" if signature is None else "fail"
    return {"id": id, "verdict": verdict, "signature": signature, "origin": origin, "phase": "case 1"} | fields


NO_TARGET = "NameError: name 'target' is not defined"
NO_MODULE = "ModuleNotFoundError: No module named 'scicode'"


def test_the_historic_incident_is_indicted_with_its_counts():
    """0% pass, 251 times one fault of the harness and 36 times another."""
    checks = [check(f"1.{i}", NO_TARGET) for i in range(251)] + [check(f"2.{i}", NO_MODULE) for i in range(36)]
    found = indict([grade("1", *checks)])
    assert [(item["rule"], item["count"], item["of"]) for item in found] == [
        ("no_target", 251, 287),
        ("no_scicode_module", 36, 287),
    ]
    assert "targets check" in found[0]["remedy"]
    assert len(found[0]["examples"]) == 5


@pytest.mark.parametrize(
    ("kind", "failed"),
    [
        ("no_target", check(signature=NO_TARGET)),
        (
            "no_scicode_module",
            check(signature=f"{NO_MODULE[:-1]}.parse'", origin="harness"),
        ),
        ("import_error", check(signature="ImportError: cannot import name 'simps'", origin="dependencies")),
        ("h5_unreadable", check(signature="KeyError: 'component not found'", origin="harness", phase="targets")),
        ("declared_name", check(signature="NameError: name 'f' is not defined", fault="declared_name")),
        ("fence_line", check(signature="SyntaxError: invalid syntax", fault="fence_line")),
    ],
)
def test_one_such_failure_is_enough(kind, failed):
    assert [item["rule"] for item in indict([grade("1", failed)])] == [kind]


@pytest.mark.parametrize(
    "failed",
    [
        check(signature="AssertionError"),
        check(signature="ModuleNotFoundError: No module named 'torch'", origin="code"),
        check(signature=NO_TARGET, origin="code"),
        check(signature="NameError: name 'helper' is not defined", origin="code"),
        check(signature=None),
    ],
)
def test_what_the_candidate_did_indicts_nobody(failed):
    assert indict([grade("1", failed)]) == []


def test_ten_failures_with_one_signature_are_the_harnesss():
    shared = [check(f"1.{i}", "TypeError: unsupported operand", "code") for i in range(10)]
    assert [item["rule"] for item in indict([grade("1", *shared)])] == ["shared_signature"]
    assert indict([grade("1", *shared[:9])]) == []
    assert indict([grade("1", *shared, check("1.99", "AssertionError"))]) == []


def test_ten_wrong_answers_or_ten_missing_steps_are_not():
    assert indict([grade("1", *(check(f"1.{i}", "AssertionError") for i in range(50)))]) == []
    missing = [check(f"1.{i}", "missing step", "code", phase="extraction") for i in range(50)]
    assert indict([grade("1", *missing)]) == []


def test_denominators_come_from_the_manifest_and_a_missing_grade_counts():
    grades = {Episode("scicode", "model", problem, 1): None for split in manifest().values() for problem in split}
    one = Episode("scicode", "model", "1", 1)
    grades[one] = grade("1", check("1.1", protocol_sensitive=True, other_verdict="fail"), verdict="pass")
    found = summary(grades)
    assert found["test"]["steps"] == [0, 288]
    assert found["dev"]["steps"] == [1, 50]
    assert found["all"]["steps"] == [1, 338]
    assert [found[name]["problems"] for name in ("test", "dev", "all")] == [[0, 65], [1, 15], [1, 80]]
    assert found["test"]["variant_of_291"] == [0, 291]
    assert found["dev"]["steps_other_extraction"] == 0
    assert found["dev"]["protocol_sensitive"] == 1
