"""From a response to the code of a step. Pure.

Two extractions, both in the protocol: ``function`` (the law: the one function that the header asks for) and ``script``
(what the official script runs: the whole first block, its import lines removed). Source: the protocol's "From response
to code" and its conformance cases A and B.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from assize.benchmarks.scicode.runtime.standin.scicode.parse.parse import extract_function_name, get_function_from_code

EXTRACTIONS = ("function", "script")
# Characters of a text that is taken apart outside the sandbox. Python needs up to a thousand bytes for each: a few
# million of them, chosen for it, would take a node's memory. What is longer is no function that anybody wrote.
MAX_PARSED = 1 << 18
PYTHON_TAGS = ("python", "py", "python3")

# Official: a closing fence is the next one, wherever it stands; without one the block goes on to the end.
_BLOCK = re.compile(r"```[ \t]*([A-Za-z0-9_+.-]*)[ \t]*\r?\n?(.*?)(?:```|\Z)", re.DOTALL)
# Official: ``^\s*(?:import |from .*\simport\s).*``, removed. Written so that what is no import is passed over at
# once: the official form looks at every blank line from each of those before it.
_LINE = re.compile(r"^\s*+(import .*|from .*\simport\s.*)?", re.MULTILINE)
_FENCE_LINE = re.compile(r"^[ \t]*```", re.MULTILINE)
_CLASS_HEADER = re.compile(r"\s*(?:@.*\n\s*)*class\s+(\w+)")


@dataclass(frozen=True)
class Extracted:
    """The code of a step, or why there is none: ``fault`` is then the signature of the fail."""

    code: str | None
    fault: str | None = None


def code_blocks(text: str) -> list[str]:
    """The fenced blocks of a response: those tagged as Python in any spelling, else all; none if nothing is fenced."""
    blocks = []
    for tag, body in _BLOCK.findall(text):
        # "```x = 1" is a fence without a tag before code.
        known = tag.lower() in PYTHON_TAGS
        blocks.append((known, body if known or not tag else f"{tag}\n{body}" if _is_code(body) else body))
    tagged = [body for known, body in blocks if known]
    return tagged or [body for _, body in blocks]


def _is_code(body: str) -> bool:
    """Whether what looked like a fence's tag was code: what follows then begins with an operator."""
    return bool(re.match(r"[=(\[:]", body))


def has_fence(code: str) -> bool:
    """Whether a line of the code is a Markdown fence: it was not stripped, and cannot run."""
    return bool(_FENCE_LINE.search(code))


def strip_fences(text: str) -> str:
    """The first block of a fenced response, else the text as it is."""
    blocks = code_blocks(text)
    return blocks[0] if blocks else text


def target_name(header: str) -> str:
    """The name that a step's header asks for: of a class header the class, never its ``__init__``.

    Raises
    ------
    ValueError : the header defines nothing.
    """
    found = _CLASS_HEADER.match(header)
    return found[1] if found else extract_function_name(header)


def extract_function(text: str | None, header: str) -> Extracted:
    """The law's extraction: the function or class that the header names, alone, from whichever block has it."""
    if not text or not text.strip():
        return Extracted(None, "empty response")
    try:
        name = target_name(header)
    except ValueError as error:
        return Extracted(None, f"ValueError: {error}")
    blocks = code_blocks(text) or [text]
    found = [block if len(block) > MAX_PARSED else get_function_from_code(block, name) for block in blocks]
    # Text that does not parse, or is too long to, comes back whole: the answer only where no block holds the function.
    functions = [code for code, block in zip(found, blocks, strict=True) if code is not None and code != block]
    code = functions[0] if functions else next((code for code in found if code is not None), None)
    return Extracted(code, None if code is not None else f"no function {name}")


def extract_script(text: str | None) -> Extracted:
    """The official script's extraction: the first block, with every line removed that looks like an import.

    Lines are removed wherever they stand, inside a body too, and only the first line of an import over several: both
    are official, and can leave code that does not parse.
    """
    if not text or not text.strip():
        return Extracted(None, "empty response")
    return Extracted(_LINE.sub(lambda line: "" if line[1] else line[0], strip_fences(text)))


@lru_cache(maxsize=64)
def extract(extraction: str, text: str | None, header: str) -> Extracted:
    """Extract by the name of the extraction. What a step gave is asked for again by each step after it."""
    return extract_function(text, header) if extraction == "function" else extract_script(text)
