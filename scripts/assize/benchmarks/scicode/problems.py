"""The SciCode problems of both splits, the steps that are scored, and the three that the authors gave.

Source: the official repository's ``eval/data`` at revision 69a8cfc829fe8788a426ce8b5de6292366dce7ef.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assize.errors import InfrastructureError, UsageError
from assize.records import sha256_file

SPLITS = ("test", "dev")
# Both splits as published. Any other bytes are another benchmark.
SHA256 = {
    "test": "38797fef78f434720be6d053b4f3a86839d6f8ea5fb9115450677cd3a6edf81d",
    "dev": "193968aff23b7ed931c8f6d196b611e2f6694adb49e6cc085444a60ad2fc4f7b",
}
# sha256 of the authors' test_data.h5. Targets in any other file are not the official ones, whoever made it.
OFFICIAL_TARGETS = "48b0272a88b17dbd29777c217e1b4fb2b019b92e11cc2add847409db9541b890"
# Given by the authors, without test cases, not scored: 291 - 3 = 288 steps of the test split.
GIVEN_STEPS = ("13.6", "62.1", "76.3")
# 288 of the test split and 50 of dev.
SCORED_STEPS = {"test": 288, "dev": 50}


@dataclass(frozen=True)
class Step:
    """One step. ``number`` is ``<problem>.<i>``, ``reference`` None in the test split."""

    number: str
    description: str
    background: str
    header: str
    return_line: str
    cases: tuple[str, ...]
    reference: str | None

    @property
    def scored(self) -> bool:
        return self.number not in GIVEN_STEPS


@dataclass(frozen=True)
class Problem:
    """One problem: an instance of the benchmark."""

    id: str
    split: str
    name: str
    dependencies: str
    steps: tuple[Step, ...]

    @property
    def scored_steps(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.scored)

    def step(self, number: str) -> Step:
        return next(step for step in self.steps if step.number == number)

    def before(self, number: str) -> tuple[Step, ...]:
        """The steps before one, in order."""
        return self.steps[: [step.number for step in self.steps].index(number)]


def parse_problem(line: str, split: str) -> Problem:
    """One line of a split's file."""
    raw = json.loads(line)
    steps = tuple(
        Step(
            number=step["step_number"],
            description=step["step_description_prompt"],
            background=step["step_background"],
            header=step["function_header"],
            return_line=step["return_line"],
            cases=tuple(step["test_cases"]),
            reference=step.get("ground_truth_code"),
        )
        for step in raw["sub_steps"]
    )
    return Problem(raw["problem_id"], split, raw["problem_name"], raw["required_dependencies"], steps)


@cache
def read_split(path: str, split: str) -> dict[str, Problem]:
    """Problem id -> problem, in the file's order.

    Raises
    ------
    InfrastructureError : the file is not there, which is a matter of staging.
    UsageError : the file has other bytes than the published split.
    """
    try:
        found = sha256_file(path)
    except FileNotFoundError:
        raise InfrastructureError(
            "not_staged", f"{path}: the {split} split is not staged", "run the workflow"
        ) from None
    if found != SHA256[split]:
        raise UsageError("other_split", f"{path}: sha256 is {found}, the published {split} split's is {SHA256[split]}")
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    problems = [parse_problem(line, split) for line in lines if line.strip()]
    return {problem.id: problem for problem in problems}


def read_given(path) -> dict[str, str]:
    """The text of the given steps: a JSON object of step number -> text.

    Raises
    ------
    UsageError : one of the three is missing.
    """
    given = json.loads(Path(path).read_text(encoding="utf-8"))
    missing = [number for number in GIVEN_STEPS if not given.get(number)]
    if missing:
        raise UsageError("bad_given_steps", f"{path}: no text for step {', '.join(missing)}")
    return given
