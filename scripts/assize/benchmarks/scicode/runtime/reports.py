"""What a step's processes report, and the verdict that follows. Pure."""

import json
import signal

MAX_SIGNATURE = 300
MAX_PHASE = 40
MAX_FLAGS = 20
# Where a script may say that its error came from.
PLACES = ("dependencies", "context", "code", "tests")


def lines_of(data: bytes) -> list[dict]:
    """The flat JSON objects of a report, one a line; what is none becomes ``{"garbled": true}``."""
    return [_flat_object(line) or {"garbled": True} for line in data.splitlines()]


def _flat_object(line: bytes) -> dict | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    flat = isinstance(value, dict) and not any(isinstance(member, (dict, list)) for member in value.values())
    return value if flat else None


def judge(events: list[dict], status: list[dict], limit: str | None) -> dict:
    """From a step's reports to its verdict. Pure.

    ``events`` are the script's, in which the candidate can write what it likes; ``status`` is the harness's own.

    A pass needs the end-of-cases mark, which carries a token that only the step's trusted processes were given, and
    nothing that contradicts it. ``harness`` is set where the machinery failed: then there is no verdict.
    """
    token = next((item["token"] for item in status if "token" in item), None)
    flags = sorted({str(item["flag"])[:40] for item in events if "flag" in item})[:MAX_FLAGS]
    errors = [item for item in events if "error" in item]
    unreadable = next((item for item in status if "error" in item), None)
    ends = [item for item in events if "end" in item]
    ended = next((item for item in status if "exit" in item), {})
    harness = next((item["harness"] for item in status if "harness" in item), None)
    forged = any("garbled" in item for item in events) or any(item["end"] != token for item in ends)
    if forged or any(item.get("origin") not in PLACES for item in errors):
        flags.append("forged_report")
    passed = (
        len(ends) == 1 and ends[0]["end"] == token and not errors and limit is None and "forged_report" not in flags
    )
    signature = phase = origin = None
    if not passed:
        phase, origin = "program", "code"
        if limit:
            signature = f"over the {limit} limit"
        elif unreadable:
            signature, phase, origin = unreadable["error"], unreadable["phase"], unreadable["origin"]
        elif errors:
            signature, phase = str(errors[0]["error"])[:MAX_SIGNATURE], str(errors[0].get("phase"))[:MAX_PHASE]
            origin = errors[0].get("origin") if errors[0].get("origin") in PLACES else "code"
        elif ended.get("exit", 0) < 0:
            signature = f"killed by {_signal_name(-ended['exit'])}"
        else:
            signature = "early exit"
            if ended.get("exit") == 0:
                flags.append("early_exit")
    return {
        "passed": passed,
        "signature": signature,
        "phase": phase,
        "origin": origin,
        "flags": sorted(set(flags)),
        "survivors": ended.get("survivors", 0),
        "harness": harness,
    }


def _signal_name(number: int) -> str:
    """Real-time signals have no names of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
