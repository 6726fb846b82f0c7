"""Admission: the gate that calibration must open. Pure: the records come in, the decision goes out."""

from assize.errors import GateClosed


def decide(calibrations: dict[str, list[dict]], policy: str) -> dict:
    """Which instances are admitted.

    Parameters
    ----------
    calibrations : instance -> its calibration records, one a repetition.
    policy : ``each`` bars the instances that failed; ``all`` closes the benchmark when one failed.

    Returns
    -------
    ``status`` (open or closed), ``admitted``, ``barred`` (instance -> reasons), ``flags`` (flag -> instances).
    """
    barred, flags = {}, {}
    for instance, records in calibrations.items():
        reasons = sorted({reason for record in records for reason in record["reasons"]})
        verdicts = {record["passed"] for record in records}
        if len(verdicts) > 1:
            passed = sum(record["passed"] for record in records)
            reasons.append(f"flaky: the reference passed {passed} of {len(records)} repetitions")
        if not records:
            reasons.append("it was not calibrated")
        if reasons:
            barred[instance] = reasons
        for flag in sorted({flag for record in records for flag in record["flags"]}):
            flags.setdefault(flag, []).append(instance)
    admitted = [instance for instance in calibrations if instance not in barred]
    closed = not admitted or (policy == "all" and barred)
    return {"status": "closed" if closed else "open", "admitted": admitted, "barred": barred, "flags": flags}


def check(admission: dict, benchmark: str, terms_digest: str) -> None:
    """Raise GateClosed unless this admission is open and of these terms."""
    if admission["terms_digest"] != terms_digest:
        raise GateClosed(
            "other_terms",
            f"admission of {benchmark}: of terms {admission['terms_digest'][:12]}, the study has {terms_digest[:12]}",
            "calibrate again: rerun the workflow",
        )
    if admission["status"] != "open":
        reasons = "\n".join(f"  {name}: {'; '.join(why)}" for name, why in admission["barred"].items())
        raise GateClosed(
            "not_admitted", f"calibration of {benchmark} did not pass:\n{reasons}", "mend the harness first"
        )
