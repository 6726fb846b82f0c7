"""Work that was made before: submissions of the replay solver."""

from pathlib import Path

from assize.errors import UsageError
from assize.records import sha256_file, strict_json
from assize.study import repository

ARCHIVE = "submission.tar.gz"


def open_submissions(path) -> Path | dict[str, dict[str, str]]:
    """A run directory as the official package has it, ``<instance>/submission.tar.gz``, or a JSON map of files.

    Raises
    ------
    UsageError : it is neither. The map is instance -> {path: content}.
    """
    place = repository(path)
    if place.is_dir():
        return place
    try:
        content = strict_json(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError("missing_submission", f"submissions: {path}: no such file or directory") from None
    except ValueError as error:
        raise UsageError("bad_submission", f"submissions: {path}: {error}") from None
    if not isinstance(content, dict) or not all(isinstance(files, dict) for files in content.values()):
        raise UsageError("bad_submission", f"submissions: {path}: not a map of instance to {{path: content}}")
    return content


def digest_of(submissions: Path | dict, instance: str):
    """What changes when the work for an instance does; None where there is none."""
    if isinstance(submissions, dict):
        return submissions.get(instance)
    archive = submissions / instance / ARCHIVE
    return sha256_file(archive) if archive.is_file() else None
