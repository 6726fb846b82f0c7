"""From a grader's exit to a verdict."""

import pytest

from assize.benchmarks.command.grading import judge, parse_reward
from assize.sandbox import Outcome


def outcome(exit_status=0, limit=None, reward=None, fault=None):
    return Outcome(exit_status, limit, 1.0, b"", 0, 0, reward, fault)


def test_exit_0_passes_with_score_1_where_the_reward_says_nothing():
    body = judge(outcome())
    assert (body["verdict"], body["valid"], body["score"], body["analysis_score"]) == ("pass", True, 1.0, 1.0)


@pytest.mark.parametrize(("limit", "status"), [("wall", "grader_timed_out"), ("memory", "grader_over_limit")])
def test_a_grader_ended_at_a_limit_is_a_valid_zero(limit, status):
    body = judge(outcome(exit_status=None, limit=limit))
    assert (body["verdict"], body["valid"], body["score"], body["scoring_status"]) == ("fail", True, 0.0, status)


@pytest.mark.parametrize("code", [126, 127])
def test_a_grader_that_could_not_start_is_void_even_with_a_reward(code):
    body = judge(outcome(code, reward=b'{"score": 1.0}'))
    assert (body["verdict"], body["valid"], body["score"], body["analysis_score"]) == ("void", False, None, None)
    assert body["reason"].startswith("infra:")


def test_a_partial_score_beside_a_fail_is_no_contradiction():
    body = judge(outcome(1, reward=b'{"score": 0.5, "explanation": "half of it"}'))
    assert (body["verdict"], body["score"], body["flags"], body["reason"]) == ("fail", 0.0, [], "half of it")


@pytest.mark.parametrize(
    ("data", "reward", "flags"),
    [
        (None, {}, []),
        (b'\xef\xbb\xbf{"score": 0.25}', {"score": 0.25, "checks": {}}, []),
        (b'{"score": 0}', {"score": 0.0, "checks": {}}, []),
        (b'{"checks": {"a": true, "b": false}}', {"checks": {"a": True, "b": False}}, []),
        (b'{"checks": {"a": 1}}', {}, ["checks_malformed"]),
        (b'{"score": "1"}', {"checks": {}}, ["reward_malformed"]),
        (b'{"score": 1.0000001}', {"checks": {}}, ["reward_out_of_range"]),
        (b'{"score": Infinity}', {}, ["reward_unreadable"]),
        (b'{"score": 1', {}, ["reward_unreadable"]),
        (b"[" * 100_000, {}, ["reward_unreadable"]),
        (b"\xff\xfe", {}, ["reward_unreadable"]),
        (b"null", {}, ["reward_malformed"]),
    ],
)
def test_a_reward_is_read_strictly(data, reward, flags):
    assert parse_reward(data, None) == (reward, flags)
