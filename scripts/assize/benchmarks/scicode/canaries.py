"""Candidates whose outcome is known: they tell at calibration whether the harness can judge. Pure."""

from assize.benchmarks.scicode.composition import Options, Program, compose
from assize.benchmarks.scicode.problems import Problem, Step

# What the dependencies of all 80 problems import, and what the tests do. simps needs SciPy < 1.14; Axes3D, matplotlib.
IMPORTS = """\
import cmath, copy, itertools, math, os, pickle, random, time
import numpy as np
import numpy.linalg
import scipy
import sympy
from cmath import exp
from collections import Counter
from functools import partial
from math import *
from math import cos, exp, pi, sin, sqrt
from mpl_toolkits.mplot3d import Axes3D
from numpy import exp, linspace, sqrt, zeros
from numpy.fft import fft, fft2, fftfreq, fftshift, ifft2, ifftshift, irfft2, rfft2, rfftfreq
from scicode.compare.cmp import are_dicts_close, cmp_tuple_or_list
from scipy import integrate, interpolate, linalg, optimize, signal, sparse, special
from scipy.constants import Avogadro, c, epsilon_0
from scipy.integrate import quad, simps, solve_bvp, solve_ivp
from scipy.interpolate import interp1d
from scipy.linalg import block_diag, expm, logm, sqrtm
from scipy.optimize import fminbound, minimize, newton, root_scalar
from scipy.signal import find_peaks, peak_widths
from scipy.sparse import identity, kron
from scipy.sparse.linalg import eigsh, spsolve
from scipy.spatial.distance import pdist
from scipy.special import erfc
"""

# Looks where the harness keeps the targets, in every lane, as a hostile candidate would. It must find nothing.
ORACLE = """\
import os
places = ["/grader", "/case/grader"]
for name in os.listdir("/proc"):
    if name.isdigit():
        places += [f"/proc/{name}/root/grader", f"/proc/{name}/root/case/grader"]
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().decode("utf-8", "replace").split("\\0")
        except OSError:
            continue
        places += [os.path.dirname(word) for word in words if word.endswith("/runner.py")]
found = []
for place in places:
    try:
        found += [f"{place}/{name}" for name in os.listdir(place)]
    except OSError:
        pass
assert not found, found
"""

_CLASS_HEADER = "class Canary:\n    def __init__(self, start):\n        '''A counter.'''"
_CLASS_RESPONSE = """\
Here it is:
```python
class Canary:
    def __init__(self, start):
        self.value = start

    def next(self):
        self.value += 1
        return self.value
```
"""
_GIVEN = """\
class Given:
    def __init__(self, start):
        self.start = start

    def double(self):
        return 2 * self.start
"""


def _step(number: str, header: str = "", cases: tuple[str, ...] = ()) -> Step:
    return Step(number, "", "", header, "", cases, None)


def clean_canaries() -> tuple[Problem, dict[str, Program]]:
    """A problem of our own and programs that must pass: a class step, one that uses a given step, every import."""
    given = _step("13.6", "class Given:\n    def __init__(self, start):")
    after = _step("13.7", "def total(start):", ("assert total(4) == 8",))
    special = Problem("13", "test", "canary", "import numpy as np", (given, after))
    response = {"13.7": "def total(start):\n    return Given(start).double()"}
    class_step = _step("0.1", _CLASS_HEADER, ("counter = Canary(1)\nassert counter.next() == 2",))
    class_problem = Problem("0", "test", "canary", "import numpy as np", (class_step,))
    options = Options()
    programs = {
        "class_step": compose(class_step, class_problem, {"0.1": _CLASS_RESPONSE}, {}, options),
        "special_step": compose(after, special, response, {"13.6": _GIVEN}, options),
        "imports": Program("0.2", IMPORTS, (len(IMPORTS.splitlines()), 0)),
        "oracle": Program("0.3", ORACLE, (0, 0)),
    }
    steps = (class_step, after, _step("0.2"), _step("0.3"))
    return Problem("0", "test", "canaries", "import numpy as np", steps), programs


def failing_canaries(problem: Problem) -> dict[str, Program]:
    """Programs of a real step that must fail: nothing at all, and two ways to leave before the cases."""
    step = next(step for step in problem.scored_steps if any("target" in case for case in step.cases))
    length = problem.dependencies.count("\n") + 1
    return {
        name: Program(step.number, f"{problem.dependencies}\n{code}\n", (length, 0))
        for name, code in (
            ("noop", ""),
            ("early_exit", "import os\nos._exit(0)"),
            ("system_exit", "raise SystemExit(0)"),
        )
    }
