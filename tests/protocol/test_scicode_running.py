"""Running a step: the protocol's conformance cases C, what a hostile step can do, and what a script sees."""

import json
import subprocess

import pytest

from assize.benchmarks.scicode import court
from assize.benchmarks.scicode.composition import Program
from assize.benchmarks.scicode.runtime.reports import judge, lines_of
from assize.indictment import indict, read_rules
from assize.signatures import failures, normalise
from scicode_support import HOSTILE_TEXTS, lane_of, needs_runtime, problem, run_code, runtime, step

pytestmark = needs_runtime

F = "def f(): return 1"
CASES = ("import numpy as np\nassert np.allclose(f(), 1)",)

DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
"""
KILLER = """
import os
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) != os.getpid():
        try:
            os.kill(int(name), 9)
        except OSError:
            pass
"""
FORGER = """
import os
for name in os.listdir("/proc/self/fd"):
    try:
        int(name) > 2 and os.write(int(name), b'{"end": "x"}\\n')
    except OSError:
        pass
os._exit(0)
"""
# Says what it likes where the script reports, and ends before the script could.
LIAR = """
import os
for name in os.listdir("/proc/self/fd"):
    try:
        int(name) > 2 and os.write(int(name), {line!r} + b"\\n")
    except OSError:
        pass
os._exit(0)
"""
UNMOUNT = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.umount2(b"/grader", 2)
libc.unshare(0x10020000)
libc.umount2(b"/grader", 2)
for place in ("/grader", "/case/grader"):
    try:
        assert os.listdir(place) == []
    except OSError:
        pass
"""
ENVIRONMENT = """
import os
threads = {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"}
processor = {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"}
assert set(os.environ) <= {"PATH", "HOME", "LANG", "LC_CTYPE"} | threads | processor, os.environ
"""


@pytest.fixture(scope="module", params=["bubblewrap", "container"])
def hostile(request) -> dict:
    """Each candidate with what it tried; all in one sandbox, as the steps of a problem are."""
    codes = {
        "honest": F,
        "wrong": "def f(): return 2",
        "os_exit": "import os\nos._exit(0)",
        "sys_exit": "import sys\nsys.exit(0)",
        "exit_in_case": "import os\ndef f(): os._exit(0)",
        "patched": f"import numpy as np\nnp.allclose = lambda *a, **k: True\n{F}",
        "patched_code": f"import numpy as np\nnp.isclose.__wrapped__.__code__ = (lambda *a, **k: True).__code__\n{F}",
        "h5py": f"import h5py\ntry:\n    h5py.File('/grader/targets.h5')\nexcept OSError:\n    pass\n{F}",
        "open": f"try:\n    open('/data/test_data.h5')\nexcept OSError:\n    pass\n{F}",
        "frames": f"import sys\nframe = sys._getframe()\n{F}",
        "stack": f"import inspect\nstack = inspect.stack()\n{F}",
        "traceback": f"try:\n    1 / 0\nexcept Exception as e:\n    frame = e.__traceback__.tb_frame\n{F}",
        "bytes": f"import sys\nsys.stdout.buffer.write(bytes([255, 254, 0]))\n{F}",
        "flood": "while True:\n    print('x' * 10000)",
        "hog": "kept = []\nwhile True:\n    kept.append(bytearray(10 ** 8))",
        "bomb": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        break",
        "loop": "while True:\n    pass",
        "daemon": DAEMON + F,
        "crash": "import ctypes\nctypes.string_at(0)",
        "killer": KILLER + F,
        "forger": FORGER,
        "unmount": UNMOUNT + F,
        "main_block": "if __name__ == '__main__':\n    def f(): return 1",
        "stdin": f"import sys\nassert sys.stdin.read() == ''\n{F}",
        "environment": ENVIRONMENT + F,
        "asserts": f"assert not __debug__\n{F}",
    }
    return run_code(codes, CASES, on=request.param, limits={"wall_s": 6, "memory_mb": 600})


PASSING = ("honest", "patched", "h5py", "open", "frames", "stack", "traceback", "bytes", "daemon", "killer", "unmount")


@pytest.mark.parametrize("name", [*PASSING, "main_block", "stdin", "environment"])
def test_what_passes_officially_still_passes(hostile, name):
    assert hostile[name]["passed"], hostile[name]


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("os_exit", "early_exit"),
        ("sys_exit", "early_exit"),
        ("exit_in_case", "early_exit"),
        ("patched", "comparison_patched"),
        ("patched_code", "comparison_patched"),
        ("h5py", "h5_open"),
        ("open", "h5_open"),
        ("frames", "frame_access"),
        ("stack", "frame_access"),
        ("traceback", "frame_access"),
        ("forger", "forged_report"),
    ],
)
def test_tampering_is_flagged(hostile, name, flag):
    assert flag in hostile[name]["flags"]


def test_honest_code_is_not_flagged(hostile):
    for name in ("honest", "wrong", "bytes", "main_block", "daemon", "loop"):
        assert hostile[name]["flags"] == [], name


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("wrong", "AssertionError"),
        ("os_exit", "early exit"),
        ("sys_exit", "early exit"),
        ("exit_in_case", "early exit"),
        ("forger", "early exit"),
        ("flood", "over the output limit"),
        ("loop", "over the time limit"),
        ("crash", "killed by SIGSEGV"),
        ("asserts", "AssertionError"),
    ],
)
def test_a_fail_says_how_it_failed(hostile, name, signature):
    assert not hostile[name]["passed"]
    assert hostile[name]["signature"] == signature


def test_a_hog_and_a_bomb_fail_and_their_neighbours_do_not(hostile):
    for name in ("hog", "bomb"):
        assert not hostile[name]["passed"]
    assert hostile["hog"]["signature"] in ("MemoryError", "over the memory limit")


def test_output_is_bounded_and_of_any_bytes(hostile):
    assert hostile["bytes"]["output"] == "\ufffd\ufffd\0"
    assert hostile["flood"]["output_bytes"] > 16 << 20
    assert len(hostile["flood"]["output"]) < 10_000


def test_what_a_step_leaves_running_is_counted_and_ended(hostile):
    assert hostile["daemon"]["survivors"] == 1
    assert hostile["honest"]["survivors"] == 0


def test_where_an_error_came_from_is_told():
    cases = {
        "dependencies": Program("0.1", "import no_such_module\nx = 1\ny = 2\n", (1, 1)),
        "context": Program("0.2", "import math\nundefined_name\ny = 2\n", (1, 1)),
        "code": Program("0.3", "import math\nx = 1\nundefined_name\n", (1, 1)),
        "tests": Program("0.4", "import math\nx = 1\ny = 2\n", (1, 1)),
        "syntax": Program("0.5", "import math\nx = 1\ndef f( return\n", (1, 1)),
    }
    small = problem(*(step(f"0.{index}", cases=("assert f() == 1",)) for index in range(1, 6)))
    found = court.run_programs(lane_of("bubblewrap"), runtime(), small, cases, {"wall_s": 20})
    origins = {name: result["origin"] for name, result in found.items()}
    assert origins == {name: name for name in cases} | {"syntax": "code"}
    assert found["dependencies"]["signature"] == "ModuleNotFoundError: No module named 'no_such_module'"
    assert found["tests"]["signature"] == "NameError: name 'f' is not defined"


def indicted(results: dict) -> list[str]:
    """The rules that the census would indict the harness by, had a candidate handed this in."""
    checks = [{"id": name, "verdict": "fail", **result} for name, result in results.items() if not result["passed"]]
    episode = {"benchmark": "scicode", "condition": "model", "instance": "0", "repeat": 1}
    grade = {"episode": episode, "verdict": "fail", "scoring_status": "not_solved", "reason": "", "checks": checks}
    return [item["rule"] for item in indict(failures([grade]), read_rules())[0]]


def test_no_text_of_a_candidate_is_the_harnesss_fault():
    found = run_code(HOSTILE_TEXTS, ("assert f(1) == 0",))
    assert {name: result["origin"] for name, result in found.items() if not result["passed"]} == {
        name: "tests" if found[name]["signature"] == "AssertionError" else "code"
        for name, result in found.items()
        if not result["passed"]
    }
    assert {"nul", "deep for parse", "elif"} <= {name for name, result in found.items() if result["phase"] == "program"}
    assert indicted(found) == []


def test_cases_that_do_not_compile_are_the_tests_fault():
    found = run_code({"step": F}, ("assert f() == 1", "assert f() =="))["step"]
    assert (found["origin"], found["phase"]) == ("tests", "case 2")
    assert found["signature"].startswith("SyntaxError: invalid syntax")


def test_what_a_candidate_says_of_itself_neither_indicts_the_harness_nor_stops_it():
    claim = b'{"error": "KeyError: no group", "phase": "targets", "origin": "harness"}'
    codes = {
        "claim": LIAR.format(line=claim),
        "nested": LIAR.format(line=b"[" * 60_000),
        "long": LIAR.format(line=b'{"error": "' + b"x" * 50_000 + b'", "phase": "program", "origin": "code"}'),
        "signal": "import os\nos.kill(os.getpid(), 40)",
        "stdout": "import sys\nsys.stdout.close()",
    }
    found = run_code(codes | {"honest": F}, ("import numpy\nassert numpy.ones(1) == 1",))
    assert found["honest"]["passed"]
    assert {name: result["passed"] for name, result in found.items() if name != "honest"} == dict.fromkeys(codes, False)
    assert {result["origin"] for name, result in found.items() if name != "honest"} == {"code"}
    assert all("forged_report" in found[name]["flags"] for name in ("claim", "nested"))
    assert len(found["long"]["signature"]) <= 300
    assert found["signal"]["signature"] == "killed by signal 40"
    assert indicted(found) == []


def test_the_results_of_the_longest_problem_fit_whatever_its_steps_print():
    """Thirty runs, as 15 steps graded both ways; a NUL is six bytes in the file of results, of which 1 MiB is read."""
    codes = {str(number): f"print(chr(0) * 20_000)\n{F}" for number in range(30)}
    assert all(result["passed"] for result in run_code(codes, CASES).values())


def test_a_fail_inside_a_library_names_its_innermost_frame():
    found = run_code({"step": "import numpy as np\ndef f(): return np.linalg.inv(np.zeros((2, 2)))"}, CASES)["step"]
    message, _, frame = found["signature"].partition(" @ ")
    assert message == "numpy.linalg.LinAlgError: Singular matrix"
    assert frame.startswith("numpy/linalg/")
    assert found["origin"] == "code"
    assert normalise(found["signature"]) == found["signature"]


def targets_file(tmp_path, groups: str) -> bytes:
    path = tmp_path / "targets.h5"
    code = f"import h5py\nwith h5py.File({str(path)!r}, 'w') as file:\n    {groups}"
    subprocess.run([runtime().python, "-c", code], check=True)
    return path.read_bytes()


def test_each_case_sees_its_own_target_in_one_dict(tmp_path):
    data = targets_file(tmp_path, "file['0.0/test1/var1'] = 5\n    file['0.0/test2/var1'] = 6")
    cases = ("assert target == 5\nkept = target", "assert target == kept + 1")
    assert run_code({"step": "x = 1"}, cases, targets=data)["step"]["passed"]


def test_an_inline_target_wins(tmp_path):
    data = targets_file(tmp_path, "file['0.0/test1/var1'] = 5")
    assert run_code({"step": "x = 1"}, ("target = 7\nassert target == 7",), targets=data)["step"]["passed"]


def test_c8_a_missing_group_fails_the_step_as_the_harness(tmp_path):
    data = targets_file(tmp_path, "file['0.0/test1/var1'] = 5")
    found = run_code({"step": F}, ("assert target == 5", "assert True"), targets=data)["step"]
    assert not found["passed"]
    assert (found["origin"], found["phase"]) == ("harness", "targets")
    assert found["signature"].startswith("KeyError")
    assert indicted({"step": found}) == ["h5_unreadable"]


def test_without_targets_a_bare_target_is_a_name_error_of_the_tests():
    found = run_code({"step": F}, ("assert f() == target",))["step"]
    assert (found["signature"], found["origin"]) == ("NameError: name 'target' is not defined", "tests")


def test_without_the_scicode_module_its_import_fails():
    found = run_code({"step": F}, ("from scicode.compare.cmp import cmp_tuple_or_list",), stand_in=False)["step"]
    assert found["signature"] == "ModuleNotFoundError: No module named 'scicode'"


SCRIPT = """
import json, os, random, sys
import numpy as np
import scipy
main = sys.modules["__main__"]
seen = {
    "name": __name__, "file": os.path.basename(__file__), "argv": [os.path.basename(item) for item in sys.argv],
    "main": main.__dict__ is globals(), "doc": __doc__, "package": __package__, "spec": __spec__ is None,
    "names": sorted(name for name in globals() if name.startswith("__")), "source": open(__file__).read()[:12],
    "path": sys.path[0] == os.path.dirname(os.path.abspath(__file__)), "flags": list(sys.flags)[:15],
    "cwd": os.getcwd() == os.path.dirname(os.path.abspath(__file__)), "harness": [
        name for name in ("runner", "step", "audit", "namespaces", "h5file", "derivation") if name in sys.modules],
    "recursion": sys.getrecursionlimit(), "threads": __import__("threading").active_count(),
    "annotations": __annotations__, "printoptions": str(np.get_printoptions()), "errors": np.geterr(),
}
streams = [random.random(), float(np.random.rand())]
def f(): return 1
print(json.dumps([seen, streams]))
"""


def test_a_forked_step_cannot_be_told_from_a_script(tmp_path):
    """Name, file, argv, module state and random streams, against the same text run by a fresh Python."""
    path = tmp_path / "0.0.py"
    path.write_text(SCRIPT)
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    fresh = subprocess.run(
        [runtime().python, path.name], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    forked = run_code({"one": SCRIPT, "two": SCRIPT}, CASES)
    assert forked["one"]["passed"], forked["one"]
    (expected, _), (first, streams), (second, others) = (
        json.loads(text) for text in (fresh.stdout, forked["one"]["output"], forked["two"]["output"])
    )
    for seen in (first, second):
        seen["file"] = seen["argv"][0] = "0.0.py"
    assert first == second == expected
    assert not set(streams) & set(others)


def test_a_pass_needs_the_mark_and_nothing_that_contradicts_it():
    status = [{"token": "t"}, {"exit": 0, "survivors": 0}]
    assert judge([{"end": "t"}], status, None)["passed"]
    assert not judge([], status, None)["passed"]
    assert not judge([{"end": "x"}], status, None)["passed"]
    assert not judge([{"end": "t"}, {"end": "t"}], status, None)["passed"]
    assert not judge([{"end": "t"}, {"error": "E", "phase": "p", "origin": "code"}], status, None)["passed"]
    assert not judge([{"end": "t"}, {"garbled": True}], status, None)["passed"]
    assert not judge([{"end": "t"}], status, "memory")["passed"]
    assert lines_of(b'{"a": 1}\nnot json\n[1]\n') == [{"a": 1}, {"garbled": True}, {"garbled": True}]
