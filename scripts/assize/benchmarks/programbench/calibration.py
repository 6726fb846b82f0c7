"""The gate of ProgramBench: when a calibration of a reference has passed. Pure.

Failed reference tests are never taken out of the mask: a reference that fails too many of them bars the benchmark.
"""

DEFAULT_REPETITIONS = 2
MINIMUM = 0.9


def findings(body: dict, minimum: float) -> dict:
    """Whether a reference passed, why not, and flags.

    Parameters
    ----------
    body : the reference's judgement, the body of a grade.
    minimum : the least fraction of the official mask, 0 to 1.
    """
    detail, reasons = body["detail"], []
    if not body["valid"] or detail["error_code"]:
        reasons.append(f"the reference was not judged: {body['scoring_status']}: {body['reason']}")
    for branch, codes in detail["branch_errors"].items():
        reasons.append(f"harness error in branch {branch}: {', '.join(codes)}")
    for branch, facts in detail["branches"].items():
        for what in ("missing", "unexpected", "duplicates"):
            if facts[what]:
                reasons.append(f"branch {branch}: {facts[what]} {what} of {facts['scored']} tests")
    if detail["statuses"].get("system_error"):
        reasons.append(f"{detail['statuses']['system_error']} tests ended in a system error")
    reasons += [f"warning: {warning}" for warning in detail["warnings"]]
    fraction = detail["passed"] / detail["scored"]
    if fraction < minimum:
        reasons.append(f"the reference passes {detail['passed']} of {detail['scored']} tests, below {minimum:g}")
    failed = detail["scored"] - detail["passed"]
    return {"passed": not reasons, "reasons": reasons, "flags": [f"reference_fails:{failed}"] if failed else []}


def clean_branches(body: dict) -> list[str]:
    """Branches that the reference finished with an outcome for every test that counts."""
    return [
        branch
        for branch, facts in body["detail"]["branches"].items()
        if not (facts["missing"] or body["detail"]["branch_errors"].get(branch))
    ]
