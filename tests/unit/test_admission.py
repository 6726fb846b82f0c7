"""The gate: which instances calibration admits."""

import pytest

from assize.admission import check, decide
from assize.errors import GateClosed


def record(passed=True, reasons=(), flags=()):
    return {"passed": passed, "reasons": list(reasons), "flags": list(flags)}


def test_all_passed_opens_and_flags_are_gathered():
    decision = decide({"a": [record(flags=["oracle_exposed"]), record()], "b": [record()]}, "each")
    assert decision == {"status": "open", "admitted": ["a", "b"], "barred": {}, "flags": {"oracle_exposed": ["a"]}}


def test_each_bars_only_the_instance_that_failed_and_all_closes():
    calibrations = {"a": [record()], "b": [record(False, ["the reference is fail"])]}
    decision = decide(calibrations, "each")
    assert (decision["status"], decision["admitted"]) == ("open", ["a"])
    assert decision["barred"] == {"b": ["the reference is fail"]}
    assert decide(calibrations, "all")["status"] == "closed"


def test_a_reference_that_passes_sometimes_is_barred_as_flaky():
    decision = decide({"a": [record(), record(False, ["x"])], "b": [record()]}, "each")
    assert decision["barred"]["a"][-1] == "flaky: the reference passed 1 of 2 repetitions"


def test_none_admitted_closes():
    assert decide({"a": [record(False, ["x"])]}, "each")["status"] == "closed"
    assert decide({"a": []}, "each")["barred"] == {"a": ["it was not calibrated"]}


def test_a_gate_of_other_terms_or_a_closed_one_stops():
    gate = {"terms_digest": "1" * 64, "status": "open", "barred": {}}
    check(gate, "command", "1" * 64)
    with pytest.raises(GateClosed, match="of terms 111111111111"):
        check(gate, "command", "2" * 64)
    closed = gate | {"status": "closed", "barred": {"a": ["no compiler"]}}
    with pytest.raises(GateClosed, match="a: no compiler"):
        check(closed, "command", "1" * 64)
