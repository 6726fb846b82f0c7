"""Two grades of the same work: the same, changed, or not to be compared."""

import pytest

from assize.differences import differences
from assize.errors import UsageError
from assize.records import ROOT
from assize.rerun import incomparable, judged, profile_mode


def grade(verdict="fail", snapshot="a", **fields) -> dict:
    score = {"pass": 1.0, "fail": 0.0, "void": None}[verdict]
    return {
        "verdict": verdict,
        "valid": verdict != "void",
        "score": score,
        "analysis_score": score,
        "scoring_status": "infra" if verdict == "void" else verdict,
        "reason": "why",
        "tamper": [],
        "flags": [],
        "checks": [{"id": "1", "verdict": verdict, "signature": "KeyError: 0x7f01", "seconds": 0.1}],
        "provenance": {"snapshot": snapshot},
    } | fields


def test_times_nodes_and_wordings_are_no_judgement():
    other = grade(reason="in other words", checks=[{"id": "1", "verdict": "fail", "signature": None, "seconds": 9}])
    assert judged(grade()) == judged(other)


@pytest.mark.parametrize(
    ("other", "place"),
    [
        (grade("pass"), "verdict"),
        (grade(tamper=["early_exit"]), "tamper"),
        (grade(scoring_status="grader_timed_out"), "scoring_status"),
        (grade(checks=[{"id": "1", "verdict": "pass"}]), "checks.1"),
        (grade(checks=[]), "checks.1"),
    ],
)
def test_another_judgement_is_a_change_and_is_named(other, place):
    assert place in [path for path, _, _ in differences(judged(grade()), judged(other))]


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (grade(), grade(), None),
        (grade(), grade("pass"), None),
        (grade("void", scoring_status="no_submission"), grade("void", scoring_status="no_submission"), None),
        (grade(), None, "it was not graded again: see the log"),
        (grade(), grade(snapshot="b"), "another snapshot was graded"),
        (grade("void"), grade(), "the original is void: why"),
        (grade(), grade("void"), "the rerun is void: why"),
    ],
)
def test_what_was_not_judged_twice_cannot_be_compared(first, second, why):
    assert incomparable(first, second) == why


def test_the_profile_says_the_resource_mode(tmp_path):
    assert profile_mode(ROOT / "profiles" / "local") == "none"
    assert profile_mode(ROOT / "profiles" / "slurm") == "slurm"
    (tmp_path / "config.yaml").write_text("config: {resource_mode: container}\n")
    assert profile_mode(tmp_path) == "container"
    (tmp_path / "config.yaml").write_text("cores: 1\n")
    assert profile_mode(tmp_path) is None
    (tmp_path / "config.yaml").write_text("config: [resource_mode=mood]\n")
    with pytest.raises(UsageError, match="mood"):
        profile_mode(tmp_path)
