"""What the SciCode tests share: the staged problems, small problems of our own, ways to run code in the runtime."""

import json
import subprocess
from functools import cache
from pathlib import Path

import pytest

from assize.benchmarks.scicode import court
from assize.benchmarks.scicode.benchmark import IMAGE
from assize.benchmarks.scicode.composition import Program
from assize.benchmarks.scicode.problems import Problem, Step, read_given, read_split
from assize.errors import AssizeError
from assize.sandbox import open_lane

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data" / "scicode"
FILES = {"dev": "problems_dev.jsonl", "test": "problems_all.jsonl"}

needs_data = pytest.mark.skipif(not DATA.exists(), reason=f"the problems are not at {DATA}")
needs_runtime = pytest.mark.skipif(
    not (ROOT / court.VENV / court.STAMP).exists(), reason="the runtime is not built: make setup-scicode"
)

# Texts that Python cannot take apart, put together again or compile, each in a way of its own.
HOSTILE_TEXTS = {
    "syntax": "def f(x) return x\n",
    "nul": "def f(x):\n    return x\0\n",
    "deep for unparse": "def f(x):\n    return " + "+".join(["x"] * 1500) + "\n",
    "deep for parse": "def f(x):\n    return " + "+".join(["x"] * 6000) + "\n",
    "attributes": "def f(x):\n    return x" + ".y" * 6000 + "\n",
    "elif": "def f(x):\n    if x: return 0\n" + "".join(f"    elif x == {i}: return {i}\n" for i in range(5000)),
    "signs": "def f(x):\n    return " + "-" * 7000 + "x\n",
    "brackets": "def f(x):\n    return " + "[" * 300 + "]" * 300 + "\n",
    "long number": "def f(x):\n    return 0x" + "f" * 5000 + "\n",
}


def split(name: str) -> dict[str, Problem]:
    return read_split(str(DATA / FILES[name]), name)


def given() -> dict[str, str]:
    return read_given(DATA / "given_steps.json")


def step(number: str, header: str = "", cases: tuple[str, ...] = (), reference: str | None = None) -> Step:
    return Step(number, "What to do.", "Why.", header, "    return None", cases, reference)


def problem(*steps: Step, id: str = "0", kind: str = "dev", dependencies: str = "import numpy as np") -> Problem:
    return Problem(id, kind, "small", dependencies, steps)


@cache
def runtime() -> court.Runtime:
    return court.find_runtime(court.VENV, court.lock_digest())


@cache
def lane_of(name: str):
    """A lane of this machine that has the runtime. One that is missing skips the test, and says why."""
    options = {"read_only_paths": [runtime().mount]} if name == "bubblewrap" else {}
    try:
        return open_lane(name, image=IMAGE, options=options)
    except AssizeError as error:
        pytest.skip(f"lane {name}: {error.message}")


def run_code(codes: dict[str, str], cases: tuple[str, ...] = (), *, on: str = "bubblewrap", targets=None, **options):
    """Run each code as a step ``0.<i>`` with the same cases, and return name -> result."""
    limits = {"wall_s": 20, "memory_mb": 1024} | options.pop("limits", {})
    small = problem(*(step(f"0.{index}", cases=cases) for index in range(len(codes))))
    programs = {name: Program(f"0.{i}", f"{code}\n", (0, 0)) for i, (name, code) in enumerate(codes.items())}
    return court.run_programs(lane_of(on), runtime(), small, programs, limits, targets=targets, workers=2, **options)


def in_runtime(code: str):
    """What a snippet leaves in ``result``, run by the runtime's Python beside the stand-in: a JSON value."""
    places = [str(court.RUNTIME), str(court.STAND_IN)]
    script = f"import json, sys\nsys.path[:0] = {places!r}\n{code}\nprint(json.dumps(result))"
    done = subprocess.run([runtime().python, "-c", script], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
