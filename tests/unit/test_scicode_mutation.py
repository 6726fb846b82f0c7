"""The mutated reference: wrong numbers of the right shape, in a known third of the steps."""

from assize.benchmarks.scicode.benchmark import reference_responses
from assize.benchmarks.scicode.mutation import is_mutated, mutated
from scicode_support import needs_data, split


def run(code: str, call: str):
    namespace = {}
    exec(mutated(code), namespace)
    return eval(call, namespace)


def test_what_is_returned_is_moved_and_keeps_its_shape():
    assert run("def f(x):\n    '''Doc.'''\n    return x", "f(2)") == 7
    assert run("def f(x):\n    return x, [x, {'k': x}]", "f(1)") == (4, [4, {"k": 4}])


def test_functions_inside_and_an_empty_return_are_left_alone():
    code = "def f(x):\n    def g():\n        return 1\n    if x:\n        return\n    return g() + (lambda: 1)()"
    assert run(code, "f(0)") == 7
    assert run(code, "f(1)") is None


def test_the_docstring_stays_the_docstring():
    assert run("def f():\n    '''Doc.'''\n    return 1", "f.__doc__") == "Doc."


@needs_data
def test_a_third_of_the_dev_steps_is_wrong_and_the_rest_untouched():
    changed = []
    for problem in split("dev").values():
        reference, other = reference_responses(problem), reference_responses(problem, mutate=True)
        changed += [number for number in reference if other[number] != reference[number]]
    assert len(changed) == sum(map(is_mutated, range(50))) == 16
    assert changed[:2] == ["10.3", "10.6"]


@needs_data
def test_the_test_split_has_no_reference():
    assert all(reference_responses(problem) == {} for problem in split("test").values())
