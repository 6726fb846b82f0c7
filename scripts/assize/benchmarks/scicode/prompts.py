"""The prompts that a step is asked with, in the official order of their parts. Pure.

The official wording is data of the benchmark: a study that stages the two templates gets it (``prompts`` in its
section). Without them a plain wording with the same parts is used, and prepared.json says so. Where the official prompt
shows the code of the steps before, these prompts have a mark: that code is the candidate's own, as it was written.
"""

from assize.benchmarks.scicode.problems import Problem, Step

VARIANTS = ("with_background", "without_background")
PLAIN = """\
The steps so far:

{problem_steps_str}

The next step and its function header:

{next_step_str}

Use these dependencies alone, and do not repeat them:

{dependencies}

Answer with the Python code of this step in one ```python block: no earlier step, no example, no test.
"""
# What a solver that is a command is told beside the prompts.
INSTRUCTION = """\
Solve the steps of one problem in scientific computing, in the order of their numbers.

prompts/with_background/ and prompts/without_background/ hold a prompt for each step, <step>.txt, in two variants. Where
a prompt says <code of step N>, your own code of step N belongs. Answer each step in a file responses/<step>.py. Only
the files there are judged.
"""


def code_mark(number: str) -> str:
    """What stands where the candidate's own code of an earlier step belongs."""
    return f"<code of step {number}>"


def _description(step: Step, variant: str) -> str:
    parts = [step.description, step.background if variant == "with_background" else ""]
    return "\n".join(part for part in parts if part)


def prompt(problem: Problem, step: Step, variant: str, given: dict[str, str], template: str = PLAIN) -> str:
    """The prompt of one step in one variant."""
    before = []
    for prior in problem.before(step.number):
        code = code_mark(prior.number) if prior.scored else given[prior.number]
        before.append(f"{_description(prior, variant)}\n\n{code}")
    following = f"{_description(step, variant)}\n\n{step.header}\n\n{step.return_line}"
    fields = {
        "{problem_steps_str}": "\n\n------\n\n".join(before),
        "{next_step_str}": following,
        "{dependencies}": problem.dependencies,
    }
    for mark, text in fields.items():
        template = template.replace(mark, text)
    return template
