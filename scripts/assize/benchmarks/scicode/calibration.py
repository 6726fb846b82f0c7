"""Calibration of one problem: its reference must pass, and each canary must end as it is known to."""

# With official targets these fail on their own gold: 70.8 case 4, 78.3 cases 1-3 (it chooses dt by the clock).
EXPECTED_OFFICIAL_FAILURES = ("70.8", "78.3")
MUST_PASS = ("class_step", "special_step", "imports")
MUST_FAIL = ("noop", "early_exit", "system_exit")


def findings(checks: list[dict] | None, canaries: dict[str, dict], missing: list, official: bool) -> dict:
    """Whether the problem passed calibration, why not, and flags. Pure.

    Parameters
    ----------
    checks : of the reference; None where there is no reference (the test split).
    canaries : name -> result, of those that were run.
    missing : cases without a target.
    official : whether the targets are the official ones.
    """
    reasons, flags = [], []
    allowed = EXPECTED_OFFICIAL_FAILURES if official else ()
    for item in checks or ():
        if item["verdict"] != "pass" and item["id"] not in allowed:
            reasons.append(f"the reference fails step {item['id']}: {item['signature']}")
        elif item["verdict"] != "pass":
            flags.append("expected_reference_failure")
    for name in MUST_PASS:
        if name in canaries and not canaries[name]["passed"]:
            reasons.append(f"canary {name} fails: {canaries[name]['signature']}")
    for name in MUST_FAIL:
        if name in canaries and canaries[name]["passed"]:
            reasons.append(f"canary {name} passes")
    if missing:
        reasons.append(f"no targets for {', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''}")
    if "oracle" in canaries and not canaries["oracle"]["passed"]:
        flags.append("oracle_exposed")
    return {"passed": not reasons, "reasons": reasons, "flags": sorted(set(flags))}


def told(result: dict) -> dict:
    """A canary's result for a record."""
    return {key: result[key] for key in ("passed", "signature", "flags", "survivors", "seconds")}
