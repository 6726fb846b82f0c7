"""What a study's scicode section may say, and how the verbs of its own answer."""

import os

import pytest
import yaml

from assize.benchmarks.scicode import calibration
from assize.benchmarks.scicode.canaries import IMPORTS
from assize.benchmarks.scicode.court import core_slots
from assize.benchmarks.scicode.prompts import code_mark, prompt
from assize.errors import InfrastructureError, UsageError
from assize.study import resolve
from scicode_support import DATA, ROOT, needs_data, needs_runtime, problem, step


def config(**section) -> dict:
    loaded = yaml.safe_load((ROOT / "config" / "studies" / "scicode-dev.yaml").read_text())
    loaded["benchmarks"]["scicode"] |= section
    return loaded


def test_the_dev_study_plans_fifteen_problems_and_its_terms_pin_everything():
    frozen = resolve(config(), "study")["benchmarks"]["scicode"]
    assert len(frozen["instances"]) == 15
    terms = frozen["terms"]
    assert (terms["extraction"], terms["special"], terms["targets"]) == ("function", "verbatim", "derived")
    assert terms["context"] == {"dev": "reference", "test": "self"}
    assert len(terms["runtime"]["lock"]) == 64
    assert frozen["repetitions"] == 1


@pytest.mark.parametrize("change", [{"extraction": "script"}, {"special": "official"}, {"context": {"dev": "self"}}])
def test_every_protocol_option_is_part_of_the_terms(change):
    before, after = (resolve(config(**section), "study") for section in ({}, change))
    assert before["benchmarks"]["scicode"]["terms_digest"] != after["benchmarks"]["scicode"]["terms_digest"]


def test_another_problem_changes_no_terms():
    one, two = (resolve(config(instances=names), "study") for names in (["29"], ["29", "38"]))
    assert one["benchmarks"]["scicode"]["terms_digest"] == two["benchmarks"]["scicode"]["terms_digest"]


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"instances": ["77"]}, "instances: no problem 77"),
        ({"targets": {"dataset": "x"}}, "targets.dataset: 'x' is no dataset"),
        ({"problems": {"test": "scicode-problems-dev"}}, "problems.test: its sha256"),
        ({"extraction": "regex"}, "extraction"),
        ({"context": {"test": "reference"}}, "context.test"),
    ],
)
def test_a_fault_names_its_key(section, named):
    with pytest.raises(UsageError, match=named):
        resolve(config(**section), "study")


def test_dry_run_can_be_asked_for_in_the_environment(monkeypatch):
    monkeypatch.setenv("DRY_RUN", "1")
    assert resolve(config(), "study")["benchmarks"]["scicode"]["terms"]["dry_run"] is True


@needs_data
def test_the_import_canary_covers_the_dependencies_of_all_problems():
    import ast

    from scicode_support import split

    def imported(code: str) -> set[str]:
        found = set()
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= {f"{node.module}.{name.name}" for name in node.names}
        return found

    known = imported(IMPORTS)
    for name in ("test", "dev"):
        for item in split(name).values():
            assert imported(item.dependencies) <= known, item.id


def reference(number: str, verdict: str) -> list[dict]:
    return [{"id": number, "verdict": verdict, "signature": "AssertionError"}]


@pytest.mark.parametrize("number", calibration.EXPECTED_OFFICIAL_FAILURES)
def test_the_expected_failures_are_allowed_with_official_targets_only(number):
    assert calibration.findings(reference(number, "fail"), {}, [], official=True)["passed"]
    assert not calibration.findings(reference(number, "fail"), {}, [], official=False)["passed"]
    assert not calibration.findings(reference("1.1", "fail"), {}, [], official=True)["passed"]


def test_a_canary_that_ends_otherwise_bars():
    passed, failed = ({"passed": value, "signature": "x"} for value in (True, False))
    found = calibration.findings(None, {"noop": passed, "imports": failed}, [], official=True)
    assert found["reasons"] == ["canary imports fails: x", "canary noop passes"]
    assert calibration.findings(None, {"oracle": failed}, [], official=True)["flags"] == ["oracle_exposed"]


def test_a_prompt_shows_what_is_asked_and_nothing_of_the_oracle():
    small = problem(
        step("0.1", "def a(x):", ("assert a(1) == target",), "def a(x):\n    return 'SECRET'"),
        step("0.2", "def b(x):", ("assert b(1) == target",), "def b(x):\n    return 'SECRET'"),
    )
    with_background, without = (
        prompt(small, small.steps[1], variant, {}) for variant in ("with_background", "without_background")
    )
    for text in (with_background, without):
        assert "def b(x):" in text
        assert "    return None" in text
        assert code_mark("0.1") in text
        assert "import numpy as np" in text
        assert "SECRET" not in text
        assert "target" not in text
    assert "Why." in with_background
    assert "Why." not in without


@needs_data
@needs_runtime
def test_derived_targets_are_checked_and_what_is_missing_is_listed(tmp_path, monkeypatch):
    """Of one problem: the whole split takes a minute."""
    from assize.benchmarks.scicode import verbs
    from scicode_support import FILES, split

    only = {"29": split("dev")["29"]}
    monkeypatch.setattr(verbs, "read_split", lambda path, name: only)
    monkeypatch.setattr(verbs, "SCORED_STEPS", {"dev": 3})

    class Arguments:
        problems, output, file, dev, test = DATA / FILES["dev"], tmp_path / "d.h5", tmp_path / "d.h5", "x", None

    assert verbs.derive_targets(Arguments)["derived"] is True
    assert verbs.check_targets(Arguments) == {"ok": True, "steps": 3, "cases": 10, "derived": True}
    only["30"] = problem(step("30.1", "def f():", ("assert f() == target",)), id="30")
    monkeypatch.setattr(verbs, "SCORED_STEPS", {"dev": 4})
    with pytest.raises(UsageError, match=r"30\.1/test1: missing"):
        verbs.check_targets(Arguments)


def test_slots_for_steps_lie_where_no_other_user_can_take_them(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with core_slots(1, 1) as held:
        assert held == 1
        (lock,) = (tmp_path / f"assize-{os.getuid()}").iterdir()
    # Where the locks of jobs that are over are looked for.
    assert lock.match("evaluator-*.lock")
    lock.unlink()
    lock.parent.rmdir()
    lock.parent.symlink_to(tmp_path)
    with pytest.raises(InfrastructureError, match="not this user's own"), core_slots(1, 1):
        pass
