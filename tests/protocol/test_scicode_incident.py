"""The historic incident, replayed: "0% pass" that was all the harness's, indicted by signature and count."""

import pytest

from assize.benchmarks.scicode import court, grading
from assize.benchmarks.scicode.benchmark import reference_responses
from assize.benchmarks.scicode.composition import Options, compose, declared_names
from assize.indictment import indict, read_rules
from assize.signatures import failures
from scicode_support import lane_of, needs_data, needs_runtime, runtime, split

pytestmark = [needs_data, needs_runtime]
PROBLEMS = ("29", "38", "70")


def graded(problem, **options) -> dict:
    """A grade of the reference, run as ``options`` say."""
    responses = reference_responses(problem)
    variants = {
        step.number: {name: compose(step, problem, responses, {}, Options(name)) for name in ("function", "script")}
        for step in problem.scored_steps
    }
    programs = grading.programs_to_run(variants)
    results = court.run_programs(lane_of("bubblewrap"), runtime(), problem, programs, {}, workers=2, **options)
    declared = declared_names(problem)
    checks = [grading.check(number, each, results, declared) for number, each in variants.items()]
    episode = {"benchmark": "scicode", "condition": "reference", "instance": problem.id, "repeat": 1}
    return grading.body(problem, checks) | {"episode": episode}


@pytest.mark.parametrize(
    ("options", "kind"),
    [({"targets": None}, "no_target"), ({"targets": b"anything", "stand_in": False}, "no_scicode_module")],
)
def test_a_run_without_targets_or_without_the_module_is_indicted(options, kind):
    grades = [graded(split("dev")[problem], **options) for problem in PROBLEMS]
    assert all(grade["verdict"] == "fail" for grade in grades)
    failed = sum(check["verdict"] == "fail" for grade in grades for check in grade["checks"])
    found, _ = indict(failures(grades), read_rules())
    assert [(item["rule"], item["count"], item["of"]) for item in found] == [(kind, failed, failed)]
    assert failed == 14
