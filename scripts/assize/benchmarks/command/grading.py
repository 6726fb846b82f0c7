"""From a grader's exit to a verdict. Pure.

The grader's exit status is the verdict; its reward file may add a scalar and checks, and is believed in nothing else.
What the candidate prints is never parsed. Source: the protocol of command-graded suites, "Verdicts".
"""

from assize.adapter import void
from assize.records import strict_json
from assize.sandbox import Outcome

COULD_NOT_START = (126, 127)
MAX_CHECKS = 10_000


def parse_reward(data: bytes | None, fault: str | None) -> tuple[dict, list[str]]:
    """What a reward file says (any of score, checks, explanation), and flags for what had to be ignored."""
    if data is None:
        return {}, [fault] if fault else []
    try:
        raw = strict_json(data.decode("utf-8-sig"))
    except ValueError:
        return {}, ["reward_unreadable"]
    if not isinstance(raw, dict):
        return {}, ["reward_malformed"]
    reward, flags = {}, []
    if "score" in raw:
        score = raw["score"]
        if isinstance(score, bool) or not isinstance(score, (int, float)):
            flags.append("reward_malformed")
        elif not 0 <= score <= 1:
            flags.append("reward_out_of_range")
        else:
            reward["score"] = float(score)
    checks = raw.get("checks", {})
    if isinstance(checks, dict) and len(checks) <= MAX_CHECKS and all(isinstance(v, bool) for v in checks.values()):
        reward["checks"] = checks
    else:
        flags.append("checks_malformed")
    if isinstance(raw.get("explanation"), str):
        reward["explanation"] = raw["explanation"][:2000]
    return reward, flags


def judge(outcome: Outcome) -> dict:
    """The body of a grade, from how the grader ended.

    Returns
    -------
    A void body where the grader could not start (exit 126 or 127): that is the harness's fault. Otherwise pass (exit 0)
    or fail, with ``score`` in [0, 1], the reward's checks, and flags for what in the reward was wrong.
    """
    reward, flags = parse_reward(outcome.reward, outcome.reward_fault)
    if outcome.exit_status in COULD_NOT_START:
        reason = f"infra: the grader command could not start (exit {outcome.exit_status})"
        return void("infra", reason) | {"flags": flags}
    passed = outcome.exit_status == 0
    # A partial score beside a fail is no contradiction; a full one is.
    if (passed and reward.get("score", 1.0) != 1.0) or (not passed and reward.get("score") == 1.0):
        flags.append("score_disagrees")
    score = reward.get("score", 1.0) if passed else 0.0
    if passed:
        status, reason = "passed", "the grader exited 0"
    elif outcome.limit == "wall":
        status, reason = "grader_timed_out", f"the grader was ended after {outcome.seconds:.1f} s"
    elif outcome.limit:
        status, reason = "grader_over_limit", f"the grader was ended for its {outcome.limit} limit"
    else:
        status, reason = "failed", f"the grader exited {outcome.exit_status}"
    checks = [
        {"id": name, "verdict": "pass" if value else "fail", "signature": None}
        for name, value in sorted(reward.get("checks", {}).items())
    ]
    return {
        "verdict": "pass" if passed else "fail",
        "valid": True,
        "score": score,
        "analysis_score": score,
        "scoring_status": status,
        "reason": reward.get("explanation", reason),
        "flags": flags,
        "checks": checks,
    }
