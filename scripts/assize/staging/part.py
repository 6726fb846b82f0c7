"""A file on its way in: written beside its place, hashed as it arrives, moved into place only when it is right."""

import hashlib
import os
import shutil
from pathlib import Path

from assize import records
from assize.errors import InfrastructureError
from assize.staging.progress import meter


class SourceFailed(Exception):
    """A source did not give the declared bytes; the message says why. The next source may still give them."""


def require_space(folder: Path, size: int) -> None:
    """Raise InfrastructureError unless ``folder`` has ``size`` bytes free for this user."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise InfrastructureError(
            "disk_full",
            f"{folder}: {size:,} bytes are needed, {free:,} bytes are free",
            "free some space there, or stage to another folder",
        )


def origin_path(part_path: Path) -> Path:
    """The file that says to which URL, and to which state of it, the bytes at ``part_path`` belong."""
    return Path(f"{part_path}.json")


def remove_part(part_path: Path) -> None:
    """Remove what is kept at ``part_path``, if anything is."""
    # First the origin: it must never describe bytes that are not its own.
    origin_path(part_path).unlink(missing_ok=True)
    part_path.unlink(missing_ok=True)


class Part:
    """The bytes that have arrived so far, in the hidden file ``path``.

    Parameters
    ----------
    path : the hidden file; its ``origin_path`` lies beside it while it can be continued.
    sha256 : 64 hex digits that the whole must have.
    size : bytes that the whole must have; None where only its sha256 is declared.

    As a context manager: on exit, only bytes that a later process can continue are left on disk.
    """

    def __init__(self, path: Path, sha256: str, size: int | None):
        self.path, self.sha256, self.size = path, sha256, size
        self.received = 0
        self.continued = False
        self._origin_path = origin_path(path)
        self._origin: dict = {}
        self._hash = hashlib.sha256()
        self._file = self._meter = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._file is not None and not self._origin:
            self.discard()
        self.close()

    def start(self, url: str = "", validator: str = "") -> None:
        """Begin at byte 0, in place of whatever was kept.

        ``validator`` is the ETag or the date by which the server of ``url`` can tell that the rest still belongs to
        these bytes; without one an interrupted part is not kept.
        """
        self.discard()
        self._open("wb")
        if validator:
            self._origin = {"url": url, "validator": validator}
            # 0600: the URL may carry a token.
            records.write_atomic(self._origin_path, records.canonical(self._origin), mode=0o600)

    def take_up(self, url: str) -> str:
        """Continue the bytes that were kept from ``url``, by this process or by an earlier one.

        Returns their validator, or "" when there is nothing to continue.
        """
        if self._file is None:
            self._load(url)
        return self._origin.get("validator", "") if self.received else ""

    def _load(self, url: str) -> None:
        try:
            origin = records.strict_json(self._origin_path.read_text())
            kept = self.path.stat().st_size
        except (FileNotFoundError, ValueError):
            return
        if origin.get("url") != url or (self.size is not None and kept > self.size):
            return
        with open(self.path, "rb") as file:
            self._hash = hashlib.file_digest(file, "sha256")
        self.received, self.continued, self._origin = kept, True, origin
        self._open("ab")

    def _open(self, mode: str) -> None:
        # Unbuffered: what has arrived survives a process that is killed, and closing cannot fail on a full disk.
        self._file = self.path.open(mode, buffering=0)
        label = self.path.name.removeprefix(".").removesuffix(".part")
        self._meter = meter(label, self.size, self.received)

    def write(self, chunk: bytes) -> None:
        """Append ``chunk``. Raises SourceFailed, and keeps nothing, once there are more bytes than declared."""
        if self.size is not None and self.received + len(chunk) > self.size:
            self.discard()
            raise SourceFailed(f"got more than {self.size} bytes; expected {self._expected()}")
        rest = memoryview(chunk)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._hash.update(chunk)
        self.received += len(chunk)
        self._meter.update(self.received)

    def is_right(self) -> bool:
        """Whether the bytes so far are the declared whole."""
        return self._hash.hexdigest() == self.sha256 and self.size in (None, self.received)

    def verify(self) -> None:
        """Raise SourceFailed, and keep nothing, unless the bytes are the declared ones."""
        if not self.is_right():
            got = f"sha256 {self._hash.hexdigest()}, {self.received} bytes"
            self.discard()
            raise SourceFailed(f"got {got}; expected {self._expected()}")

    def _expected(self) -> str:
        return f"sha256 {self.sha256}" + ("" if self.size is None else f", {self.size} bytes")

    def settle(self, place: Path) -> None:
        """Move the bytes to ``place``, read-only (0444), after they have reached the disk."""
        os.fsync(self._file.fileno())
        os.fchmod(self._file.fileno(), 0o444)
        self.close()
        os.replace(self.path, place)
        self._origin_path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Forget the bytes, those on disk too."""
        self.close()
        remove_part(self.path)
        self.received, self.continued, self._origin = 0, False, {}
        self._hash = hashlib.sha256()

    def close(self) -> None:
        """Close the file and end the progress display; what is on disk stays."""
        if self._file is not None:
            self._file.close()
            self._meter.close()
        self._file = self._meter = None
