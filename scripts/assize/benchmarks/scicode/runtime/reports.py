"""What a step's processes report, and the verdict that follows. Pure."""

import json
import signal


def lines_of(data: bytes) -> list[dict]:
    """The JSON objects of a report, one a line; what is none becomes ``{"garbled": true}``."""
    found = []
    for line in data.splitlines():
        try:
            value = json.loads(line)
            found.append(value if isinstance(value, dict) else {"garbled": True})
        except ValueError:
            found.append({"garbled": True})
    return found


def judge(events: list[dict], status: list[dict], limit: str | None) -> dict:
    """From a step's reports to its verdict. Pure.

    A pass needs the end-of-cases mark, which carries a token that only the step's trusted processes were given, and
    nothing that contradicts it. ``harness`` is set where the machinery failed: then there is no verdict.
    """
    token = next((item["token"] for item in status if "token" in item), None)
    flags = sorted({str(item["flag"])[:40] for item in events if "flag" in item})
    errors = [item for item in events if "error" in item]
    ends = [item for item in events if "end" in item]
    ended = next((item for item in status if "exit" in item), {})
    harness = next((item["harness"] for item in status if "harness" in item), None)
    if any("garbled" in item for item in events) or any(item["end"] != token for item in ends):
        flags.append("forged_report")
    passed = (
        len(ends) == 1 and ends[0]["end"] == token and not errors and limit is None and "forged_report" not in flags
    )
    signature = phase = origin = None
    if not passed:
        phase, origin = "program", "code"
        if limit:
            signature = f"over the {limit} limit"
        elif errors:
            signature = str(errors[0]["error"])
            phase, origin = str(errors[0].get("phase")), str(errors[0].get("origin"))
        elif ended.get("exit", 0) < 0:
            signature = f"killed by {signal.Signals(-ended['exit']).name}"
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
