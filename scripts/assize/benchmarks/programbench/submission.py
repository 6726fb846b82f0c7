"""A submission's archive, looked at on the host before any container sees it."""

import gzip
import tarfile
import zlib
from pathlib import Path

from assize.archive import Rejected, check_folders, safe_relative

# A source tree with its vendored dependencies fits many times over.
MAX_MEMBERS = 200_000
MAX_BYTES = 4 << 30


def check_archive(path: Path) -> list[str]:
    """The names in a submission's archive, which the evaluator's own tar will unpack as root.

    Raises
    ------
    Rejected : it is no gzip-compressed tar that can be read to its end, climbs out of its folder, holds a device, a
        FIFO or a hard link to nothing before it, has a file or a link as a folder, or crosses a bound. That is the
        candidate's failure: tar would fail over it, and that would be taken for ours.
    OSError : this host cannot read it. That is not.
    """
    names, folders, size = [], {}, 0
    try:
        with gzip.open(path) as packed:
            with tarfile.open(fileobj=packed, mode="r|") as tar:
                for member in tar:
                    _check_member(member, folders)
                    names.append(member.name)
                    size += member.size
                    if len(names) > MAX_MEMBERS:
                        raise Rejected(f"more than {MAX_MEMBERS} members")
                    if size > MAX_BYTES:
                        raise Rejected(f"more than {MAX_BYTES} bytes")
            # To its end, where the checksum is.
            while more := packed.read(1 << 20):
                size += len(more)
                if size > MAX_BYTES:
                    raise Rejected(f"more than {MAX_BYTES} bytes")
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError) as error:
        raise Rejected(f"the archive is corrupt: {error}") from None
    check_folders(folders)
    return names


def _check_member(member: tarfile.TarInfo, folders: dict[str, bool]) -> None:
    """Check one member against those before it, and enter it there: normal path -> whether it is a folder."""
    name = safe_relative(member.name)
    if member.islnk():
        if folders.get(safe_relative(member.linkname)) is not False:
            raise Rejected(f"{member.name!r} is a hard link to {member.linkname!r}, which is no file before it")
    elif not (member.isreg() or member.isdir() or member.issym()):
        raise Rejected(f"{member.name!r} is a device, a FIFO or a special file")
    if folders.setdefault(name, member.isdir()) != member.isdir() or (name == "." and not member.isdir()):
        raise Rejected(f"{member.name!r} is both a file or a link and a folder")
