"""Freeze a candidate's directory into a deterministic archive, and unpack one without trusting it."""

import gzip
import io
import os
import posixpath
import shutil
import stat
import tarfile
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from assize.resources import is_disk_fault

MAX_MEMBERS = 20_000
MAX_BYTES = 256 << 20


class Rejected(Exception):
    """The candidate's work breaks a rule of the archive. The message says which, and of what path."""


@dataclass(frozen=True)
class Bounds:
    """How many members an archive may have, and how many bytes they may hold together."""

    members: int = MAX_MEMBERS
    bytes: int = MAX_BYTES


def safe_relative(name: str) -> str:
    """``name`` as a normal relative path.

    Raises
    ------
    Rejected : it is empty, absolute, climbs out with ``..``, is too long, holds a NUL byte, or is no name of a file.
    """
    if not name or "\0" in name:
        raise Rejected(f"path {name!r} is empty or holds a NUL byte")
    if name.startswith("/"):
        raise Rejected(f"path {name!r} is absolute")
    if ".." in name.split("/"):
        raise Rejected(f"path {name!r} climbs out of the working directory")
    try:
        parts = os.fsencode(name).split(b"/")
    except UnicodeEncodeError:
        # A lone surrogate: JSON has it, and no encoding does.
        raise Rejected(f"path {name!r} is no name that a file can have") from None
    if sum(map(len, parts)) + len(parts) - 1 > 4000 or any(len(part) > 255 for part in parts):
        raise Rejected(f"path {name[:60]!r}... is too long")
    return posixpath.normpath(name)


def _check_link(name: str, target: str) -> None:
    """A link may point only to a place inside the directory: Rejected otherwise."""
    resolved = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    if target.startswith("/") or resolved == ".." or resolved.startswith("../"):
        raise Rejected(f"link {name!r} leads out of the working directory, to {target!r}")


def check_file_map(files: dict, bounds: Bounds = Bounds()) -> dict[str, str]:
    """A submission's map of path to content, with its paths made normal.

    Raises
    ------
    Rejected : a path is unsafe, given twice or both a file and a folder; a content is not text; a bound is crossed.
    """
    checked: dict[str, str] = {}
    for name, content in files.items():
        path = safe_relative(name)
        if path == "." or path in checked:
            raise Rejected(f"path {name!r} is not a file of its own")
        if not isinstance(content, str):
            raise Rejected(f"the content of {name!r} is not text")
        checked[path] = content
    check_folders(dict.fromkeys(checked, False))
    if len(checked) > bounds.members:
        raise Rejected(f"{len(checked)} files; at most {bounds.members} are allowed")
    # Lone surrogates are valid JSON and no valid UTF-8.
    size = sum(len(content.encode("utf-8", "surrogatepass")) for content in checked.values())
    if size > bounds.bytes:
        raise Rejected(f"{size} bytes; at most {bounds.bytes} are allowed")
    return checked


def check_folders(paths: dict[str, bool]) -> None:
    """Rejected where something lies below what is no folder. ``paths``: normal path -> whether it is one."""
    for path in paths:
        folder = posixpath.dirname(path)
        while folder:
            if not paths.get(folder, True):
                raise Rejected(f"path {folder!r} is both a file or a link and a folder")
            folder = posixpath.dirname(folder)


def write_file_map(root: Path, files: dict[str, str]) -> None:
    """Write a checked file map under ``root``, over what is there; a link in the way is replaced, never followed."""
    for name, content in files.items():
        target = root / name
        for parent in reversed(target.relative_to(root).parents):
            folder = root / parent
            if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                folder.unlink()
            folder.mkdir(exist_ok=True)
        if target.is_symlink():
            target.unlink()
        elif target.is_dir():
            shutil.rmtree(target)
        target.write_bytes(content.encode("utf-8", "surrogatepass"))


def _walk(root: Path, bounds: Bounds):
    """(relative path, stat) of everything under ``root``, sorted; unreadable folders are opened up first."""
    found, size, folders = [], 0, [""]
    while folders:
        folder = folders.pop()
        # A candidate may take its own permissions away; its directory is ours to read.
        os.chmod(root / folder, 0o700)
        for entry in os.scandir(root / folder):
            name = posixpath.join(folder, entry.name)
            facts = entry.stat(follow_symlinks=False)
            found.append((name, facts))
            if stat.S_ISDIR(facts.st_mode):
                folders.append(name)
            elif stat.S_ISREG(facts.st_mode):
                size += facts.st_size
            if len(found) > bounds.members:
                raise Rejected(f"more than {bounds.members} files and folders")
            if size > bounds.bytes:
                raise Rejected(f"more than {bounds.bytes} bytes")
    return sorted(found, key=lambda item: os.fsencode(item[0]))


def freeze(root: Path, bounds: Bounds = Bounds()) -> bytes:
    """The directory as a gzip-compressed tar: the same bytes for the same content.

    Names are sorted; times, owners and all mode bits but "executable" are dropped. A file with several names is stored
    once for each.

    Raises
    ------
    Rejected : a link leads out, a member is no file, folder or link, or a bound is crossed. Nothing was written.
    """
    members = _walk(root, bounds)
    for name, facts in members:
        if stat.S_ISLNK(facts.st_mode):
            _check_link(name, os.readlink(root / name))
        elif not (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)):
            raise Rejected(f"{name!r} is a device, a FIFO or a socket")
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, facts in members:
            member = tarfile.TarInfo(name)
            if stat.S_ISDIR(facts.st_mode):
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(member)
            elif stat.S_ISLNK(facts.st_mode):
                member.type, member.linkname, member.mode = tarfile.SYMTYPE, os.readlink(root / name), 0o777
                tar.addfile(member)
            else:
                os.chmod(root / name, facts.st_mode | stat.S_IRUSR)
                member.size, member.mode = facts.st_size, 0o755 if facts.st_mode & 0o111 else 0o644
                with open(root / name, "rb") as content:
                    tar.addfile(member, content)
    return buffer.getvalue()


def pack(members: dict[str, Path | bytes], output: BinaryIO) -> None:
    """Write files to a gzip-compressed tar: the same bytes for the same content, and no more in memory than one chunk.

    Parameters
    ----------
    members : name in the archive -> a file, or its content.
    """
    with (
        gzip.GzipFile(filename="", fileobj=output, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, content in sorted(members.items()):
            member = tarfile.TarInfo(name)
            member.mode = 0o644
            if isinstance(content, bytes):
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            else:
                member.size = content.stat().st_size
                with open(content, "rb") as file:
                    tar.addfile(member, file)


class _Bounded(io.RawIOBase):
    """A stream that stops with Rejected after so many bytes: a small archive can unpack to a huge one."""

    def __init__(self, raw, most: int):
        self.raw, self.left = raw, most

    def readable(self):
        return True

    def readinto(self, buffer):
        data = self.raw.read(len(buffer))
        self.left -= len(data)
        if self.left < 0:
            raise Rejected("the archive unpacks to more than is allowed")
        buffer[: len(data)] = data
        return len(data)


def check_members(tar: tarfile.TarFile, bounds: Bounds, below: str = "") -> list[tarfile.TarInfo]:
    """The members of an archive (of those in the folder ``below``), each checked, before anything is written.

    Raises
    ------
    Rejected : an unsafe path, a link that leads out, a hard link, a device, a name given twice, a file used as a
        folder, or a bound crossed.
    """
    members, kinds, size = [], {}, 0
    for member in tar:
        name = safe_relative(member.name)
        if below:
            if not name.startswith(f"{below}/"):
                continue
            name = name.removeprefix(f"{below}/")
        if name == ".":
            continue
        member.name = name
        if below and member.islnk():
            _become_copy(member, kinds.get(member.linkname.removeprefix(f"{below}/")))
        if member.issym():
            _check_link(member.name, member.linkname)
        elif not (member.isreg() or member.isdir()):
            kind = "a hard link" if member.islnk() else "a device, a FIFO or a special file"
            raise Rejected(f"{member.name!r} is {kind}")
        if member.name in kinds:
            raise Rejected(f"{member.name!r} is there twice")
        kinds[member.name] = member
        size += member.size
        members.append(member)
        if len(members) > bounds.members:
            raise Rejected(f"more than {bounds.members} members")
        if size > bounds.bytes:
            raise Rejected(f"more than {bounds.bytes} bytes")
    check_folders({name: member.isdir() for name, member in kinds.items()})
    return members


def _become_copy(member: tarfile.TarInfo, original: tarfile.TarInfo | None) -> None:
    """Turn a hard link to an earlier file of the same folder into that file's copy.

    Only in an archive that we made of a directory: there it says that a file has two names, and leads nowhere else.
    """
    if original is not None and original.isreg():
        member.type, member.size, member.mode = tarfile.REGTYPE, original.size, original.mode
        member.offset_data = original.offset_data


@contextmanager
def _opened(raw, bounds: Bounds, place: Path):
    """The tar inside a file, compressed or not, bounded while it is read.

    What is too large for memory is spooled to the file system of ``place``, which has to hold it all in the end: the
    temporary folder of a node is often a small one in memory.
    """
    packed = gzip.GzipFile(fileobj=raw) if raw.read(2) == b"\x1f\x8b" else raw
    raw.seek(0)
    limit = bounds.bytes + bounds.members * 4096 + (1 << 20)
    try:
        with tempfile.SpooledTemporaryFile(max_size=2 * MAX_BYTES, dir=place) as plain:
            shutil.copyfileobj(_Bounded(packed, limit), plain, 1 << 20)
            plain.seek(0)
            with tarfile.open(fileobj=plain, mode="r:") as tar:
                yield tar
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        if is_disk_fault(error):
            raise
        raise Rejected(f"not a readable archive: {error}") from None


def unpack(data: bytes | BinaryIO, root: Path, bounds: Bounds = Bounds(), below: str = "") -> None:
    """Unpack an archive made by anyone into the empty directory ``root``: all of it, or nothing and Rejected.

    A disk that is full or fails is an OSError, whatever the archive.

    With ``below``, only what lies in that folder of an archive that we made of a directory.
    """
    with _opened(io.BytesIO(data) if isinstance(data, bytes) else data, bounds, root) as tar:
        members = check_members(tar, bounds, below)
        # Links last: no later member can then be written through one.
        for member in sorted(members, key=lambda item: item.issym()):
            target = root / member.name
            (target if member.isdir() else target.parent).mkdir(parents=True, exist_ok=True)
            if member.isreg():
                with tar.extractfile(member) as content, open(target, "xb") as file:
                    shutil.copyfileobj(content, file)
                target.chmod(0o755 if member.mode & 0o111 else 0o644)
            elif member.issym():
                target.symlink_to(member.linkname)
