"""The gate: which instances calibration admits."""

import pytest

from assize.admission import check, decide
from assize.errors import GateClosed, UsageError


def record(passed=True, reasons=(), flags=()):
    return {"passed": passed, "reasons": list(reasons), "flags": list(flags)}


def test_all_passed_opens_and_flags_are_gathered():
    decision = decide({"a": [record(flags=["oracle_exposed"]), record()]})
    assert decision == {"status": "open", "reasons": [], "flags": ["oracle_exposed"]}


def test_a_failed_calibration_bars_with_its_reason():
    decision = decide({"a": [record(False, ["the reference is fail"]), record(False, ["the reference is fail"])]})
    assert decision == {"status": "barred", "reasons": ["the reference is fail"], "flags": []}


def test_a_gate_over_several_instances_names_the_one_that_failed():
    decision = decide({"a": [record()], "b": [record(False, ["no compiler"])]})
    assert decision["reasons"] == ["b: no compiler"]


def test_a_reference_that_passes_sometimes_is_barred_as_flaky():
    decision = decide({"a": [record(), record(False, ["x"])]})
    assert decision["reasons"][-1] == "flaky: the reference passed 1 of 2 repetitions"


def test_what_was_not_calibrated_is_barred():
    assert decide({"a": []})["reasons"] == ["it was not calibrated"]


def test_a_gate_of_other_terms_or_a_closed_one_stops():
    gate = {"benchmark": "command", "instance": "a", "terms_digest": "1" * 64, "status": "open", "reasons": []}
    check(gate, "1" * 64)
    with pytest.raises(UsageError, match="of terms 111111111111"):
        check(gate, "2" * 64)
    with pytest.raises(GateClosed, match="command/a: no compiler"):
        check(gate | {"status": "barred", "reasons": ["no compiler"]}, "1" * 64)


def test_a_repetition_that_could_not_be_run_bars_and_does_not_make_the_reference_flaky():
    failed = record(passed=False, reasons=["infra: no image"])
    gate = decide({"i": [record(), failed]})
    assert (gate["status"], gate["reasons"]) == ("barred", ["infra: no image"])
