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
        ("ID 3F9AB27C41D0 is gone", "ID <hex> is gone"),
        ("item 0F8FAD5B-D9CB-469F-A165-70867728950E", "item <id>"),
        ("at 2026-11-30T12:00:05Z failed", "at <time> failed"),
        ("at 2026-11-30 12:00:05.250+01:00, not 12:00:06", "at <time>, not <time>"),
        ("took 60.1s", "took <n>s"),
        ("took 123ms, not 7s", "took <n>ms, not <n>s"),
        ("Killed at 512MiB", "Killed at <n>MiB"),
        ("x<5 and 1.5e-3 and 2D, not int64", "x<<n> and <n> and 2D, not int64"),
        ("tmp/tmpab12cd34/x.py: no", "<path>: no"),
        ("in out/job_8123/x and 8080/tcp and a/b.py", "in <path> and <n>/tcp and a/b.py"),
        ("exit(1)", "exit(1)"),
        ("it returned 137", "it returned 137"),
        ("exit code 3, status=4, signal 9, return code: 5", "exit code 3, status=4, signal 9, return code: 5"),
        ("it returned 3.5", "it returned <n>"),
        ("ValueError: got 3 @ numpy/linalg/_linalg.py:solve", "ValueError: got <n> @ numpy/linalg/_linalg.py:solve"),
        ("AssertionError @ lib2to3/x-1/y.py:<lambda>", "AssertionError @ lib2to3/x-1/y.py:<lambda>"),
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


def test_an_exception_whose_name_ends_like_no_other_is_found_below_the_last_frame():
    text = TRACEBACK.replace(
        "numpy.linalg.LinAlgError: Singular matrix of shape ({line}, {line}) at 0x7f{job}ab", "{end}"
    )
    frame = " @ numpy/linalg/_linalg.py:solve"
    for end, shown in (
        ("subprocess.TimeoutExpired: after 3 s\n  more", "subprocess.TimeoutExpired: after <n> s"),
        ("queue.Empty", "queue.Empty"),
        ("KeyboardInterrupt\ndone", "KeyboardInterrupt"),
    ):
        assert normalise(text.format(job=1, line=2, end=end)) == shown + frame


def test_of_exceptions_that_led_to_one_another_the_last_counts_with_its_own_frames():
    first = TRACEBACK.format(job=1, line=2)
    last = "Traceback (most recent call last):\n  File \"/w/a.py\", line 3, in f\n    g()\nKeyError: 'x'\n"
    assert normalise(f"{first}\nDuring handling of the above exception, another exception occurred:\n\n{last}") == (
        "KeyError: 'x'"
    )


def test_pytest_says_it_in_lines_of_its_own():
    text = "def test_x():\n>   assert f() == 3\nE   AssertionError: assert 4 == 3\ntests/test_x.py:9: AssertionError"
    assert normalise(text) == "AssertionError: assert <n> == <n>"


@pytest.mark.parametrize(
    "text",
    [
        "A" * 10**6,
        "/" * 10**6,
        "1 " * 10**6,
        "a.B" * 10**5 + "Error",
        "\0\ud800",
        "1" * 10**6,
        "a/" * 10**6,
        "a-1/" * 10**5,
        "a_1" * 10**6,
        " @ a.py" * 10**5,
    ],
)
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
