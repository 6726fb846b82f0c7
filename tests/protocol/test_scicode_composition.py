"""Contexts, special steps, what is graded twice, and the conformance cases F of the SciCode protocol."""

import ast

import pytest

from assize.benchmarks.scicode import grading
from assize.benchmarks.scicode.benchmark import manifest
from assize.benchmarks.scicode.composition import Options, compose, declared_names, is_stored
from assize.benchmarks.scicode.extraction import MAX_PARSED
from assize.benchmarks.scicode.problems import GIVEN_STEPS, SCORED_STEPS
from assize.benchmarks.scicode.submission import find_responses, read_responses
from assize.errors import UsageError
from scicode_support import HOSTILE_TEXTS, given, needs_data, problem, split, step

SMALL = problem(
    step("0.1", "def a(x):", ("assert a(1) == 1",), "def a(x):\n    return x"),
    step("0.2", "def b(x):", ("assert b(1) == 2",), "def b(x):\n    return a(x) + 1"),
)
TEST_SPLIT = problem(*SMALL.steps, kind="test")
PASSED = {"passed": True, "signature": None, "phase": None, "origin": None, "seconds": 0.1, "flags": []}
FAILED = PASSED | {"passed": False, "signature": "AssertionError", "phase": "case 1", "origin": "tests"}


def programs(responses: dict, small=SMALL, **options) -> dict:
    return {
        item.number: {
            name: compose(item, small, responses, {}, Options(name, **options)) for name in ("function", "script")
        }
        for item in small.scored_steps
    }


def test_dev_steps_stand_on_the_reference_and_test_steps_on_the_models_own():
    responses = {"0.1": "def a(x):\n    return -x", "0.2": "def b(x):\n    return a(x) + 1"}
    assert "return x" in compose(SMALL.steps[1], SMALL, responses, {}, Options()).text
    assert "return -x" in compose(SMALL.steps[1], TEST_SPLIT, responses, {}, Options()).text
    own = Options(context={"dev": "self", "test": "self"})
    assert "return -x" in compose(SMALL.steps[1], SMALL, responses, {}, own).text


def test_a_missing_prior_step_fails_what_needs_it_and_aborts_nothing():
    program = compose(SMALL.steps[1], TEST_SPLIT, {"0.2": "def b(x):\n    return a(x) + 1"}, {}, Options())
    assert program.missing == ("0.1",)
    assert program.fault is None
    assert "def b" in program.text


def test_a_missing_step_is_a_fail():
    assert compose(SMALL.steps[0], SMALL, {}, {}, Options()).fault == "missing step"


def test_fences_are_stripped_from_prior_steps_too():
    fenced = {"0.1": "```python\ndef a(x):\n    return 5\n```", "0.2": "```python\ndef b(x):\n    return a(x)\n```"}
    for extraction in ("function", "script"):
        program = compose(SMALL.steps[1], TEST_SPLIT, fenced, {}, Options(extraction))
        assert "```" not in program.text
        assert not program.fenced
        assert "return 5" in program.text


def test_a_stored_file_runs_whole_as_a_script_and_gives_its_function():
    own = "def b(x):\n    return helper(x)\n\ndef helper(x):\n    return 2\n"
    stored = f"import numpy as np\n\ndef a(x):\n    return x\n\n{own}"
    assert is_stored(stored, SMALL)
    assert not is_stored("def b(x): return 1", SMALL)
    assert compose(SMALL.steps[1], SMALL, {"0.2": stored}, {}, Options("script")).text == stored
    assert "helper(x):" not in compose(SMALL.steps[1], SMALL, {"0.2": stored}, {}, Options()).text


def test_extractions_that_mean_the_same_are_run_once():
    same = programs({"0.1": "```python\nimport math\ndef a(x):\n    # a comment\n    return x\n```"})
    assert list(grading.programs_to_run(same)) == ["0.1/function"]
    other = programs({"0.1": "```python\nK = 1\ndef a(x):\n    return K * x\n```"})
    assert list(grading.programs_to_run(other)) == ["0.1/function", "0.1/script"]


def test_where_extractions_differ_both_verdicts_are_recorded():
    variants = programs({"0.1": "K = 1\ndef a(x):\n    return K * x"})["0.1"]
    results = {"0.1/function": FAILED | {"signature": "NameError: name 'K' is not defined"}, "0.1/script": PASSED}
    checked = grading.check("0.1", variants, results, declared_names(SMALL))
    assert checked["protocol_sensitive"] is True
    assert (checked["verdict"], checked["other_verdict"]) == ("fail", "pass")
    assert checked["signature"] == "NameError: name 'K' is not defined"


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_every_text_becomes_programs(text):
    text = text.replace("def f", "def a")
    found = programs({"0.1": text, "0.2": text}, TEST_SPLIT)
    assert {f"{number}/function" for number in found} <= set(grading.programs_to_run(found)) | {"0.2/function"}


def test_no_text_takes_a_nodes_memory_to_read(monkeypatch):
    """Each of these would be taken apart in a gigabyte and more, and the last ones are the sum of those before."""

    def parse(text):
        assert len(text) <= MAX_PARSED
        return tree(text)

    tree = ast.parse
    monkeypatch.setattr(ast, "parse", parse)
    long = "x\n" * (1 << 19)
    found = programs({"0.1": f"def a(x):\n    return x\n{long[:-100]}", "0.2": long}, TEST_SPLIT)
    assert not found["0.1"]["function"].fault
    assert found["0.2"]["function"].fault == "a program of more than 1048576 characters"
    assert set(grading.programs_to_run(found)) == {"0.1/function"}


def test_where_they_agree_there_is_one_verdict():
    variants = programs({"0.1": "def a(x):\n    return x"})["0.1"]
    checked = grading.check("0.1", variants, {"0.1/function": PASSED}, declared_names(SMALL))
    assert (checked["verdict"], checked["protocol_sensitive"], checked["other_verdict"]) == ("pass", False, None)


def test_a_name_that_a_header_declares_is_a_fault_unless_the_model_left_it_out():
    variants = programs({"0.2": "def b(x):\n    return a(x)"})["0.2"]
    missing = FAILED | {"signature": "NameError: name 'a' is not defined"}
    assert grading.check("0.2", variants, {"0.2/function": missing}, declared_names(SMALL))["fault"] == "declared_name"
    own = programs({"0.2": "def b(x):\n    return a(x)"}, TEST_SPLIT)["0.2"]
    assert grading.check("0.2", own, {"0.2/function": missing}, declared_names(SMALL))["fault"] is None


def test_f1_a_problem_with_a_step_missing_is_not_solved():
    """Officially only the files that are there are counted, and the problem would be correct."""
    checks = [
        grading.check(number, variants, {"0.1/function": PASSED}, set())
        for number, variants in programs({"0.1": "def a(x):\n    return x"}).items()
    ]
    body = grading.body(SMALL, checks)
    assert body["verdict"] == "fail"
    assert body["detail"]["steps"] == {"passed": 1, "scored": 2}
    assert body["score"] == 0.5
    assert checks[1]["signature"] == "missing step"


def test_f3_another_code_is_another_program():
    """Officially an old log's pass is reused after the code changed. Here a grade is of one frozen archive."""
    one, two = (programs({"0.1": f"def a(x):\n    return {value}"})["0.1"]["function"] for value in (1, 2))
    assert one.meaning != two.meaning


def test_f4_a_stray_file_is_ignored_with_a_warning(tmp_path, capsys):
    (tmp_path / "77.1.py").write_text("def wrap(r, L): pass")
    (tmp_path / "notes.txt").write_text("not a step")
    assert list(find_responses(tmp_path)) == ["77.1"]
    assert "notes.txt is ignored" in capsys.readouterr().err


def test_two_files_of_one_step_are_refused(tmp_path):
    for name in ("77.1.py", "77.1.txt"):
        (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match="one step"):
        find_responses(tmp_path)


def test_responses_are_read_without_following_links_and_in_any_encoding(tmp_path):
    (tmp_path / "1.1.py").write_bytes(b"# \xff\xfe\n")
    (tmp_path / "1.2.py").symlink_to("/etc/passwd")
    assert read_responses(tmp_path) == {"1.1": "# \ufffd\ufffd\n"}


@needs_data
def test_both_splits_are_the_published_ones_and_hold_338_scored_steps():
    counts = {name: sum(len(item.scored_steps) for item in split(name).values()) for name in ("test", "dev")}
    assert counts == SCORED_STEPS == {"test": 288, "dev": 50}
    for name in ("test", "dev"):
        assert {item.id: [len(part.cases) for part in item.steps] for item in split(name).values()} == manifest()[name]
    assert sum(len(cases) for cases in manifest()["test"].values()) == 291
    unscored = [part.number for item in split("test").values() for part in item.steps if not part.cases]
    assert sorted(unscored) == sorted(GIVEN_STEPS)


@needs_data
def test_other_bytes_are_not_a_split(tmp_path):
    from assize.benchmarks.scicode.problems import read_split

    other = tmp_path / "problems_dev.jsonl"
    other.write_text("{}\n")
    with pytest.raises(UsageError, match="sha256"):
        read_split(str(other), "dev")


@needs_data
@pytest.mark.parametrize("number", GIVEN_STEPS)
def test_a_given_step_is_whole_by_default_and_what_the_official_code_makes_of_it_on_request(number):
    whole = split("test")[number.split(".")[0]]
    after = next(item for item in whole.scored_steps if int(item.number.split(".")[1]) > int(number.split(".")[1]))
    text = {item.number: f"{item.header}\n    pass" for item in whole.scored_steps}
    verbatim = compose(after, whole, text, given(), Options())
    official = compose(after, whole, text, given(), Options(special="official"))
    if number == "76.3":
        assert "def generate_dna" in official.text
    else:
        assert ("class Maxwell:" if number == "13.6" else "class Block:") in verbatim.text
        assert "class Maxwell" not in official.text
        assert "class Block" not in official.text
        assert "def __init__" in official.text


@needs_data
def test_every_dev_reference_means_the_same_under_both_extractions():
    for item in split("dev").values():
        references = {part.number: part.reference for part in item.steps}
        for number, variants in programs(references, item).items():
            assert variants["function"].meaning == variants["script"].meaning, number
