"""From the responses of a problem to the programs that are run, one a scored step. Pure.

A program is what the official script writes before the test cases: the problem's dependencies, the code of the steps
before (the context) and the step's own code. Source: the protocol's "Context".
"""

import ast
from dataclasses import dataclass

from assize.benchmarks.scicode.extraction import MAX_PARSED, Extracted, extract, has_fence, strip_fences
from assize.benchmarks.scicode.problems import Problem, Step
from assize.benchmarks.scicode.runtime.standin.scicode.parse.parse import extract_function_name, get_function_from_code

# Characters of a program that is run: each step's holds those before it, and all of a problem's are in hand at once.
MAX_PROGRAM = 1 << 20


@dataclass(frozen=True)
class Options:
    """What of the terms decides a program."""

    extraction: str = "function"
    context: dict | None = None
    special: str = "verbatim"

    def context_of(self, split: str) -> str:
        return (self.context or {"dev": "reference", "test": "self"})[split]


@dataclass(frozen=True)
class Program:
    """A step's program. ``fault`` is set where there is nothing to run: the signature of the fail.

    ``lines`` is the number of lines of the dependencies and of the context, to tell where an error came from.
    ``missing`` are the prior steps that the context should have had.
    """

    step: str
    text: str
    lines: tuple[int, int]
    missing: tuple[str, ...] = ()
    fault: str | None = None
    fenced: bool = False

    @property
    def meaning(self) -> str:
        """What decides whether two programs are the same one: their syntax tree, else their text."""
        if self.fault:
            return f"fault: {self.fault}"
        if len(self.text) > MAX_PARSED:
            return self.text
        try:
            return ast.dump(ast.parse(self.text))
        except Exception:
            # A candidate's text: there is no list of what Python may say of it.
            return self.text


def given_code(step: Step, given: dict[str, str], special: str) -> str:
    """The authors' text of a given step: whole, or what the official code makes of it.

    Officially 13.6 and 62.1 are reduced to a bare ``__init__``, since that is what their headers extract to.
    """
    text = strip_fences(given[step.number])
    if special == "verbatim":
        return text
    return get_function_from_code(text, extract_function_name(step.header)) or ""


def is_stored(text: str, problem: Problem) -> bool:
    """Whether a text is a file as the official writer stores it: dependencies and prior code before the step's own."""
    words = problem.dependencies.split()
    return bool(words) and "```" not in text and text.split()[: len(words)] == words


def prior_code(step: Step, problem: Problem, responses: dict, given: dict, options: Options) -> Extracted:
    """What a step gives to the context of the later ones."""
    if not step.scored:
        return Extracted(given_code(step, given, options.special))
    if options.context_of(problem.split) == "reference":
        if step.reference is None:
            return Extracted(None, "no reference")
        return Extracted(strip_fences(step.reference))
    text = responses.get(step.number)
    # Officially prior code is always one function, whatever the step's own file holds.
    return extract("function" if is_stored(text or "", problem) else options.extraction, text, step.header)


def compose(step: Step, problem: Problem, responses: dict, given: dict, options: Options) -> Program:
    """The program of one scored step.

    Parameters
    ----------
    responses : step number -> response, or whole stored file; a missing step is not in it.
    given : step number -> the authors' text of a given step.
    """
    text = responses.get(step.number)
    if text is not None and options.extraction == "script" and is_stored(text, problem):
        # The stored file is the whole program; nothing in it tells where its context ends.
        length = _lines(problem.dependencies)
        return Program(step.number, text, (length, 0), fenced=has_fence(text))
    priors = [
        (prior.number, prior_code(prior, problem, responses, given, options)) for prior in problem.before(step.number)
    ]
    missing = tuple(number for number, prior in priors if prior.code is None)
    own = extract(options.extraction, text, step.header)
    if text is None or own.code is None:
        return Program(step.number, "", (0, 0), missing, own.fault if text is not None else "missing step")
    context = "\n".join(prior.code for _, prior in priors if prior.code is not None)
    whole = f"{problem.dependencies}\n{context}\n{own.code}\n"
    if len(whole) > MAX_PROGRAM:
        return Program(step.number, "", (0, 0), missing, f"a program of more than {MAX_PROGRAM} characters")
    lines = (_lines(problem.dependencies), _lines(context))
    return Program(step.number, whole, lines, missing, fenced=has_fence(context) or has_fence(own.code))


def _lines(text: str) -> int:
    return text.count("\n") + 1


def declared_names(problem: Problem) -> set[str]:
    """The names that the headers of a problem declare."""
    names = set()
    for step in problem.steps:
        for word in ("def ", "class "):
            for line in step.header.splitlines():
                if line.startswith(word):
                    names.add(line[len(word) :].split("(")[0].split(":")[0].strip())
    return names
