"""Reading one member out of an sdist or a wheel whose sha256 has been verified."""

import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assize.staging.part import SourceFailed

CHUNK = 1 << 20  # bytes


def member_chunks(archive: Path, filename: str, member: str) -> Iterator[bytes]:
    """The bytes of ``member``, a regular file in ``archive``, which the index calls ``filename``.

    Raises SourceFailed when there is no such member, it is not a regular file, or the archive cannot be read.
    """
    opened = _zip_member if filename.endswith((".whl", ".zip")) else _tar_member
    try:
        with opened(archive, member) as file:
            if file is None:
                raise SourceFailed(f"{filename}: {member} is not a regular file")
            while chunk := file.read(CHUNK):
                yield chunk
    except KeyError:
        raise SourceFailed(f"{filename} has no member {member}") from None
    # RuntimeError is what zipfile raises for an encrypted member and for a compression that it does not know.
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise SourceFailed(f"{filename} cannot be read: {error}") from error


@contextmanager
def _tar_member(archive: Path, member: str):
    with tarfile.open(archive) as tar:
        found = tar.getmember(member)
        # extractfile would follow a link, even to another member than the declared one.
        yield tar.extractfile(found) if found.isreg() else None


@contextmanager
def _zip_member(archive: Path, member: str):
    with zipfile.ZipFile(archive) as zipped:
        found = zipped.getinfo(member)
        kind = stat.S_IFMT(found.external_attr >> 16)
        # Archives made elsewhere than on Unix give no kind.
        if found.is_dir() or kind not in (0, stat.S_IFREG):
            yield None
        else:
            with zipped.open(found) as file:
                yield file
