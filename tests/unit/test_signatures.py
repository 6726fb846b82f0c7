"""Failure signatures: two runs of one fault share one, two faults do not."""

import pytest

from assize.signatures import MAX_KEPT, failures, normalise, table

TRACEBACK = """Traceback (most recent call last):
  File "/scratch/job-{job}/work/29.1.py", line {line}, in <module>
    solve(a)
  File "/opt/{job}/lib/python3.12/site-packages/numpy/linalg/_linalg.py", line {line}, in solve
    raise LinAlgError("Singular matrix")
  File "/scratch/job-{job}/work/29.1.py", line 3, in hook
    pass
numpy.linalg.LinAlgError: Singular matrix of shape ({line}, {line}) at 0x7f{job}ab
"""


@pytest.mark.parametrize(
    ("text", "signature"),
    [
        ("NameError: name 'target' is not defined", "NameError: name 'target' is not defined"),
        (
            "FileNotFoundError: [Errno 2] No such file: '/tmp/assize-x1/a.h5'",
            "FileNotFoundError: [Errno 2] No such file: '<path>'",
        ),
        ("ValueError: line 12: got 3.5e-7, wanted -4", "ValueError: line <n>: got <n>, wanted <n>"),
        ("TypeError: <Foo object at 0x7f00aa> is no x1", "TypeError: <Foo object at <address>> is no x1"),
        ("AssertionError: [1. 2. 3.] != [1, 2]", "AssertionError: [<n>...] != [<n>...]"),
        ("the grader exited 2", "the grader exited 2"),
        ("the grader was ended after 60.1 s", "the grader was ended after <n> s"),
        ("container 3f9ab27c41d0 is gone", "container <hex> is gone"),
        ("\x1b[31mFAILED\x1b[0m tests/test_a.py:17", "FAILED tests/test_a.py:<n>"),
        ("  two\n lines ", "two lines"),
        ("KeyError: \x1b]0;title\x07\u202e\ud800", "KeyError: ]<n>;title"),
        ("", "no word of why"),
        (None, "no word of why"),
    ],
)
def test_what_differs_between_two_runs_is_folded(text, signature):
    assert normalise(text) == signature


def test_of_a_traceback_the_exception_and_the_innermost_library_frame_stay():
    one, other = (normalise(TRACEBACK.format(job=job, line=line)) for job, line in ((11, 40), (9817, 7)))
    assert one == other
    assert one == (
        "numpy.linalg.LinAlgError: Singular matrix of shape (<n>...) at <address> @ numpy/linalg/_linalg.py:solve"
    )


def test_pytest_says_it_in_lines_of_its_own():
    text = "def test_x():\n>   assert f() == 3\nE   AssertionError: assert 4 == 3\ntests/test_x.py:9: AssertionError"
    assert normalise(text) == "AssertionError: assert <n> == <n>"


@pytest.mark.parametrize("text", ["A" * 10**6, "/" * 10**6, "1 " * 10**6, "a.B" * 10**5 + "Error", "\0\ud800"])
def test_a_candidates_output_is_bounded(text):
    assert len(normalise(text)) <= MAX_KEPT


def grade(instance: str, verdict: str, *checks: dict, reason="why", condition="model") -> dict:
    episode = {"benchmark": "b", "condition": condition, "instance": instance, "repeat": 1}
    status = {"void": "infra", "fail": "failed", "pass": "passed"}[verdict]
    return {"episode": episode, "verdict": verdict, "scoring_status": status, "reason": reason, "checks": list(checks)}


def check(id: str, signature: str | None, **fields) -> dict:
    return {"id": id, "verdict": "fail", "signature": signature} | fields


def test_the_table_counts_every_failure_once_with_its_episodes_and_examples():
    grades = [
        grade("one", "fail", check("1", "KeyError: 3", origin="tests"), check("2", "KeyError: 4", origin="tests")),
        grade("two", "fail", check("1", "KeyError: 5", origin="tests"), condition="other"),
        grade("three", "fail", check("1", None), reason="2 of 5 cases"),
        grade("four", "void", check("1", "KeyError: 3"), reason="infra: no lane"),
        grade("five", "pass"),
    ]
    found = failures(grades)
    assert [failure.reads for failure in found] == ["check", "check", "check", "grade", "void"]
    first, *others = table(found, {found[0]: "rule"})
    assert (first["signature"], first["rule"], first["count"]) == ("KeyError: <n>", None, 2)
    assert first["conditions"] == {"model": 1, "other": 1}
    assert first["episodes"] == ["b/model/one/1", "b/other/two/1"]
    assert first["examples"] == ["one: 2: KeyError: 4", "two: 1: KeyError: 5"]
    assert [(line["signature"], line["rule"]) for line in others] == [
        ("KeyError: <n>", "rule"),
        ("failed: <n> of <n> cases", None),
        ("infra: infra: no lane", None),
    ]
    assert sum(line["count"] for line in [first, *others]) == len(found)
