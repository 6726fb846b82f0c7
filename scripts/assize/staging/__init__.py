"""Staging: a declared dataset, from the first of its sources with the right bytes, whole and read-only in its place.

``stage`` brings a dataset here; ``push.push`` sends a file to another host.
"""

from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from assize import records
from assize.cli import log
from assize.errors import InfrastructureError, UsageError
from assize.staging import sources
from assize.staging.part import Part, SourceFailed, remove_part, require_space
from assize.study import receipt_path

SECONDS_BETWEEN_WAITING_LINES = 60


def stage(declaration: dict, name: str, output) -> dict:
    """Put the dataset ``name`` at ``output``, and its receipt at ``output`` + ``.json``.

    The sources are tried in their order. A file that is in place already is kept when its sha256 is the declared one;
    a wrong one stays until the right bytes have arrived. Any number of processes may stage one file at a time: one
    downloads, the others wait for it.

    Returns
    -------
    dict : the receipt (``config/schemas/receipt.schema.json``).

    Raises
    ------
    UsageError : the declaration breaks its schema, or ``output`` is a folder.
    InfrastructureError : no source has the declared bytes, or they cannot be written.
    """
    records.check(declaration, "dataset", name)
    output = Path(output)
    if output.is_dir():
        raise UsageError("bad_output", f"{output} is a folder", "name the file that the dataset shall become")
    part_path = output.with_name(f".{output.name}.part")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with locked(output):
            receipt = _receipt_in_place(declaration, name, output) or _receive(declaration, name, output, part_path)
            for leftover in (part_path, sources.archive_path(part_path)):
                remove_part(leftover)
    except OSError as error:
        raise InfrastructureError(
            "cannot_write", f"{output}: {error}", "look at the folder and its file system"
        ) from error
    return receipt


@contextmanager
def locked(output: Path):
    """Hold ``output`` + ``.lock``, alone among all processes that stage ``output``."""
    from filelock import FileLock, Timeout

    lock = FileLock(f"{output}.lock")
    wait = 0
    while not lock.is_locked:
        try:
            lock.acquire(timeout=wait, poll_interval=0.2)
        except Timeout:
            log(f"{output.name}: waiting for {lock.lock_file}: another process stages this file")
            wait = SECONDS_BETWEEN_WAITING_LINES
    try:
        yield
    finally:
        lock.release()


def _receipt_in_place(declaration: dict, name: str, output: Path) -> dict | None:
    """The receipt of the right file in place (written now, if it is missing), or None."""
    if not output.is_file():
        return None
    right = output.stat().st_size == declaration["size"] and records.sha256_file(output) == declaration["sha256"]
    if not right:
        log(f"{output.name}: the file in place is not the declared one; it stays until the right one is here")
        return None
    log(f"{output.name}: in place already")
    try:
        receipt = records.read_record(receipt_path(output), "receipt")
    except UsageError:
        receipt = {}
    if all(receipt.get(key) == value for key, value in _identity(declaration, name).items()):
        return receipt
    return _write_receipt(declaration, name, output, {"in_place": True})


def _receive(declaration: dict, name: str, output: Path, part_path: Path) -> dict:
    """Try the sources in their order; the receipt of the first one with the right bytes."""
    kept = part_path.stat().st_size if part_path.is_file() else 0
    require_space(output.parent, max(0, declaration["size"] - kept))
    failures = []
    for source in declaration["sources"]:
        try:
            with Part(part_path, declaration["sha256"], declaration["size"]) as part:
                sources.receive(source, part)
                part.verify()
                part.settle(output)
        except SourceFailed as error:
            failures.append(f"{sources.describe(source)}: {error}")
            log(f"{output.name}: {failures[-1]}")
        else:
            return _write_receipt(declaration, name, output, source)
    tried = "\n".join(f"  {failure}" for failure in failures)
    wanted = f"sha256 {declaration['sha256']}, {declaration['size']} bytes"
    raise InfrastructureError(
        "no_source",
        f"{name}: none of {len(failures)} source(s) gave the declared file ({wanted}):\n{tried}",
        "add a source that has it to the declaration, or put the file in its place by hand",
    )


def _identity(declaration: dict, name: str) -> dict:
    return {"name": name, "sha256": declaration["sha256"], "size": declaration["size"]}


def _write_receipt(declaration: dict, name: str, output: Path, source: dict) -> dict:
    receipt = {
        "schema": "assize.receipt/1",
        **_identity(declaration, name),
        "source": source,
        "staged_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    # This also fsyncs the folder, and with it the rename of the file that the receipt is about.
    records.write_record(receipt_path(output), receipt)
    return receipt
