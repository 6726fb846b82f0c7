"""Calibration of one task: its reference must pass, doing nothing must fail, and an oracle probe tells what it saw."""

from assize.benchmarks.command.court import judge_files
from assize.benchmarks.command.probe import probe_files
from assize.benchmarks.command.suite import Task
from assize.sandbox import Limits


def calibrate(lane, task: Task, limits: Limits, repetition: int) -> dict:
    """The body of a calibration record. The canaries do not depend on chance: they run in the first repetition only."""
    reference, snapshot = judge_files(lane, task, task.reference_files, limits)
    canaries = {}
    if repetition == 1:
        noop, _ = judge_files(lane, task, {}, limits)
        canaries["noop"] = {"verdict": noop["verdict"], "scoring_status": noop["scoring_status"]}
        canaries["oracle"] = probe_oracle(lane, task, limits)
    return {
        **findings(reference, canaries),
        "reference": {key: reference[key] for key in ("verdict", "scoring_status", "reason", "score")},
        "canaries": canaries,
        "sandbox": lane.provenance(),
        "detail": {"build": (snapshot or {}).get("detail", {}).get("build"), **reference.get("detail", {})},
    }


def findings(reference: dict, canaries: dict) -> dict:
    """Whether the task passed calibration, why not, and flags. Pure."""
    reasons, flags = [], []
    if reference["verdict"] != "pass":
        reasons.append(f"the reference is {reference['verdict']}: {reference['scoring_status']}: {reference['reason']}")
    if canaries.get("noop", {}).get("verdict") == "pass":
        reasons.append("an empty submission passes")
    exposed = canaries.get("oracle", {}).get("exposed", False)
    if exposed:
        flags.append("oracle_exposed")
    elif exposed is None:
        flags.append("oracle_not_probed")
    return {"passed": not reasons, "reasons": reasons, "flags": flags}


def probe_oracle(lane, task: Task, limits: Limits) -> dict:
    """Grade a candidate that looks for the oracle. ``exposed`` is None where no probe exists for its language."""
    files = probe_files(task.reference_files)
    if files is None:
        return {"exposed": None}
    body, _ = judge_files(lane, task, files, limits)
    return {"exposed": body.get("detail", {}).get("marker", False)}
