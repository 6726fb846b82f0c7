"""Admission: the gate that calibration must open. Pure: the records come in, the decision goes out."""

from assize.errors import GateClosed, UsageError


def decide(calibrations: dict[str, list[dict]]) -> dict:
    """Whether an instance is admitted.

    Parameters
    ----------
    calibrations : instance -> its calibration records, one a repetition, of every instance that the gate depends on.

    Returns
    -------
    ``status`` (open or barred), ``reasons`` and ``flags`` of the calibrations.
    """
    reasons, flags = [], set()
    for instance, records in calibrations.items():
        found = sorted({reason for record in records for reason in record["reasons"]})
        if is_flaky(records):
            passed = sum(record["passed"] for record in judged(records))
            found.append(f"flaky: the reference passed {passed} of {len(judged(records))} repetitions")
        if not records:
            found.append("it was not calibrated")
        reasons += [f"{instance}: {reason}" for reason in found] if len(calibrations) > 1 else found
        flags |= {flag for record in records for flag in record["flags"]}
    return {"status": "barred" if reasons else "open", "reasons": reasons, "flags": sorted(flags)}


def judged(records: list[dict]) -> list[dict]:
    """The calibrations that say something of the reference: where the machinery failed, a reason says ``infra``."""
    return [record for record in records if not any(reason.startswith("infra: ") for reason in record["reasons"])]


def is_flaky(records: list[dict]) -> bool:
    """Whether a reference passed some of the calibrations that judged it, and not all."""
    return len({record["passed"] for record in judged(records)}) > 1


def check(gate: dict, terms_digest: str) -> None:
    """Pass through an open gate.

    Raises
    ------
    UsageError : the gate is of other terms than the study's.
    GateClosed : calibration did not pass.
    """
    name = f"{gate['benchmark']}/{gate['instance']}"
    if gate["terms_digest"] != terms_digest:
        message = f"admission of {name}: of terms {gate['terms_digest'][:12]}, the study has {terms_digest[:12]}"
        raise UsageError("other_terms", message, "calibrate again: rerun the workflow")
    if gate["status"] != "open":
        message = f"calibration barred {name}: {'; '.join(gate['reasons'])}"
        raise GateClosed("barred", message, "mend the harness, delete its calibrations and rerun the workflow")
