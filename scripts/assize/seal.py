"""The seal of a study: the sha256 of every file that its numbers stand on, in one list, and the digest of that list.

``census/SHA256SUMS`` is written last, in the form that ``sha256sum --check`` reads. Its own sha256 is the seal: 64 hex
digits to publish with the numbers. A file changed, added or removed afterwards breaks it.
"""

import os
import re
from pathlib import Path

from assize.errors import UsageError
from assize.records import sha256_file, write_atomic
from assize.study import Study, beside, receipt_path

SUMS = "census/SHA256SUMS"
# Of a study's folder, what the seal does not cover: the list itself, logs, who runs the study at the moment, what Slurm
# says of its jobs, and what is made from what is sealed.
EXEMPT = (
    *(SUMS, "logs/", "controller/", "holder.json", "census/accounting.json"),
    *("report/", "report.html", "audit.html", "comparison.json"),
)
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


def exempt(name: str) -> bool:
    """Whether a file of a study's folder is not sealed. Names that begin with a dot are writes that were cut off."""
    base = name.rpartition("/")[2]
    return any(name == item or (item.endswith("/") and name.startswith(item)) for item in EXEMPT) or base[0] == "."


def sealed_files(study: Study) -> list[str]:
    """Every file to seal, relative to the study's folder, sorted: its own, and what it staged with the receipts."""
    own = []
    for folder, _, names in os.walk(study.root):
        prefix = Path(folder).relative_to(study.root).as_posix()
        own += [name if prefix == "." else f"{prefix}/{name}" for name in names]
    staged = staged_files(study)
    receipts = [str(receipt) for receipt in map(receipt_path, staged) if (study.root / receipt).exists()]
    return sorted({name for name in own if not exempt(name)} | {*staged, *receipts})


def staged_files(study: Study) -> list[str]:
    """The staged files that the study reads, relative to its folder."""
    names = dict.fromkeys(name for section in study.benchmarks.values() for name in section["datasets"])
    return [os.path.relpath(beside(study.root, study.staged_path(name)), study.root) for name in names]


def write_seal(study: Study) -> None:
    """Write the list of a study, which seals it."""
    lines = [f"{sha256_file(study.root / name)}  {name}\n" for name in sealed_files(study)]
    write_atomic(study.root / SUMS, "".join(lines).encode())


def seal_of(study: Study) -> str | None:
    """The seal of a study; None where it has none yet."""
    path = study.root / SUMS
    return sha256_file(path) if path.exists() else None


def read_sums(path: Path) -> dict[str, str]:
    """File -> sha256, of a list.

    Raises
    ------
    UsageError : there is no list, or a line of it is none.
    """
    try:
        # Not splitlines(), which takes other characters for the end of a line too.
        *lines, rest = path.read_bytes().decode().split("\n")
    except FileNotFoundError:
        raise UsageError("not_sealed", f"{path}: the study is not sealed", "run the workflow to its end") from None
    except ValueError as error:
        raise UsageError("bad_seal", f"{path}: {error}") from None
    lines += [rest] if rest else []
    found = {}
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None or match[2] in found:
            raise UsageError("bad_seal", f"{path}: line {number} is no line of a list of checksums: {line[:80]!r}")
        found[match[2]] = match[1]
    return found
