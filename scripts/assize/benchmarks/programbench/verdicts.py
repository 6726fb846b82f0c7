"""What an evaluation means: a score, a candidate's valid zero, or an infrastructure failure. Pure.

In come the official result (``eval.json``), the official scoring of it, and what the adapter observed beside it; out
goes the body of a grade. The rules are the table "Valid zero or infrastructure" of the protocol, docs/programbench.md.
"""

import re
import sys
from collections import Counter
from dataclasses import dataclass, field

from assize.benchmarks.programbench.tools import CACHES

# Upstream's error codes of a step that the candidate alone decides, and the scoring status of that valid zero.
CANDIDATE_STEPS = {
    "compile_failed": "build_failed",
    "copy_executable_failed": "no_executable",
    "hash_executable_failed": "no_executable",
    # ``rm -f ./executable`` fails on a directory of that name.
    "clear_stale_executable_failed": "no_executable",
    # The adapter's own: the build changed what its tests would run with.
    "tools_replaced": "tools_replaced",
}
# Ends of a command that may be the engine's own doing, or the end of the container; -1: it found no end in its time.
DOUBTFUL = frozenset({-1, 125, 126, 127, 137, 255})
NO_EXECUTABLE = {
    "copy_executable_failed": "the build left no ./executable",
    "hash_executable_failed": "./executable is a directory or a dead link",
    "clear_stale_executable_failed": "./executable is a directory",
}
# Branch errors of a suite that ran and gave nothing to read. With a reference that gave it, the candidate is the cause.
LOST = {
    "results_read_failed": "its results are lost",
    "xml_parse_error": "its results are no XML",
    "empty_test_results": "its results are empty",
}
# A test run that says this never got as far as the candidate: the environment is broken.
HARNESS_WORDS = re.compile(
    r"No module named '?(?:pytest|_pytest|xdist|execnet|pluggy|pytest_timeout|pytest_rerunfailures|libtmux)"
    r"|unrecognized arguments"
    r"|Error importing plugin"
    r"|Could not find a version that satisfies"
    r"|No matching distribution found"
    r"|(?:pip3?|python3?|pytest): (?:command )?not found"
    r"|No space left on device"
)
ORDINARY = "AssertionError"
SIGNATURE_LENGTH = 200


@dataclass
class Run:
    """One run of a branch's tests."""

    returncode: int
    timed_out: bool
    results_read: bool
    # What it said of a broken environment, where it said so.
    harness_words: str | None = None


@dataclass
class Observed:
    """What the adapter saw beside the official result.

    ``compile_runs``: how each run of compile.sh ended: exit status, "timed out", or "container gone".
    ``survivors``: processes that the build left running; None where they could not be counted. ``runs``: branch -> its
    runs. ``changes``: paths outside /workspace that the build changed. ``replaced``: those among them that the
    evaluation would have run. ``root_files``: files of the candidate that pytest or Python would take for its own
    settings.
    """

    compile_runs: list[int | str] = field(default_factory=list)
    survivors: int | None = 0
    runs: dict[str, list[Run]] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    root_files: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Survey:
    """The outcomes of one evaluation against the tests that count.

    ``outcomes``: ``branch/name`` -> status, worst first where a name has several. The rest is by branch: tests that
    count and have no outcome, names that are not listed, names with more than one outcome, listed tests without any.
    """

    outcomes: dict[str, str]
    signatures: dict[str, str | None]
    missing: dict[str, list[str]]
    unexpected: dict[str, list[str]]
    duplicates: dict[str, list[str]]
    unlisted_missing: dict[str, int]
    cases: dict[str, int]


def survey(result: dict, mask: dict[str, list[str]], listed: dict[str, list[str]]) -> Survey:
    """Sort the test results of an ``eval.json`` by what was expected.

    Parameters
    ----------
    result : the official result, as JSON.
    mask : active branch -> tests that count.
    listed : active branch -> all its listed tests, ignored ones too.
    """
    outcomes, signatures, missing, unexpected, duplicates, absent, cases = {}, {}, {}, {}, {}, {}, {}
    by_branch: dict[str, dict[str, list]] = {branch: {} for branch in mask}
    for test in result["test_results"]:
        # ``not_run`` is upstream's word for a test without an outcome; no results file can say it.
        if test["branch"] in by_branch and test["status"] != "not_run":
            by_branch[test["branch"]].setdefault(test["name"], []).append(test)
    for branch, names in mask.items():
        got = by_branch[branch]
        missing[branch] = [name for name in names if name not in got]
        unexpected[branch] = sorted(set(got) - set(listed[branch]))
        duplicates[branch] = sorted(name for name, tests in got.items() if len(tests) > 1)
        absent[branch] = len(set(listed[branch]) - set(got))
        cases[branch] = sum(map(len, got.values()))
        for name in names:
            # A test that both passed and failed did not pass.
            tests = sorted(got.get(name, []), key=lambda test: test["status"] == "passed")
            outcomes[f"{branch}/{name}"] = tests[0]["status"] if tests else "not_run"
            signatures[f"{branch}/{name}"] = signature(tests[0]) if tests else None
    return Survey(outcomes, signatures, missing, unexpected, duplicates, absent, cases)


def signature(test: dict) -> str | None:
    """How a test failed, in one line; None if it passed."""
    if test["status"] == "passed":
        return None
    message = str(test["extra"].get("message") or test["extra"].get("error_details") or "").strip()
    line = message.splitlines()[0] if message else ""
    if line.startswith(("assert ", ORDINARY)):
        return ORDINARY
    return line[:SIGNATURE_LENGTH] or test["status"]


def judge(
    result: dict,
    official_score: float,
    observed: Observed,
    mask: dict[str, list[str]],
    listed: dict[str, list[str]],
    clean: set[str],
) -> dict:
    """The body of a grade.

    Parameters
    ----------
    result : the official result (``eval.json``) as JSON.
    official_score : the official fraction, by ``test_results_map`` and ``score_from_tests``.
    clean : branches that the reference finished with an outcome for every test.

    Returns
    -------
    ``valid``, ``analysis_score``, ``scoring_status`` and the rest of a grade's body; ``score`` is always the official
    fraction. What is not valid is void until somebody has looked at it.
    """
    found = survey(result, mask, listed)
    passed = sum(status == "passed" for status in found.outcomes.values())
    analysis = passed / len(found.outcomes)
    body = {
        "score": official_score,
        "tamper": tamper_flags(observed),
        "flags": flags(found),
        "detail": {
            "complete": is_complete(result, found),
            "passed": passed,
            "scored": len(found.outcomes),
            "statuses": dict(Counter(found.outcomes.values())),
            "branches": {branch: branch_facts(branch, found, mask) for branch in mask},
            "error_code": result["error_code"],
            "branch_errors": {
                branch: [error["error_code"] for error in errors]
                for branch, errors in result["test_branch_errors"].items()
            },
            "warnings": result["warnings"],
            "compile_runs": observed.compile_runs,
            "changes": observed.changes[:MOST_CHANGES],
            "changes_count": len(observed.changes),
        },
    }
    if result["error_code"]:
        # Without any test, that all of them are missing says nothing.
        return body | {"checks": [], "flags": []} | _stopped(result, observed)
    lost, broken = {}, {}
    for branch, errors in result["test_branch_errors"].items():
        if branch not in mask:
            continue
        reason = lost_branch(errors[0]["error_code"], observed.runs.get(branch, []))
        if reason is None or branch not in clean:
            details = errors[0]["error_details"].strip()[-300:]
            broken[branch] = _harness_words(observed.runs.get(branch, [])) or f"{errors[0]['error_code']} {details}"
        else:
            lost[branch] = reason
    if broken:
        return body | {"checks": []} | _invalid("infra", f"infra: {_by_branch(broken)}")
    empty = [branch for branch in mask if not found.cases[branch] and branch not in lost]
    if empty:
        return body | {"checks": []} | _invalid("no_tests", f"no test ran in {', '.join(empty)}")
    renamed = [branch for branch in mask if is_renamed(found, branch)]
    if renamed:
        counts = {branch: f"{len(found.unexpected[branch])} unknown names, as many missing" for branch in renamed}
        return body | {"checks": checks(found)} | _invalid("naming_artefact", _by_branch(counts))
    status = "branch_failed" if lost else "resolved" if analysis == 1.0 else "not_resolved"
    reason = f"{passed} of {len(found.outcomes)} tests pass"
    return body | {
        "verdict": "pass" if analysis == 1.0 else "fail",
        "valid": True,
        "analysis_score": analysis,
        "scoring_status": status,
        "reason": f"{reason}; {_by_branch(lost)}" if lost else reason,
        "checks": checks(found),
    }


def _stopped(result: dict, observed: Observed) -> dict:
    """Where upstream stopped before any test: the candidate's step failed, or one of the harness's."""
    code = result["error_code"]
    status = CANDIDATE_STEPS.get(code)
    if status is None or (code in NO_EXECUTABLE and not _is_steps_own_end(result, code, observed)):
        details = (result["error_details"] or "").strip()[-300:]
        return _invalid("infra", f"infra: {code}: {details}")
    reason = NO_EXECUTABLE.get(code) or result["error_details"]
    if code == "compile_failed":
        end = observed.compile_runs[-1] if observed.compile_runs else None
        if end == "timed out":
            status, reason = "build_timed_out", "compile.sh was ended for its time"
        elif end == "container gone":
            reason = "compile.sh ended its container, or left one that does not start, twice"
        else:
            reason = f"compile.sh exited {end}"
    return {"verdict": "fail", "valid": True, "analysis_score": 0.0, "scoring_status": status, "reason": reason}


def _is_steps_own_end(result: dict, code: str, observed: Observed) -> bool:
    """Whether a step of a moment failed by itself, and not because engine or node did not carry it out."""
    ends = [entry["returncode"] for entry in result["log"] if f"{entry['step']}_failed" == code]
    return bool(ends) and (ends[-1] not in DOUBTFUL or is_candidates_doing(ends[-1], observed))


def is_candidates_doing(returncode: int, observed: Observed) -> bool:
    """Whether what the build changed outside /workspace can be why a step of the harness failed behind it. Pure.

    A step that found no end, or not the engine's, is the candidate's only where the build changed what every shell and
    every program reads first.
    """
    changed = system_changes(observed)
    return any(STEERING.search(path) for path in changed) if returncode in DOUBTFUL else bool(changed)


def _invalid(status: str, reason: str) -> dict:
    return {
        "verdict": "void",
        "valid": False,
        "analysis_score": None,
        "scoring_status": status,
        "reason": reason,
    }


def lost_branch(error_code: str, runs: list[Run]) -> str | None:
    """Why a branch without results counts as zero, or None where that is the harness's fault."""
    if error_code not in LOST or _harness_words(runs):
        return None
    if error_code == "results_read_failed" and runs and runs[-1].timed_out:
        return "its tests were ended for their time"
    # What happens once may be chance: upstream or the adapter ran it again.
    return LOST[error_code] if len(runs) > 1 else None


def _harness_words(runs: list[Run]) -> str | None:
    return next((run.harness_words for run in runs if run.harness_words and not run.results_read), None)


def is_renamed(found: Survey, branch: str) -> bool:
    """Whether a branch's results are its tests under other names: as many unknown names as missing ones."""
    unknown = len(found.unexpected[branch])
    return unknown > 0 and unknown in (len(found.missing[branch]), found.unlisted_missing[branch])


def is_complete(result: dict, found: Survey) -> bool:
    """Every test that counts has an outcome, and nothing on the way failed."""
    return not (
        result["error_code"]
        or result["test_branch_errors"]
        or any(found.missing.values())
        or "system_error" in found.outcomes.values()
    )


def branch_facts(branch: str, found: Survey, mask: dict) -> dict:
    names = [f"{branch}/{name}" for name in mask[branch]]
    return {
        "passed": sum(found.outcomes[name] == "passed" for name in names),
        "scored": len(names),
        "missing": len(found.missing[branch]),
        "unexpected": len(found.unexpected[branch]),
        "duplicates": len(found.duplicates[branch]),
    }


def checks(found: Survey) -> list[dict]:
    """Each test that counts, in a stable order."""
    return [
        {"id": name, "verdict": "pass" if status == "passed" else "fail", "signature": found.signatures[name]}
        for name, status in sorted(found.outcomes.items())
    ]


def flags(found: Survey) -> list[str]:
    """What is odd in the results; the official score stands beside it."""
    kinds = {"missing": found.missing, "unexpected": found.unexpected, "duplicate": found.duplicates}
    return [
        f"{kind}_tests:{branch}:{len(names)}"
        for kind, by_branch in kinds.items()
        for branch, names in by_branch.items()
        if names
    ]


MOST_CHANGES = 100
# Outside /workspace, what the tests or the adapter will run or read after the candidate: programs, libraries, Python's
# packages, and what a login shell or pip reads first.
SENSITIVE = re.compile(
    r"^/(?:usr/(?:local/)?)?s?bin/"
    r"|^/(?:usr/(?:local/)?)?lib(?:32|64|x32|exec)?/"
    r"|^/etc/(?:profile|bash|environment|ld\.so|pip|python|passwd|group|shadow)"
    r"|^/(?:root|home/[^/]+)/\.(?:bash|profile|config/pip|pip|local/|pythonrc|gitconfig)"
    r"|^/opt/"
)
# Of these, what every shell, every program or every Python reads before anything else.
STEERING = re.compile(
    r"^/etc/(?:profile|bash|environment|ld\.so)|^/root/\.(?:bash|profile)|/(?:site|user)customize\.py$|\.pth$"
)
# Where pytest looks for its settings: it walks up from its tests, through the submission, to the top.
SETTINGS = r"conftest\.py|\.?pytest\.(?:ini|toml)|tox\.ini|setup\.cfg|pyproject\.toml"
# Upstream puts this folder before all others on Python's path, and clears one file of it.
ABOVE = re.compile(rf"^/(?:{SETTINGS})$|^/tmp/programbench-grader-plugins(?:/|$)")
ROOT_FILES = re.compile(
    rf"^(?:{SETTINGS}|(?:site|user)customize\.py|pytest/.*|eval(?:/.*)?|[^/]+\.(?:dist|egg)-info/entry_points\.txt)$"
)
# A module or a package at the root: ``python3 -m pytest`` finds it before any other of its name.
MODULE = re.compile(r"^(\w+)(?:\.pyc?|(?:\.[\w-]+)?\.so|/__init__\.(?:pyc?|(?:[\w-]+\.)?so))$")
# Modules of the evaluator's wheelhouse.
WHEELHOUSE_MODULES = frozenset(
    [
        *("_distutils_hack", "_pytest", "exceptiongroup", "execnet", "iniconfig", "libtmux", "packaging"),
        *("pkg_resources", "pluggy", "py", "pygments", "pytest", "pytest_dependency", "pytest_rerunfailures"),
        *("pytest_timeout", "setuptools", "tomli", "typing_extensions", "xdist"),
    ]
)


def root_files(names) -> list[str]:
    """Which paths of a submission, from its root, pytest or Python would take for settings or for modules of their own,
    or belong to the tests."""
    found = sorted({name for name in map(_normal, names) if ROOT_FILES.match(name) or _shadows(name)})
    # A whole tree at the tests' place is one sign, not a thousand.
    shown = [name for name in found if not name.startswith("eval")]
    return shown + (["eval/**"] if len(shown) < len(found) else [])


def _shadows(name: str) -> bool:
    module = MODULE.match(name)
    return bool(module) and (module[1] in sys.stdlib_module_names or module[1] in WHEELHOUSE_MODULES)


def _normal(name: str) -> str:
    return name.removeprefix("./").rstrip("/")


def system_changes(observed: Observed) -> list[str]:
    """What the build changed of what tests and adapter run or read after it. Pure."""
    return [path for path in observed.changes if SENSITIVE.match(path) and not CACHES.search(path)]


def tamper_flags(observed: Observed) -> list[str]:
    """Signs of tampering. They stand beside the score and never change it."""
    system = set(system_changes(observed))
    changed = [path for path in observed.changes if path in system or ABOVE.match(path)]
    cached = [path for path in observed.changes if SENSITIVE.match(path) and CACHES.search(path)]
    found = [f"replaced:{path}" for path in observed.replaced]
    found += [f"root_file:{name}" for name in observed.root_files]
    found += [f"changed:{path}" for path in changed[:MOST_CHANGES]]
    if len(changed) > MOST_CHANGES:
        found.append(f"changed: {len(changed) - MOST_CHANGES} more")
    if cached:
        found.append(f"changed: {len(cached)} Python caches")
    if observed.survivors != 0:
        found.append(f"survivors:{'uncounted' if observed.survivors is None else observed.survivors}")
    return found


def _by_branch(reasons: dict[str, str]) -> str:
    return "; ".join(f"branch {branch}: {reason}" for branch, reason in reasons.items())
