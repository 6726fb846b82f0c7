"""From the results of a problem's programs to the body of a grade. Pure."""

from assize.benchmarks.scicode.composition import Program
from assize.benchmarks.scicode.problems import Problem

DRY_OUTPUT = "SCICODE_PASS (DRY_RUN)"


def programs_to_run(programs: dict[str, dict[str, Program]]) -> dict[str, Program]:
    """The programs that must be run: one a step where both extractions mean the same, else both.

    Parameters
    ----------
    programs : step -> extraction -> program, the primary extraction first.

    Returns
    -------
    ``<step>/<extraction>`` -> program.
    """
    chosen = {}
    for number, variants in programs.items():
        seen = set()
        for extraction, program in variants.items():
            if program.meaning not in seen and not program.fault:
                chosen[f"{number}/{extraction}"] = program
            seen.add(program.meaning)
    return chosen


def check(number: str, variants: dict[str, Program], results: dict[str, dict], declared: set[str]) -> dict:
    """One step of a grade: its verdict under the primary extraction, and under the other where they differ."""
    primary, *others = [_outcome(number, name, program, variants, results) for name, program in variants.items()]
    sensitive = any(item["program"].meaning != primary["program"].meaning for item in others)
    checked = {
        "id": number,
        "verdict": "pass" if primary["passed"] else "fail",
        "signature": primary["signature"],
        "phase": primary["phase"],
        "origin": primary["origin"],
        "seconds": primary["seconds"],
        "protocol_sensitive": sensitive,
        "other_verdict": None,
        "other_signature": None,
        "missing_context": list(primary["program"].missing),
        "fault": _fault(primary, declared),
        "flags": primary["flags"],
    }
    if sensitive:
        checked["other_verdict"] = "pass" if others[0]["passed"] else "fail"
        checked["other_signature"] = others[0]["signature"]
    return checked


def _outcome(number: str, extraction: str, program: Program, variants: dict, results: dict) -> dict:
    """How one extraction of a step ended: by its own run, or by that of the other one that means the same."""
    nothing = {"passed": False, "phase": "extraction", "origin": "code", "seconds": 0.0, "flags": []}
    if program.fault:
        return nothing | {"program": program, "signature": program.fault}
    for name, other in variants.items():
        if other.meaning == program.meaning and f"{number}/{name}" in results:
            return results[f"{number}/{name}"] | {"program": program}
    raise KeyError(f"{number}/{extraction} was not run")


def _fault(outcome: dict, declared: set[str]) -> str | None:
    """What only the one who composed the program can see of a harness fault."""
    if outcome["passed"]:
        return None
    if outcome["program"].fenced:
        return "fence_line"
    signature = outcome["signature"] or ""
    if signature.startswith("NameError: name '"):
        name = signature.split("'")[1]
        if name in declared and not outcome["program"].missing:
            return "declared_name"
    return None


def body(problem: Problem, checks: list[dict]) -> dict:
    """The body of a grade: a problem is solved when all its scored steps pass. ``score`` is the fraction of its steps.

    The denominator is the manifest's: a step without a file is a fail.
    """
    passed = sum(item["verdict"] == "pass" for item in checks)
    planned = len(problem.scored_steps)
    solved = passed == planned
    return {
        "verdict": "pass" if solved else "fail",
        "valid": True,
        "score": passed / planned,
        "analysis_score": passed / planned,
        "scoring_status": "solved" if solved else "not_solved",
        "reason": f"{passed} of {planned} steps pass",
        "checks": checks,
        "tamper": [f"{name}:{item['id']}" for item in checks for name in item["flags"]],
        "detail": {
            "split": problem.split,
            "steps": {"passed": passed, "scored": planned},
            "steps_other": sum((item["other_verdict"] or item["verdict"]) == "pass" for item in checks),
            "protocol_sensitive": [item["id"] for item in checks if item["protocol_sensitive"]],
        },
    }


def dry_body(problem: Problem) -> dict:
    """A pass that nothing earned: it tries the workflow out, is marked, and no census counts it."""
    checks = [{"id": step.number, "verdict": "pass", "signature": None} for step in problem.scored_steps]
    dry = {"scoring_status": "dry_run", "reason": DRY_OUTPUT, "flags": ["dry_run"]}
    return {"verdict": "pass", "valid": True, "score": 1.0, "analysis_score": 1.0, "checks": checks, **dry}
