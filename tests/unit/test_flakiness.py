"""What ended differently twice, told apart: a grader that wavers, a model that answers twice, a shaky reference."""

from assize.benchmarks.programbench.calibration import record
from assize.flakiness import calibration_table, unlike_repeats


def grade(repeat: int, verdict: str, snapshot: str, **checks) -> dict:
    return {
        "episode": {"benchmark": "b", "condition": "c", "instance": "i", "repeat": repeat},
        "verdict": verdict,
        "checks": [{"id": name, "verdict": value} for name, value in checks.items()],
        "provenance": {"snapshot": snapshot},
    }


def test_the_same_bytes_judged_differently_are_the_graders_flakiness():
    (found,) = unlike_repeats([grade(1, "fail", "a", x="pass", y="fail"), grade(2, "fail", "a", x="fail", y="fail")])
    assert (found["same_snapshot"], found["checks"], found["verdicts"]) == (True, ["x"], {"fail": 2})


def test_unlike_work_that_ends_differently_is_no_flakiness():
    (found,) = unlike_repeats([grade(1, "pass", "a"), grade(2, "fail", "b")])
    assert (found["same_snapshot"], found["verdicts"]) == (False, {"fail": 1, "pass": 1})


def test_repeats_that_agree_and_voids_say_nothing():
    assert unlike_repeats([grade(1, "pass", "a"), grade(2, "pass", "b"), grade(3, "void", "a")]) == []


def calibration(repetition: int, passed: bool, **checks) -> dict:
    found = [{"id": name, "verdict": verdict} for name, verdict in checks.items()]
    common = {"benchmark": "b", "instance": "i", "repetition": repetition, "seconds": 1.0, "flags": []}
    return common | {"passed": passed, "reasons": [] if passed else ["no"], "reference": {"checks": found}}


def test_a_reference_that_passes_now_and_then_is_flaky_and_its_checks_are_named():
    gates = {("b", "i"): {"status": "barred", "reasons": ["flaky"]}, ("b", "j"): {"status": "open", "reasons": []}}
    first, second = calibration_table([calibration(1, True, x="pass"), calibration(2, False, x="fail")], gates)
    assert (first["flaky"], first["passed"], first["repetitions"], first["checks"]) == (True, 1, 2, ["x"])
    assert (first["status"], second["status"], second["repetitions"]) == ("barred", "open", 0)
    (steady,) = calibration_table([calibration(1, False, x="fail"), calibration(2, False, x="fail")], {})
    assert (steady["flaky"], steady["status"]) == (False, "missing")
    lost = calibration(2, False) | {"reasons": ["infra: no image"], "reference": {}}
    (unlucky,) = calibration_table([calibration(1, True, x="pass"), lost], {})
    assert (unlucky["flaky"], unlucky["passed"], unlucky["repetitions"]) == (False, 1, 2)


def programbench(repetition: int, failed: int | None, valid: bool = True) -> dict:
    """A calibration as ProgramBench writes it: of the reference's tests, the failures alone."""
    found = [{"id": f"b/t{number}", "verdict": "fail" if number == failed else "pass"} for number in range(20)]
    passed = sum(item["verdict"] == "pass" for item in found)
    body = {
        **dict.fromkeys(("score", "analysis_score"), passed / 20),
        **{"verdict": "fail", "valid": valid, "scoring_status": "not_resolved", "reason": "", "sandbox": {}},
        "checks": [item | {"signature": None} for item in found if valid],
        "provenance": {},
        "detail": {
            **{"error_code": None, "branch_errors": {}, "branches": {}, "statuses": {}, "warnings": []},
            **{"passed": passed, "scored": 20},
        },
    }
    return record(body, 0.9) | {"benchmark": "programbench", "instance": "i", "repetition": repetition, "seconds": 1.0}


def test_a_reference_of_programbench_that_fails_other_tests_each_time_is_flaky():
    (line,) = calibration_table([programbench(1, 1), programbench(2, 2)], {})
    assert (line["flaky"], line["checks"], line["passed"]) == (True, ["b/t1", "b/t2"], 2)
    (line,) = calibration_table([programbench(1, 1), programbench(2, None)], {})
    assert (line["flaky"], line["checks"]) == (True, ["b/t1"])
    (line,) = calibration_table([programbench(1, 1), programbench(2, 1)], {})
    assert (line["flaky"], line["checks"]) == (False, [])
    # What was not judged passed nothing.
    (line,) = calibration_table([programbench(1, 1), programbench(2, 1, valid=False)], {})
    assert line["checks"] == []
