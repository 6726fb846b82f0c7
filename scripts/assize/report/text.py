"""Text from candidates and graders, made safe to show. Pure.

A signature can hold anything that a candidate can raise. Shown as text it cannot be markup, but it can still mislead:
by control characters, by turning the direction of what stands after it, by its length.
"""

import json
import re

# Control characters, and what a reader cannot see or what reorders a line (zero width, bidirectional, byte order mark).
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def visible(text: str, limit: int = 400) -> str:
    """One line: what cannot be seen is written as an escape, and what is over ``limit`` characters is cut."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), cut)


def script_json(value) -> str:
    """JSON that cannot end the script element it stands in, nor open a comment there; ASCII alone."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
