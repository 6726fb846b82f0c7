"""A model's responses on disk: a directory with one file a step.

``<step>.py`` is either a file as the official writer stores it (dependencies, prior code, the step's own code) or a raw
response; ``<step>.txt`` and ``<step>.md`` are raw responses. The official layout is
``<model>/<with|without>_background/<step>.py``: a condition names that directory, so that ``a/x`` and ``b/x`` are two.
"""

import re
from pathlib import Path

from assize.cli import log
from assize.errors import UsageError
from assize.study import repository

MUTATED = "mutated-reference"
RESPONSES = "responses"
MAX_RESPONSE_BYTES = 1 << 20
_NAME = re.compile(r"(\d+\.\d+)\.(?:py|txt|md)")


def step_of(name: str) -> str | None:
    """The step that a file name is of: ``77.1.py`` is of 77.1. None for a file that is none."""
    found = _NAME.fullmatch(name)
    return found[1] if found else None


def find_responses(folder) -> dict[str, Path]:
    """Step number -> file, of a directory of responses. Other files are ignored, with a warning.

    Raises
    ------
    UsageError : there is no such directory, or it has two files for one step.
    """
    root = repository(str(folder))
    if not root.is_dir():
        raise UsageError("missing_submission", f"submissions: {folder}: no such directory")
    found = {}
    for path in sorted(root.iterdir()):
        number = step_of(path.name)
        if number is None:
            log(f"warning: {path} is ignored: it is named like no step's response")
        elif number in found:
            raise UsageError(
                "bad_submission", f"submissions: {folder}: {found[number].name} and {path.name} are one step"
            )
        else:
            found[number] = path
    return found


def read_responses(root: Path) -> dict[str, str]:
    """Step number -> text, of a directory that a candidate may have filled: regular files only, bounded, any bytes."""
    responses = {}
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        number = step_of(path.name)
        if number is not None and path.is_file() and not path.is_symlink():
            with open(path, "rb") as file:
                responses[number] = file.read(MAX_RESPONSE_BYTES).decode("utf-8", "replace")
    return responses
