"""What a candidate hands in is checked whole before anything is written."""

import errno
import gzip
import io
import os
import tarfile
import tempfile

import pytest

from assize import archive
from assize.archive import Bounds, Rejected, check_file_map, freeze, unpack, write_file_map


def tar_of(*members) -> bytes:
    """A tar of (name, type, link or content) members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, value in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(value)
                tar.addfile(member, io.BytesIO(value))
            else:
                member.linkname = value
                tar.addfile(member)
    return buffer.getvalue()


FILE, LINK, HARD, DEVICE, FIFO, FOLDER = (
    tarfile.REGTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.CHRTYPE,
    tarfile.FIFOTYPE,
    tarfile.DIRTYPE,
)


@pytest.mark.parametrize(
    "members",
    [
        [("../x", FILE, b"")],
        [("/abs/x", FILE, b"")],
        [("a/../../x", FILE, b"")],
        [("out", LINK, "/etc/passwd")],
        [("a/out", LINK, "../../x")],
        [("out", LINK, "..")],
        [("a", FILE, b""), ("b", HARD, "a")],
        [("b", HARD, "/etc/passwd")],
        [("null", DEVICE, "")],
        [("pipe", FIFO, "")],
        [("a", FILE, b"1"), ("a", FILE, b"2")],
        [("a", LINK, "b"), ("a/x", FILE, b"")],
        [("a", FILE, b""), ("a/x", FILE, b"")],
        [(f"f{number}", FILE, b"") for number in range(60)],
        [("big", FILE, b"0" * 2000)],
        [("a" * 300, FILE, b"")],
    ],
)
def test_an_archive_that_breaks_a_rule_is_rejected_before_any_write(tmp_path, members):
    good = ("good", FILE, b"")
    with pytest.raises(Rejected):
        unpack(tar_of(good, *members), tmp_path, Bounds(members=50, bytes=1000))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"not a tar", tar_of(("a", FILE, b"x" * 600))[:700], b"\x1f\x8b broken"])
def test_what_is_no_archive_is_rejected(tmp_path, data):
    with pytest.raises(Rejected):
        unpack(data, tmp_path)


def test_a_small_archive_that_unpacks_to_a_huge_one_is_stopped(tmp_path):
    bomb = gzip.compress(tar_of(("zeros", FILE, b"\0" * (8 << 20))))
    assert len(bomb) < 20_000
    with pytest.raises(Rejected, match="more than"):
        unpack(bomb, tmp_path, Bounds(members=1, bytes=1 << 20))


def test_freeze_is_deterministic_and_unpack_gives_the_same_tree(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for root in (first, second):
        root.mkdir()
        write_file_map(root, {"b/run.sh": "echo\n", "a.txt": "é"})
        (root / "b" / "run.sh").chmod(0o755)
        (root / "link").symlink_to("b/run.sh")
        (root / "empty").mkdir()
    os.utime(first / "a.txt", (1, 1))
    (first / "a.txt").chmod(0o600)
    data = freeze(first)
    assert data == freeze(second)
    third = tmp_path / "third"
    third.mkdir()
    unpack(data, third)
    assert (third / "a.txt").read_text() == "é"
    assert os.access(third / "link", os.X_OK)
    assert not os.access(third / "a.txt", os.X_OK)
    assert (third / "empty").is_dir()
    assert freeze(third) == data


def test_freeze_reads_what_a_candidate_closed(tmp_path):
    root = tmp_path / "work"
    root.mkdir()
    (root / "folder").mkdir()
    (root / "folder" / "file").write_text("x")
    (root / "folder" / "file").chmod(0)
    (root / "folder").chmod(0)
    assert b"x" in gzip.decompress(freeze(root))


def test_a_sparse_file_counts_with_its_whole_size(tmp_path):
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(10 << 30)
    with pytest.raises(Rejected, match="bytes"):
        freeze(tmp_path)


@pytest.mark.parametrize(
    "files",
    [
        {"../x": ""},
        {"/x": ""},
        {"": ""},
        {".": ""},
        {"a\0": ""},
        {"a": "", "./a": ""},
        {"a": "", "a/b": ""},
        {"a": 1},
        {"a": None},
        {"x" * 300: ""},
    ],
)
def test_a_file_map_that_breaks_a_rule_is_rejected(files):
    with pytest.raises(Rejected):
        check_file_map(files)


def test_a_file_map_is_written_over_links_and_never_through_them(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "work"
    root.mkdir()
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "target")
    write_file_map(root, {"folder/x": "1", "file": "2"})
    assert list(outside.iterdir()) == []
    assert (root / "folder" / "x").read_text() == "1"
    assert (root / "file").read_text() == "2"


def test_text_that_is_no_unicode_is_written_all_the_same(tmp_path):
    write_file_map(tmp_path, check_file_map({"a": "\ud800"}))
    assert (tmp_path / "a").read_bytes() == b"\xed\xa0\x80"


def test_what_is_too_large_for_memory_is_spooled_beside_what_it_becomes(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_BYTES", 1)
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    unpack(tar_of(("a", FILE, b"x" * 5000)), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_no_fault_of_the_archive(tmp_path, monkeypatch, number):
    def full(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(archive.shutil, "copyfileobj", full)
    with pytest.raises(OSError, match=os.strerror(number)):
        unpack(tar_of(("a", FILE, b"x")), tmp_path)
