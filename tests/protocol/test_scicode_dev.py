"""The dev split through the step runner: derived targets, the reference and the mutation, in every lane."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from assize.benchmarks.scicode import court
from assize.benchmarks.scicode.benchmark import manifest, reference_responses
from assize.benchmarks.scicode.composition import Options, compose
from assize.benchmarks.scicode.mutation import is_mutated
from scicode_support import lane_of, needs_data, needs_runtime, runtime, split

pytestmark = [needs_data, needs_runtime]

# These take 2 to 40 s each; the other 42 a few hundredths.
SLOW = {"51.4", "47.4", "10.11", "49.4", "7.1", "78.3", "44.3", "6.1"}
# Seconds of a problem's slowest step, where that matters.
SECONDS = {"51": 37, "47": 20, "10": 12, "7": 6, "49": 6, "6": 4, "78": 3, "44": 2}
PROBLEMS = list(manifest()["dev"])


def quick_programs(problem, responses: dict) -> dict:
    return {number: program for number, program in all_programs(problem, responses).items() if number not in SLOW}


def all_programs(problem, responses: dict) -> dict:
    return {step.number: compose(step, problem, responses, {}, Options()) for step in problem.scored_steps}


@pytest.fixture(scope="module")
def derived(tmp_path_factory) -> dict[str, bytes]:
    """Problem -> targets of its quick steps, from the reference code."""
    targets = {}
    for problem in split("dev").values():
        programs = quick_programs(problem, reference_responses(problem))
        if programs:
            path = tmp_path_factory.mktemp("derived") / f"{problem.id}.h5"
            results = court.run_programs(lane_of("bubblewrap"), runtime(), problem, programs, {}, derive_to=path)
            assert all(result["passed"] for result in results.values()), results
            targets[problem.id] = path.read_bytes()
    return targets


@pytest.mark.parametrize("name", ["bubblewrap", "container", "subprocess"])
def test_quick_references_pass_and_just_the_mutated_steps_fail(derived, name):
    lane, results = lane_of(name), {}
    for problem in split("dev").values():
        if problem.id in derived:
            programs = {
                f"{kind}/{number}": program
                for kind in ("right", "mutated")
                for number, program in quick_programs(
                    problem, reference_responses(problem, mutate=kind == "mutated")
                ).items()
            }
            limits, targets = {"wall_s": 120}, derived[problem.id]
            results |= court.run_programs(lane, runtime(), problem, programs, limits, targets=targets, workers=2)
    assert {name for name, result in results.items() if result["flags"]} == set()
    failed = {name for name, result in results.items() if not result["passed"]}
    order = [f"{problem}.{index + 1}" for problem in PROBLEMS for index in range(len(manifest()["dev"][problem]))]
    wrong = {number for index, number in enumerate(order) if is_mutated(index)}
    assert len(results) == 2 * 42
    assert failed == {f"mutated/{number}" for number in wrong - SLOW}


def test_all_fifty_references_pass(tmp_path):
    """Once, the slow steps included, with the longest first: about three minutes on two cores."""

    def grade(problem) -> dict:
        programs, path = all_programs(problem, reference_responses(problem)), tmp_path / f"{problem.id}.h5"
        derived = court.run_programs(lane_of("bubblewrap"), runtime(), problem, programs, {}, derive_to=path)
        assert all(result["passed"] for result in derived.values()), derived
        return court.run_programs(lane_of("bubblewrap"), runtime(), problem, programs, {}, targets=path.read_bytes())

    slow_first = sorted(split("dev").values(), key=lambda problem: -SECONDS.get(problem.id, 0))
    lane_of("bubblewrap"), runtime()
    results = {}
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(grade, slow_first):
            results |= found
    assert len(results) == 50
    assert {number: result["signature"] for number, result in results.items() if not result["passed"]} == {}
