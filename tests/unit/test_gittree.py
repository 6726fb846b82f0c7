"""A commit's tree out of a repository that nobody vouches for: read by git, checked object by object."""

import io
import os
import subprocess
import tarfile

import pytest

from assize.archive import Bounds, Rejected, unpack
from assize.benchmarks.programbench import gittree

NAMED = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


class Shared:
    """A bare repository on this machine, with the means to spoil it."""

    def __init__(self, root):
        self.root = root
        subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", root], check=True)

    def git(self, *arguments, data=b"") -> str:
        done = subprocess.run(
            ["git", "--git-dir", self.root, *arguments],
            input=data,
            capture_output=True,
            check=True,
            env=os.environ | NAMED,
        )
        return done.stdout.decode().strip()

    def blob(self, data: bytes) -> str:
        return self.git("hash-object", "-w", "--stdin", data=data)

    def tree(self, *entries: tuple[str, str, str]) -> str:
        """A tree object made by hand, so that it may hold what git would refuse to add."""
        data = b"".join(f"{mode} {name}".encode() + b"\0" + bytes.fromhex(sha) for mode, name, sha in entries)
        return self.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", data=data)

    def commit(self, tree: str, date="2001-01-01T00:00:00Z") -> str:
        environment = os.environ | NAMED | {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        commit = subprocess.run(
            ["git", "--git-dir", self.root, "commit-tree", "-m", "x", tree],
            capture_output=True,
            check=True,
            text=True,
            env=environment,
        ).stdout.strip()
        self.git("update-ref", "refs/heads/main", commit)
        return commit

    def taken(self, bounds=gittree.BOUNDS) -> gittree.Repository:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            tar.add(self.root, "shared.git")
        return gittree.take_over(buffer.getvalue(), bounds)


@pytest.fixture
def shared(tmp_path):
    return Shared(tmp_path / "shared.git")


@pytest.fixture
def asked() -> list[int]:
    """How many objects were asked for at once, each time."""
    return []


@pytest.fixture
def frozen(shared, tmp_path, asked):
    """The archive of what is in ``shared``, read by git from what was taken over."""

    def freeze(bounds=gittree.BOUNDS) -> bytes:
        repository = shared.taken(bounds)
        place = tmp_path / "taken"
        place.mkdir(exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(repository.tar)) as tar:
            tar.extractall(place, filter="data")
        process = subprocess.Popen(
            ["git", "--git-dir", place, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with process:

            def read(names):
                asked.append(len(names))
                process.stdin.write("".join(f"{name}\n" for name in names).encode())
                process.stdin.flush()
                for name in names:
                    yield gittree.read_object(process.stdout, name, bounds.bytes)

            try:
                return gittree.archive(repository.commit, read, bounds)
            finally:
                process.kill()

    return freeze


def contents(data: bytes) -> dict:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {m.name: tar.extractfile(m).read() if m.isreg() else m.linkname for m in tar}


def test_files_modes_links_and_folders_come_out_as_they_were_committed(shared, frozen, tmp_path):
    text, script, link = shared.blob(b"\xff\0\r\n"), shared.blob(b"#!/bin/sh\n"), shared.blob(b"../a")
    sub = shared.tree(("120000", "link", link))
    shared.commit(shared.tree(("100644", "a", text), ("100755", "run", script), ("40000", "sub", sub)))
    data = frozen()
    assert contents(data) == {"a": b"\xff\0\r\n", "run": b"#!/bin/sh\n", "sub": "", "sub/link": "../a"}
    unpack(data, tmp_path / "out")
    assert os.access(tmp_path / "out/run", os.X_OK)
    assert not os.access(tmp_path / "out/a", os.X_OK)


def test_the_same_commit_gives_the_same_bytes_packed_or_loose_and_another_time_changes_nothing(shared, frozen):
    tree = shared.tree(("100644", "a", shared.blob(b"1")), ("100644", "b", shared.blob(b"2")))
    shared.commit(tree)
    first = frozen()
    shared.git("repack", "-a", "-d", "--quiet")
    shared.git("pack-refs", "--all")
    shared.git("prune-packed")
    assert not (shared.root / "refs/heads/main").exists()
    assert frozen() == first
    shared.commit(tree, date="2020-02-02T00:00:00Z")
    assert frozen() == first


def test_attributes_change_nothing(shared, frozen):
    attributes = b"* export-ignore\n* export-subst\n* text eol=crlf\n* filter=evil\n"
    word = b"$Format:%H$ $Id$\n"
    shared.commit(
        shared.tree(("100644", ".gitattributes", shared.blob(attributes)), ("100644", "a", shared.blob(word)))
    )
    (shared.root / "info").mkdir(exist_ok=True)
    (shared.root / "info/attributes").write_bytes(attributes)
    assert contents(frozen()) == {".gitattributes": attributes, "a": word}


def test_nothing_but_objects_and_main_is_taken_over(shared, tmp_path):
    shared.commit(shared.tree(("100644", "a", shared.blob(b"1"))))
    (shared.root / "hooks").mkdir(exist_ok=True)
    (shared.root / "hooks/post-checkout").write_text("#!/bin/sh\ntouch /tmp/pwned\n")
    (shared.root / "objects/info/alternates").write_text("/etc\n")
    (shared.root / "config").write_text("[core]\n\tfsmonitor = touch /tmp/pwned\n\tbare = true\n")
    (shared.root / "objects/pack/evil").symlink_to("/etc/passwd")
    with tarfile.open(fileobj=io.BytesIO(shared.taken().tar)) as tar:
        names = {member.name for member in tar if member.isreg()}
        assert "fsmonitor" not in tar.extractfile("config").read().decode()
    assert all(name in ("HEAD", "config") or gittree.OBJECTS.fullmatch(name) for name in names)
    assert len(names) == 5


@pytest.mark.parametrize("ref", ["ref: refs/heads/other\n", "", "../../../etc/passwd\n", "a" * 39, "HEAD"])
def test_main_must_be_a_commit(shared, ref):
    shared.commit(shared.tree())
    (shared.root / "refs/heads/main").write_text(ref)
    with pytest.raises(Rejected, match="no commit on main"):
        shared.taken()


def test_main_as_a_link_is_not_followed(shared):
    shared.commit(shared.tree())
    (shared.root / "refs/heads/main").rename(shared.root / "elsewhere")
    (shared.root / "refs/heads/main").symlink_to(shared.root / "elsewhere")
    with pytest.raises(Rejected, match="no commit on main"):
        shared.taken()


def test_an_object_under_another_objects_name_is_found(shared, frozen):
    good, bad = shared.blob(b"good"), shared.blob(b"evil")
    shared.commit(shared.tree(("100644", "a", good)))
    target = shared.root / "objects" / good[:2] / good[2:]
    target.chmod(0o644)
    target.write_bytes((shared.root / "objects" / bad[:2] / bad[2:]).read_bytes())
    with pytest.raises((Rejected, EOFError)):
        frozen()


def test_the_answer_itself_is_checked_against_the_name():
    name = "0" * 40
    with pytest.raises(Rejected, match="is not what its name says"):
        gittree.read_object(io.BytesIO(f"{name} blob 4\nevil\n".encode()), name, 10)
    with pytest.raises(Rejected, match="larger than is allowed"):
        gittree.read_object(io.BytesIO(f"{name} blob 11\n".encode()), name, 10)
    with pytest.raises(Rejected, match="missing or damaged"):
        gittree.read_object(io.BytesIO(f"{name} missing\n".encode()), name, 10)
    with pytest.raises(EOFError):
        gittree.read_object(io.BytesIO(f"{name} blob 4\nev".encode()), name, 10)


def test_a_missing_object_is_rejected(shared, frozen):
    blob = shared.blob(b"1")
    shared.commit(shared.tree(("100644", "a", blob)))
    (shared.root / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(Rejected, match="missing or damaged"):
        frozen()


@pytest.mark.parametrize(
    ("mode", "name", "reason"),
    [
        ("100644", "..", "no name that git would give"),
        ("100644", ".git", "no name that git would give"),
        ("40000", ".GIT", "no name that git would give"),
        ("100644", "a/b", "no name that git would give"),
        ("10644", "a", "no file, folder or link"),
        ("20644", "device", "no file, folder or link"),
        ("100644", "x" * 300, "too long"),
    ],
)
def test_an_entry_that_git_would_not_make_is_rejected(shared, frozen, mode, name, reason):
    object_ = shared.tree() if mode == "40000" else shared.blob(b"1")
    shared.commit(shared.tree((mode, name, object_)))
    with pytest.raises(Rejected, match=reason):
        frozen()


@pytest.mark.parametrize("target", [b"/etc/passwd", b"../../x"])
def test_a_link_that_leads_out_is_rejected(shared, frozen, target):
    shared.commit(shared.tree(("120000", "link", shared.blob(target))))
    with pytest.raises(Rejected, match="leads out"):
        frozen()


def test_a_name_given_twice_and_a_blob_as_a_tree_are_rejected(shared, frozen):
    blob = shared.blob(b"1")
    shared.commit(shared.tree(("100644", "a", blob), ("100644", "a", blob)))
    with pytest.raises(Rejected, match="there twice"):
        frozen()
    shared.commit(shared.tree(("40000", "a", blob)))
    with pytest.raises(Rejected, match="is a blob, where a tree must be"):
        frozen()
    shared.git("update-ref", "--no-deref", "refs/heads/main", shared.commit(shared.tree()))
    shared.root.joinpath("refs/heads/main").write_text(blob + "\n")
    with pytest.raises(Rejected, match="is a blob, where a commit must be"):
        frozen()


def test_a_tree_that_unfolds_to_billions_of_paths_is_rejected_at_the_bound(shared, frozen):
    tree = shared.tree(("100644", "a", shared.blob(b"1")))
    for _ in range(10):
        tree = shared.tree(*(("40000", name, tree) for name in "0123456789"))
    shared.commit(tree)
    with pytest.raises(Rejected, match="more than 1000 files and folders"):
        frozen(Bounds(members=1000, bytes=1 << 20))


def test_bytes_are_counted_as_often_as_they_are_stored(shared, frozen):
    blob = shared.blob(b"x" * 1000)
    shared.commit(shared.tree(*(("100644", f"{number:03}", blob) for number in range(100))))
    with pytest.raises(Rejected, match="more than 50000 bytes"):
        frozen(Bounds(members=1000, bytes=50_000))


def test_a_depth_of_folders_is_asked_for_at_once_and_then_all_contents(shared, frozen, asked):
    blob = shared.blob(b"1\n")
    leaf = shared.tree(("100644", "a", blob), ("100644", "b", blob))
    shared.commit(shared.tree(*[("40000", name, leaf) for name in "xyz"], ("100644", "zz", blob)))
    assert len(contents(frozen())) == 3 + 6 + 1
    assert asked == [1, 1, 3, 7]


def test_a_submodule_is_an_empty_folder_and_an_empty_tree_an_empty_archive(shared, frozen):
    shared.commit(shared.tree(("160000", "module", "1" * 40)))
    assert contents(frozen()) == {"module": ""}
    shared.commit(shared.tree())
    assert contents(frozen()) == {}


def test_a_truncated_tar_is_rejected(shared):
    with pytest.raises(Rejected, match="cannot be read"):
        gittree.take_over(b"not a tar")
