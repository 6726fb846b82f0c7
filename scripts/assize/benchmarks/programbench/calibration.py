"""The gate of ProgramBench: when a calibration of a reference has passed. Pure.

Failed reference tests are never taken out of the mask: a reference that fails too many of them bars the benchmark.
"""

from assize.errors import GateClosed

DEFAULT_REPETITIONS = 2
MINIMUM = 0.9
# Official test branches run the candidate's executable as root, beside the tests and what they expect of it.
ORACLE_EXPOSED = "oracle_exposed"


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
    flags = [f"reference_fails:{failed}"] if failed else []
    return {"passed": not reasons, "reasons": reasons, "flags": [*flags, ORACLE_EXPOSED]}


def clean_branches(body: dict) -> list[str]:
    """Branches that the reference finished with an outcome for every test that counts."""
    return [
        branch
        for branch, facts in body["detail"]["branches"].items()
        if not (facts["missing"] or body["detail"]["branch_errors"].get(branch))
    ]


# What must be the same when a candidate is graded as when its reference was.
SAME = {
    "manifest": "the manifest",
    "mask": "the mask of tests that count",
    "blobs": "the tests' blobs",
    "image_digest": "the image",
    "wheelhouse": "the evaluator's wheelhouse",
    "packages": "the packages of the image's Python",
    "seconds": "the time limits",
    "resource_mode": "the resource mode",
    "cpus": "the CPUs of the allocation",
    "memory_mb": "the memory of the allocation",
}


def record(body: dict, minimum: float) -> dict:
    """The body of a calibration record, from the reference's judgement."""
    keys = ("verdict", "valid", "score", "analysis_score", "scoring_status", "reason")
    failures = [
        {"id": check["id"], "signature": check["signature"]} for check in body["checks"] if check["verdict"] == "fail"
    ]
    return {
        **findings(body, minimum),
        "reference": {key: body[key] for key in keys} | {"failures": failures},
        "canaries": {},
        "sandbox": body["sandbox"],
        "detail": {**body["detail"], "clean": clean_branches(body), **body["provenance"]},
    }


def require(details: list[dict], identity: dict) -> set[str]:
    """Pass only where every repetition calibrated just what is to be graded; the branches that all of them finished.

    Parameters
    ----------
    details : ``detail`` of each repetition's calibration record.
    identity : the values under SAME, as they are now.

    Raises
    ------
    GateClosed : there is no calibration, or it is of something else.
    """
    if not details:
        raise GateClosed("not_calibrated", "the reference was not calibrated", "calibrate it first")
    for detail in details:
        changed = [
            f"{name} ({key} {detail[key]}, now {identity[key]})"
            for key, name in SAME.items()
            if detail[key] != identity[key]
        ]
        if changed:
            raise GateClosed(
                "other_calibration", f"calibrated with another state of {'; '.join(changed)}", "calibrate again"
            )
    return set.intersection(*(set(detail["clean"]) for detail in details))
