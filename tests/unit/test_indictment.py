"""The table of harness faults: one for all benchmarks, checked before it is applied."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from assize.benchmarks import known_benchmarks
from assize.benchmarks.command.grading import judge
from assize.errors import UsageError
from assize.indictment import Rule, indict, read_rules
from assize.sandbox import Outcome
from assize.signatures import Failure, failures

RULE = {"name": "r", "reads": "check", "remedy": "mend it"}


def failure(number: int, text: str = "TypeError: x", reads: str = "check", **fields) -> Failure:
    common = {"episode": f"b/c/{number}/1", "benchmark": "b", "condition": "c", "instance": str(number)}
    return Failure(reads, text=text, signature=text, status="failed", **common, **fields)


def found(failures, *rules: dict) -> list[tuple]:
    lines, _ = indict(failures, [Rule.of(RULE | rule) for rule in rules])
    return [(line["rule"], line["count"], line["of"]) for line in lines]


def test_a_rule_claims_what_is_in_its_scope_and_not_exempt():
    failures = [
        failure(1, "ImportError: a", origin="tests"),
        failure(2, "ImportError: a", origin="code"),
        failure(3, "ImportError: b", origin="tests"),
        failure(4, "ImportError: a", "void"),
    ]
    scope = {"where": {"pattern": "^ImportError", "origins": ["tests"]}}
    assert found(failures, scope) == [("r", 2, 3)]
    assert found(failures, scope | {"except": [{"pattern": "b$"}]}) == [("r", 1, 3)]
    assert found(failures, scope | {"ignore": [{"pattern": "b$"}]}) == [("r", 1, 2)]
    assert found(failures, scope | {"benchmarks": ["other"]}) == []
    assert found(failures, scope | {"at_least": 3}) == []
    assert found(failures, scope | {"share": 0.6}) == [("r", 2, 3)]
    assert found(failures, scope | {"share": 0.7}) == []


def test_a_failure_belongs_to_the_first_rule_that_holds():
    failures = [failure(number) for number in range(3)]
    assert found(failures, {"name": "one", "at_least": 9}, {"name": "two"}, {"name": "three"}) == [("two", 3, 3)]


def test_a_void_is_explained_and_never_indicts():
    rule = Rule.of(RULE | {"reads": "void", "where": {"statuses": ["failed"]}})
    (line,), claimed = indict([failure(1, reads="void")], [rule])
    assert (line["indicts"], line["episodes"], line["remedy"]) == (False, ["b/c/1/1"], "mend it")
    assert list(claimed.values()) == ["r"]


@pytest.mark.parametrize(
    "text",
    [
        "the wrong answer, counted: AssertionError",
        "AssertionError: Not equal to tolerance rtol=1e-07, 3 of 4 elements",
        "AssertionError @ numpy/testing/_private/utils.py:assert_",
        "Failed: Timeout (>10.0s) from pytest-timeout.",
        "over the time limit",
        "over the sandbox's wall limit",
        "early exit",
        "",
    ],
)
def test_an_ordinary_wrong_answer_shared_by_all_is_no_fault_of_the_harness(text):
    failures = [failure(number, text.removeprefix("the wrong answer, counted: ")) for number in range(30)]
    assert indict(failures, read_rules())[0] == []
    failures = [failure(number, "AssertionError: no fixture") for number in range(30)]
    assert [line["rule"] for line in indict(failures, read_rules())[0]] == ["shared_signature"]


@pytest.mark.parametrize(
    ("reason", "rule"),
    [
        ("infra: the grader command could not start (exit 127)", "grader_could_not_start"),
        ("infra: sandbox container: podman has no image localhost/x:1 (Error)", "image_missing"),
        ("infra: podman run: exit status 125", "image_missing"),
        ("infra: sandbox bubblewrap did not start: setting up uid map: Permission denied", "lane_missing"),
        ("infra: sandbox container: podman or docker is not installed here", "lane_missing"),
        ("infra: podman cp: no such container", "engine_failed"),
        ("infra: the SciCode runtime /x is not built", "runtime_missing"),
        ("infra: [Errno 28] No space left on device: '/x'", "disk_full"),
        ("infra: x/submission.tar.gz is not the archive that snapshot.json names", "snapshot_changed"),
    ],
)
def test_a_void_says_what_to_mend_first(reason, rule):
    assert [line["rule"] for line in indict([failure(1, reason, "void")], read_rules())[0]] == [rule]


@pytest.mark.parametrize(
    ("reads", "text", "rule"),
    [
        ("check", "ModuleNotFoundError: No module named 'libtmux'", "test_import_error"),
        ("void", "infra: 1a2b: pytest: error: unrecognized arguments: --reruns", "plugin_missing"),
        (
            "void",
            "infra: ERROR: Could not find a version that satisfies the requirement pytest-xdist",
            "plugin_missing",
        ),
        ("check", "subprocess.CalledProcessError: returned non-zero exit status 1", None),
        ("check", "pytest: error: unrecognized arguments: --reruns", "test_import_error"),
        ("check", "ERROR: __main__.py: error: unrecognized arguments: -n", "test_import_error"),
        ("check", "Failed: exit 2: sd: error: unrecognized arguments: --flags", None),
        ("check", "RuntimeError: sd: unrecognized arguments: -x", None),
    ],
)
def test_what_an_evaluator_lacks_is_no_candidates_failure(reads, text, rule):
    found = indict([replace(failure(1, text, reads), benchmark="programbench")], read_rules())[0]
    assert [line["rule"] for line in found] == [rule][: rule is not None]


def test_only_what_reads_the_targets_can_find_them_unreadable():
    fields = {"origin": "harness", "phase": "program"}
    deep = replace(failure(1, "RecursionError: maximum recursion depth exceeded", **fields), benchmark="scicode")
    assert indict([deep], read_rules())[0] == []
    unreadable = replace(deep, text="KeyError: 'no group'", phase="targets")
    assert [line["rule"] for line in indict([unreadable], read_rules())[0]] == ["h5_unreadable"]


def command_grades(count: int, exit_status: int | None = 1, limit: str | None = None, explanation=None) -> list[dict]:
    """Grades as the court of the command benchmark makes them of how a grader ended."""
    reward = explanation and json.dumps({"explanation": explanation, "checks": {"a": False}}).encode()
    body = judge(Outcome(exit_status, limit, 61.2, b"", 0, 0, reward))
    return [
        body | {"episode": {"benchmark": "command", "condition": "model", "instance": str(number), "repeat": 1}}
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("ended", "rule"),
    [
        ({"explanation": "ModuleNotFoundError: No module named 'pytest'"}, "shared_reason"),
        ({"explanation": "the grader: numpy.exceptions.DTypePromotionError: x"}, "shared_reason"),
        ({"exit_status": 137}, "shared_reason"),
        ({"exit_status": 1}, None),
        ({"exit_status": 2}, None),
        ({"exit_status": None, "limit": "wall"}, None),
        ({"exit_status": None, "limit": "memory"}, None),
        ({"explanation": "wrong answer"}, None),
        ({"explanation": "0 of 5 cases"}, None),
        ({"explanation": "solution.py not found"}, None),
        ({"explanation": "FileNotFoundError: [Errno 2] No such file or directory: 'solution.py'"}, None),
        ({"explanation": "AssertionError: 41 is not 42"}, None),
    ],
)
def test_graders_that_all_fail_in_one_way_that_no_work_explains_are_indicted(ended, rule):
    expected = [rule][: rule is not None]
    assert [line["rule"] for line in indict(failures(command_grades(40, **ended)), read_rules())[0]] == expected
    assert indict(failures(command_grades(9, **ended)), read_rules())[0] == []


def test_a_grader_that_also_fails_in_another_way_is_not_indicted_by_what_some_share():
    broken = command_grades(40, explanation="ModuleNotFoundError: No module named 'pytest'")
    other = command_grades(1, explanation="2 of 5 cases")
    late = command_grades(1, exit_status=None, limit="wall")
    assert indict(failures(broken + other), read_rules())[0] == []
    assert [line["rule"] for line in indict(failures(broken + late), read_rules())[0]] == ["shared_reason"]


def test_the_tables_rules_are_for_benchmarks_that_there_are():
    named = {name for rule in read_rules() for name in rule.benchmarks or ()}
    assert named <= {*known_benchmarks(), "programbench"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- {name: x, reads: check}", "missing remedy"),
        ("- {name: x, reads: mind, remedy: y}", '"mind" is not allowed'),
        ("- {name: x, reads: void, remedy: y, where: {patern: z}}", "unknown key patern"),
        ("- {name: x, reads: void, remedy: y, where: {pattern: '('}}", "is no regular expression"),
        ("- {name: x, reads: void, remedy: y}\n- {name: x, reads: void, remedy: y}", "given twice: x"),
        ("- {", "not YAML"),
    ],
)
def test_a_broken_table_is_an_error_that_names_the_rule(tmp_path, text, fault):
    path = Path(tmp_path, "rules.yaml")
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_rules(path)
    assert fault in str(caught.value)
    assert str(path) in str(caught.value)
