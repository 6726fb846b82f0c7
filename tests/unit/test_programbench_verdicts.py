"""The table "Valid zero or infrastructure" of ProgramBench's protocol, row by row, and the gate of its references."""

import pytest

from assize.benchmarks.programbench import calibration
from assize.benchmarks.programbench.scores import summary
from assize.benchmarks.programbench.verdicts import (
    Observed,
    Run,
    is_candidates_doing,
    judge,
    root_files,
    signature,
    survey,
    tamper_flags,
)
from assize.errors import GateClosed
from assize.indictment import indict, read_rules
from assize.signatures import failures

MASK = {"a": ["t.one", "t.two"], "b": ["t.three"]}
# One listed test of branch a is ignored.
LISTED = {"a": ["t.one", "t.two", "t.ignored"], "b": ["t.three"]}
CLEAN = {"a", "b"}


def case_of(name, status="passed", branch="a", **extra):
    return {"name": name, "branch": branch, "status": status, "extra": extra}


PASSED = [case_of("t.one"), case_of("t.two"), case_of("t.ignored", "failure"), case_of("t.three", branch="b")]


def result(tests=PASSED, error_code=None, branch_errors=None, warnings=(), details=None, end=1):
    """``end``: exit status of the step that failed, where one did."""
    return {
        "log": [{"step": error_code.removesuffix("_failed"), "returncode": end}] if error_code else [],
        "test_results": list(tests),
        "error_code": error_code,
        "error_details": details,
        "test_branch_errors": {
            branch: [{"error_code": code, "error_details": ""}] for branch, code in (branch_errors or {}).items()
        },
        "warnings": list(warnings),
    }


def judged(official=None, observed=None, clean=CLEAN, score=0.5):
    return judge(official or result(), score, observed or Observed(compile_runs=[0]), MASK, LISTED, clean)


def outcome(body):
    return body["verdict"], body["valid"], body["analysis_score"], body["scoring_status"]


def not_run(branch, names=None):
    return [case_of(name, "not_run", branch, error_code="x") for name in names or LISTED[branch]]


def test_all_that_count_pass_and_ignored_tests_do_not_count():
    body = judged(score=1.0)
    assert outcome(body) == ("pass", True, 1.0, "resolved")
    assert (body["score"], body["detail"]["complete"], len(body["checks"])) == (1.0, True, 3)


@pytest.mark.parametrize("status", ["failure", "error", "skipped", "system_error"])
def test_any_other_end_of_a_test_is_no_pass(status):
    body = judged(result([case_of("t.one", status), *PASSED[1:]]))
    assert outcome(body) == ("fail", True, pytest.approx(2 / 3), "not_resolved")
    assert body["detail"]["complete"] is (status != "system_error")


@pytest.mark.parametrize(
    ("code", "compile_runs", "status", "reason"),
    [
        ("compile_failed", [2], "build_failed", "compile.sh exited 2"),
        ("compile_failed", [125], "build_failed", "compile.sh exited 125"),
        ("compile_failed", [137, 137], "build_failed", "compile.sh exited 137"),
        ("compile_failed", ["timed out", "timed out"], "build_timed_out", "compile.sh was ended for its time"),
        ("compile_failed", [125, 255], "build_failed", "compile.sh exited 255"),
        (
            "compile_failed",
            ["container gone"] * 2,
            "build_failed",
            "compile.sh ended its container, or left one that does not start, twice",
        ),
        ("copy_executable_failed", [0], "no_executable", "the build left no ./executable"),
        ("hash_executable_failed", [0], "no_executable", "./executable is a directory or a dead link"),
        ("clear_stale_executable_failed", [], "no_executable", "./executable is a directory"),
    ],
)
def test_a_build_that_failed_is_a_valid_zero(code, compile_runs, status, reason):
    official = result([*not_run("a"), *not_run("b")], error_code=code)
    body = judged(official, Observed(compile_runs=compile_runs), score=0.0)
    assert outcome(body) == ("fail", True, 0.0, status)
    assert (body["reason"], body["score"], body["detail"]["complete"]) == (reason, 0.0, False)


MOMENTS = ("clear_stale_executable_failed", "copy_executable_failed", "hash_executable_failed")


def stopped(code, end, changes=()):
    official = result([*not_run("a"), *not_run("b")], error_code=code, end=end, details="said")
    return judged(official, Observed(compile_runs=[0], changes=list(changes)), score=0.0)


@pytest.mark.parametrize("end", [-1, 125, 126, 127, 137, 255])
@pytest.mark.parametrize("code", MOMENTS)
def test_a_step_that_the_engine_may_not_have_carried_out_is_no_score(code, end):
    body = stopped(code, end)
    assert outcome(body) == ("void", False, None, "infra")
    assert body["reason"] == f"infra: {code}: said"
    # Not even where the build installed something of its own.
    assert outcome(stopped(code, end, ["/usr/local/lib/libown.so"])) == ("void", False, None, "infra")


@pytest.mark.parametrize("code", MOMENTS)
def test_a_step_of_which_nobody_knows_the_end_is_no_score(code):
    official = result([*not_run("a"), *not_run("b")], error_code=code) | {"log": []}
    assert outcome(judged(official, score=0.0)) == ("void", False, None, "infra")


@pytest.mark.parametrize("path", ["/etc/profile", "/etc/ld.so.cache", "/root/.bash_profile", "/usr/lib/x/odd.pth"])
def test_a_build_that_changes_what_every_step_reads_first_does_not_turn_its_failure_into_a_void(path):
    assert outcome(stopped("copy_executable_failed", 127, [path])) == ("fail", True, 0.0, "no_executable")


@pytest.mark.parametrize(
    ("end", "changes", "expected"),
    [
        (1, [], False),
        (1, ["/tmp/x", "/usr/lib/__pycache__/x.pyc"], False),
        (1, ["/usr/lib/python3.11/json/decoder.py"], True),
        (-1, ["/usr/lib/python3.11/json/decoder.py"], False),
        (-1, ["/etc/profile"], True),
        (137, ["/usr/lib/python3/dist-packages/sitecustomize.py"], True),
    ],
)
def test_a_later_step_that_fails_is_the_candidates_where_its_changes_can_be_why(end, changes, expected):
    assert is_candidates_doing(end, Observed(changes=changes)) is expected


def test_a_build_that_replaces_what_its_tests_run_with_is_a_valid_zero():
    official = result([*not_run("a"), *not_run("b")], error_code="tools_replaced", details="the build replaced /x")
    paths = ["/usr/bin/python3"]
    body = judged(official, Observed(compile_runs=[0], changes=paths, replaced=paths), score=0.0)
    assert outcome(body) == ("fail", True, 0.0, "tools_replaced")
    assert (body["reason"], body["score"]) == ("the build replaced /x", 0.0)
    assert body["tamper"] == ["replaced:/usr/bin/python3", "changed:/usr/bin/python3"]


@pytest.mark.parametrize("code", ["wipe_workspace_failed", "seed_git_failed", "a_step_of_the_future_failed"])
def test_a_step_of_the_harness_that_failed_is_no_score(code):
    body = judged(result([*not_run("a"), *not_run("b")], error_code=code, details="No space left"), score=0.0)
    assert outcome(body) == ("void", False, None, "infra")
    assert body["score"] == 0.0
    assert "No space left" in body["reason"]


def lost(code, runs, clean=CLEAN):
    official = result([*PASSED[:3], *not_run("b")], branch_errors={"b": code})
    return judged(official, Observed(compile_runs=[0], runs={"b": runs}), clean)


TIMED_OUT = Run(-1, True, False)
SILENT = Run(1, False, False)


@pytest.mark.parametrize(
    ("code", "runs"),
    [
        ("results_read_failed", [TIMED_OUT]),
        ("results_read_failed", [TIMED_OUT, TIMED_OUT]),
        ("results_read_failed", [SILENT, SILENT]),
        ("xml_parse_error", [Run(0, False, True)] * 2),
        ("empty_test_results", [Run(0, False, True)] * 2),
    ],
)
def test_a_branch_that_the_candidate_lost_counts_as_zero_where_the_reference_finished_it(code, runs):
    body = lost(code, runs)
    assert outcome(body) == ("fail", True, pytest.approx(2 / 3), "branch_failed")
    assert "branch b" in body["reason"]
    assert body["detail"]["complete"] is False
    assert outcome(lost(code, runs, clean={"a"})) == ("void", False, None, "infra")


@pytest.mark.parametrize(
    ("code", "runs"),
    [
        # Once may be chance.
        ("results_read_failed", [SILENT]),
        ("results_read_failed", [Run(4, False, False, "unrecognized arguments")] * 2),
        ("results_read_failed", [SILENT, Run(1, False, False, "No module named 'pytest")]),
        ("results_read_failed", []),
        ("restore_executable_failed", [SILENT, SILENT]),
        ("executable_hash_mismatch", [SILENT, SILENT]),
        ("install_pytest_timeout_retry_failed", [SILENT, SILENT]),
        ("no_expected_test_list", [SILENT, SILENT]),
    ],
)
def test_a_branch_that_the_harness_lost_is_no_score(code, runs):
    assert outcome(lost(code, runs)) == ("void", False, None, "infra")


def test_as_many_unknown_names_as_missing_ones_are_a_naming_artefact():
    renamed = [case_of(f"eval.{name}") for name in LISTED["a"]]
    body = judged(result([*renamed, *not_run("a", MASK["a"]), PASSED[3]]))
    assert outcome(body) == ("void", False, None, "naming_artefact")
    assert body["score"] == 0.5
    assert "unexpected_tests:a:3" in body["flags"]


def test_other_unknown_names_are_flagged_and_never_counted():
    more = [case_of(f"t.extra{number}") for number in range(97)]
    body = judged(result([case_of("t.one", "failure"), *PASSED[1:], *more]), score=99 / 100)
    assert outcome(body) == ("fail", True, pytest.approx(2 / 3), "not_resolved")
    assert body["flags"] == ["unexpected_tests:a:97"]
    assert body["score"] == 0.99


@pytest.mark.parametrize("order", [("passed", "failure", "passed"), ("failure", "passed", "passed")])
def test_a_name_that_passed_and_failed_did_not_pass(order):
    tests = [case_of("t.one", status) for status in order]
    body = judged(result([*tests, *PASSED[1:]]), score=1.0)
    assert outcome(body) == ("fail", True, pytest.approx(2 / 3), "not_resolved")
    assert body["flags"] == ["duplicate_tests:a:1"]


def test_a_name_that_passed_twice_is_flagged_and_passes():
    body = judged(result([*PASSED, case_of("t.one")]))
    assert (outcome(body), body["flags"]) == (("pass", True, 1.0, "resolved"), ["duplicate_tests:a:1"])


def test_missing_outcomes_count_as_failed_and_are_flagged():
    body = judged(result([PASSED[0], *not_run("a", ["t.two"]), PASSED[3]]))
    assert outcome(body) == ("fail", True, pytest.approx(2 / 3), "not_resolved")
    assert (body["flags"], body["detail"]["complete"]) == (["missing_tests:a:1"], False)


def test_a_branch_in_which_no_test_ran_is_no_score():
    body = judged(result([*not_run("a"), PASSED[3]]))
    assert outcome(body) == ("void", False, None, "no_tests")


@pytest.mark.parametrize(
    ("test", "said"),
    [
        (case_of("t"), None),
        (case_of("t", "failure", message="AssertionError: assert 1 == 2\n + where"), "AssertionError"),
        (case_of("t", "failure", message="assert 'a' == 'b'"), "AssertionError"),
        (case_of("t", "error", message="ImportError: no x\nmore"), "ImportError: no x"),
        (case_of("t", "skipped"), "skipped"),
        (case_of("t", "failure", message="x" * 500), "x" * 200),
    ],
)
def test_a_signature_is_one_line(test, said):
    assert signature(test) == said


def test_a_module_that_the_tests_miss_indicts_the_harness():
    episode = {"benchmark": "programbench", "condition": "c", "instance": "i", "repeat": 1}
    missing = case_of("t.one", "error", message="ModuleNotFoundError: No module named 'x'")
    found, _ = indict(failures([judged(result([missing, *PASSED[1:]])) | {"episode": episode}]), read_rules())
    assert [(fault["rule"], fault["indicts"]) for fault in found] == [("test_import_error", True)]
    assert indict(failures([judged() | {"episode": episode}]), read_rules()) == ([], {})


def test_ignored_branches_are_not_surveyed():
    found = survey(result([*PASSED, case_of("t.four", "failure", branch="ignored")]), MASK, LISTED)
    assert set(found.outcomes) == {"a/t.one", "a/t.two", "b/t.three"}


def test_tamper_flags_name_what_runs_after_the_candidate():
    changes = [
        "/usr/bin/python3",
        "/usr/local/lib/python3.11/dist-packages/pytest/__init__.py",
        "/etc/profile.d/x.sh",
        "/root/.bash_profile",
        "/usr/lib/python3/__pycache__/x.cpython-311.pyc",
        "/tmp/harmless",
        "/root/.cargo/registry/index",
        "/var/cache/x",
    ]
    flags = tamper_flags(Observed(changes=changes, root_files=["conftest.py"]))
    assert flags == [
        "root_file:conftest.py",
        "changed:/usr/bin/python3",
        "changed:/usr/local/lib/python3.11/dist-packages/pytest/__init__.py",
        "changed:/etc/profile.d/x.sh",
        "changed:/root/.bash_profile",
        "changed: 1 Python caches",
    ]
    body = judged(observed=Observed(compile_runs=[0], changes=changes, root_files=["conftest.py"]))
    assert body["tamper"] == flags
    assert outcome(body) == ("pass", True, 1.0, "resolved")


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/programbench-grader-plugins/conftest.py",
        "/tmp/programbench-grader-plugins/json/__init__.py",
        "/tmp/programbench-grader-plugins",
        "/conftest.py",
        "/pytest.ini",
        "/.pytest.ini",
        "/pytest.toml",
        "/.pytest.toml",
        "/tox.ini",
        "/setup.cfg",
        "/pyproject.toml",
    ],
)
def test_what_pytest_finds_above_the_submission_is_flagged(path):
    assert tamper_flags(Observed(changes=["/tmp/x", path])) == [f"changed:{path}"]


def test_survivors_are_flagged_even_where_they_could_not_be_counted():
    assert tamper_flags(Observed(survivors=2)) == ["survivors:2"]
    assert tamper_flags(Observed(survivors=None)) == ["survivors:uncounted"]


@pytest.mark.parametrize(
    "name",
    [
        "pytest.toml",
        ".pytest.toml",
        ".pytest.ini",
        "sitecustomize.py",
        "pytest.py",
        "pytest/__init__.py",
        "_pytest/__init__.py",
        "pluggy.py",
        "xdist.so",
        "json.py",
        "random.pyc",
        "re/__init__.py",
        "_json.cpython-311-x86_64-linux-gnu.so",
        "pytest_rerunfailures.py",
        "evil-1.0.dist-info/entry_points.txt",
        "evil.egg-info/entry_points.txt",
    ],
)
def test_what_python_at_the_root_would_take_for_its_own_is_flagged(name):
    assert root_files([f"./{name}"]) == [name]
    assert root_files([f"src/{name}"]) == []


@pytest.mark.parametrize(
    "name", ["main.py", "json.c", "json/parse.c", "tool/__init__.py", "test.sh", "re.pyx", "pytest"]
)
def test_a_programs_own_files_are_not_flagged(name):
    assert root_files([name]) == []


def test_files_at_the_root_that_pytest_would_read():
    names = ["./conftest.py", "src/conftest.py", "pyproject.toml", "eval/tests/test_x.py", "eval/", "main.c", "tox.ini"]
    assert root_files(names) == ["conftest.py", "pyproject.toml", "tox.ini", "eval/**"]
    assert root_files(["evaluate.c", "a/pytest.ini"]) == []


def test_a_reference_passes_the_gate_only_without_any_oddity():
    assert calibration.findings(judged(), 0.9) == {"passed": True, "reasons": [], "flags": ["oracle_exposed"]}
    assert calibration.clean_branches(judged()) == ["a", "b"]
    short = calibration.findings(judged(result([case_of("t.one", "failure"), *PASSED[1:]])), 0.9)
    assert (short["passed"], short["flags"]) == (False, ["reference_fails:1", "oracle_exposed"])
    assert short["reasons"] == ["the reference passes 2 of 3 tests, below 0.9"]
    assert calibration.findings(judged(result([case_of("t.one", "failure"), *PASSED[1:]])), 0.6)["passed"]


@pytest.mark.parametrize(
    ("official", "reason"),
    [
        (result([PASSED[0], *not_run("a", ["t.two"]), PASSED[3]]), "1 missing"),
        (result([*PASSED, case_of("t.new")]), "1 unexpected"),
        (result([*PASSED, case_of("t.one")]), "1 duplicates"),
        (result(warnings=["odd"]), "warning: odd"),
        (result([*PASSED[:3], *not_run("b")], branch_errors={"b": "results_read_failed"}), "harness error in branch b"),
        (result([case_of("t.one", "system_error"), *PASSED[1:]]), "system error"),
        (result([*not_run("a"), *not_run("b")], error_code="compile_failed"), "was not judged"),
    ],
)
def test_a_reference_with_an_oddity_does_not_pass_however_much_it_scores(official, reason):
    # No reference has finished a branch before its calibration.
    found = calibration.findings(judged(official, clean=set()), 0.1)
    assert not found["passed"]
    assert any(reason in item for item in found["reasons"]), found["reasons"]


IDENTITY = {
    "manifest": "m",
    "mask": "k",
    "blobs": "b",
    "image_digest": "i",
    "wheelhouse": "w",
    "packages": {"pytest": "8.3.5"},
    "seconds": {"compile": 9},
    "resource_mode": "container",
    "cpus": 16,
    "memory_mb": 30720,
}


def test_the_gate_asks_for_all_that_it_can_name():
    assert set(IDENTITY) == set(calibration.SAME)


def test_the_gate_opens_for_what_was_calibrated_and_for_nothing_else():
    assert calibration.require([IDENTITY | {"clean": ["a", "b"]}, IDENTITY | {"clean": ["a"]}], IDENTITY) == {"a"}
    with pytest.raises(GateClosed, match="not calibrated"):
        calibration.require([], IDENTITY)


@pytest.mark.parametrize("key", list(IDENTITY))
def test_a_calibration_of_something_else_opens_no_gate(key):
    with pytest.raises(GateClosed, match=key):
        calibration.require([IDENTITY | {"clean": ["a"]}], IDENTITY | {key: "other"})


def test_a_conditions_mean_is_over_what_was_scored_and_over_what_was_planned():
    grades = {
        "a": {"valid": True, "analysis_score": 1.0},
        "b": {"valid": True, "analysis_score": 0.96},
        "c": {"valid": False, "analysis_score": None},
        "d": None,
    }
    assert summary(grades) == {
        "score": {"mean_score": 0.98, "mean_score_over_planned": 0.49, "near_resolved": [2, 4]},
    }
    assert summary({"a": None})["score"]["mean_score"] is None
