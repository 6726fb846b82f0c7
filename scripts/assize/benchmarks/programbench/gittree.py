"""The tree of one commit as a deterministic archive, out of a repository that nobody vouches for.

Of the repository only objects and one reference are taken over: no configuration, hook, alternate, attribute or index
of its own is ever read. Every object is checked against its name, so that the archive is the named commit's or none.
"""

import gzip
import hashlib
import io
import re
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from assize.archive import Bounds, Rejected, check_members, safe_relative

# A source tree with its vendored dependencies fits; what is read of the repository itself may be twice as large.
BOUNDS = Bounds(members=100_000, bytes=256 << 20)
OBJECTS = re.compile(r"objects/(?:[0-9a-f]{2}/[0-9a-f]{38}|pack/pack-[0-9a-f]{40}\.(?:pack|idx))")
COMMIT = re.compile(r"[0-9a-f]{40}")
REF = "refs/heads/main"
MAX_REF_BYTES = 1 << 20
HEADER_BYTES = 200
MAX_DEPTH = 101

# Names of objects -> (kind, content) of each, in that order.
Read = Callable[[Iterable[str]], Iterator[tuple[str, bytes]]]


@dataclass(frozen=True)
class Repository:
    """The resolved commit of ``main``, and a tar of a bare repository with the objects and nothing else."""

    commit: str
    tar: bytes


def take_over(data: bytes, bounds: Bounds = BOUNDS) -> Repository:
    """The harmless part of a bare repository, which came as a tar of its folder. Pure.

    Raises
    ------
    Rejected : ``main`` is no commit, or there are more objects than is allowed.
    """
    buffer, texts, count = io.BytesIO(), {}, 0
    try:
        with (
            tarfile.open(fileobj=io.BytesIO(data), mode="r:") as theirs,
            tarfile.open(fileobj=buffer, mode="w") as ours,
        ):
            for name, content in (("HEAD", f"ref: {REF}\n"), ("config", "[core]\n\tbare = true\n")):
                _add(ours, name, content.encode())
            for folder in ("objects", "objects/info", "objects/pack", "refs", "refs/heads"):
                _add(ours, folder, None)
            for member in theirs:
                name = member.name.partition("/")[2]
                if not member.isreg():
                    continue
                if name in (REF, "packed-refs") and member.size <= MAX_REF_BYTES:
                    texts[name] = theirs.extractfile(member).read().decode("utf-8", "replace")
                if OBJECTS.fullmatch(name):
                    count += 1
                    # Every file of a commit may be an object, and every folder, and older commits' too.
                    if count > 4 * bounds.members:
                        raise Rejected(f"the shared repository has more than {4 * bounds.members} objects")
                    _add(ours, name, theirs.extractfile(member).read())
    except tarfile.TarError as error:
        raise Rejected(f"the shared repository cannot be read: {error}") from None
    return Repository(resolve(texts), buffer.getvalue())


def resolve(texts: dict[str, str]) -> str:
    """The commit that ``main`` names, as a file of its own or else in packed-refs. Pure; Rejected if there is none."""
    loose = texts.get(REF)
    if loose is None:
        lines = [line.split(" ", 1) for line in texts.get("packed-refs", "").splitlines()]
        loose = next((line[0] for line in lines if line[1:] == [REF]), "")
    if not COMMIT.fullmatch(loose.strip()):
        raise Rejected("the shared repository has no commit on main")
    return loose.strip()


def _add(tar: tarfile.TarFile, name: str, data: bytes | None, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    if data is None:
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(member)
    else:
        member.size, member.mode = len(data), mode
        tar.addfile(member, io.BytesIO(data))


def read_object(stream, name: str, most: int) -> tuple[str, bytes]:
    """(kind, content) of the object ``name``, as ``git cat-file --batch`` answers on ``stream``.

    Raises
    ------
    Rejected : it is missing, larger than ``most`` bytes, or not what its name says.
    EOFError : the answer ended early.
    """
    header = stream.readline(HEADER_BYTES)
    if not header.endswith(b"\n"):
        raise EOFError("git cat-file ended")
    words = header.decode("ascii", "replace").split()
    if len(words) != 3 or words[0] != name or not words[2].isdigit():
        raise Rejected(f"object {name} of the shared repository is missing or damaged")
    kind, size = words[1], int(words[2])
    if size > most:
        raise Rejected(f"object {name} is larger than is allowed")
    content = stream.read(size)
    if len(content) != size or stream.read(1) != b"\n":
        raise EOFError("git cat-file ended")
    # The object's name in git's sense, no more: what makes an archive the commit's.
    if hashlib.sha1(b"%s %d\0" % (kind.encode(), size) + content, usedforsecurity=False).hexdigest() != name:
        raise Rejected(f"object {name} of the shared repository is not what its name says")
    return kind, content


def archive(commit: str, read: Read, bounds: Bounds = BOUNDS) -> bytes:
    """The commit's tree as a gzip-compressed tar: the same bytes for the same commit. Pure, but for ``read``.

    Contents are the blobs', as they are: no attribute of the tree (export-ignore, export-subst, a filter) changes them.
    A submodule is an empty folder, as git's own archives have it.

    Raises
    ------
    Rejected : an object is not of the kind it must be, a path is unsafe, a link leads out, or a bound is crossed.
    """
    found = _walk(_tree_of(commit, read), read, bounds)
    members = sorted(found.items(), key=lambda item: item[0].encode("utf-8", "surrogateescape"))
    contents = _of_kind("blob", [blob for _, (_, blob) in members if blob], read)
    left = bounds.bytes
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, (mode, blob) in members:
            if not blob:
                _add(tar, name, None)
                continue
            content = next(contents)
            left -= len(content)
            if left < 0:
                raise Rejected(f"more than {bounds.bytes} bytes")
            if stat.S_ISLNK(mode):
                member = tarfile.TarInfo(name)
                member.type, member.mode = tarfile.SYMTYPE, 0o777
                member.linkname = content.decode("utf-8", "surrogateescape")
                tar.addfile(member)
            else:
                _add(tar, name, content, 0o755 if mode & 0o111 else 0o644)
    data = buffer.getvalue()
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        check_members(tar, bounds)
    return data


def _of_kind(kind: str, names: list[str], read: Read) -> Iterator[bytes]:
    for name, (found, content) in zip(names, read(names), strict=True):
        if found != kind:
            raise Rejected(f"object {name} is a {found}, where a {kind} must be")
        yield content


def _tree_of(commit: str, read: Read) -> str:
    (content,) = _of_kind("commit", [commit], read)
    first = content.partition(b"\n")[0].decode("ascii", "replace").split()
    if len(first) != 2 or first[0] != "tree" or not COMMIT.fullmatch(first[1]):
        raise Rejected(f"commit {commit} names no tree")
    return first[1]


def _walk(tree: str, read: Read, bounds: Bounds) -> dict[str, tuple[int, str]]:
    """Everything below a tree: path -> (mode, blob), with no blob for a folder. It is read level by level."""
    found: dict[str, tuple[int, str]] = {}
    folders = [("", tree)]
    for _ in range(MAX_DEPTH):
        below = []
        contents = _of_kind("tree", [object_ for _, object_ in folders], read)
        for (folder, _), content in zip(folders, contents, strict=True):
            below += _enter(folder, content, found, bounds)
        if not below:
            return found
        folders = below
    raise Rejected(f"{folders[0][0][:60]!r}... is nested too deeply")


def _enter(folder: str, tree: bytes, found: dict, bounds: Bounds) -> list[tuple[str, str]]:
    """Enter what is in one folder into ``found``; the (folder, tree) of each that is in it."""
    below = []
    for mode, name, object_ in tree_entries(tree):
        if name.lower() == ".git" or "/" in name or name in (".", ".."):
            raise Rejected(f"{name!r} in {folder or 'the top folder'!r} is no name that git would give")
        path = safe_relative(f"{folder}{name}")
        if path in found:
            raise Rejected(f"{path!r} is there twice")
        if len(found) >= bounds.members:
            raise Rejected(f"more than {bounds.members} files and folders")
        if mode in (0o40000, 0o160000):
            found[path] = (mode, "")
            if mode == 0o40000:
                below.append((f"{path}/", object_))
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            found[path] = (mode, object_)
        else:
            raise Rejected(f"{path!r} has mode {mode:o}, which is no file, folder or link")
    return below


def tree_entries(content: bytes):
    """(mode, name, object) of each entry of a tree: ``mode SP name NUL object``, the object in 20 bytes. Pure."""
    while content:
        head, separator, rest = content.partition(b"\0")
        mode, space, name = head.partition(b" ")
        if not (separator and space and name) or len(rest) < 20 or not re.fullmatch(rb"[0-7]{5,6}", mode):
            raise Rejected("a tree of the shared repository is damaged")
        yield int(mode, 8), name.decode("utf-8", "surrogateescape"), rest[:20].hex()
        content = rest[20:]
