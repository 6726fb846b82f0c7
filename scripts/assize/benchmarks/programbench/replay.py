"""Work that was made before, as ProgramBench has it: a run directory, or a map of files."""

from pathlib import Path

from assize.records import sha256_file
from assize.study import repository
from assize.submissions import read_submissions

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
    return read_submissions(path)


def digest_of(submissions: Path | dict, instance: str):
    """What changes when the work for an instance does; None where there is none."""
    if isinstance(submissions, dict):
        return submissions.get(instance)
    archive = submissions / instance / ARCHIVE
    return sha256_file(archive) if archive.is_file() else None
