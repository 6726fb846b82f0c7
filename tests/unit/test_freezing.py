"""Whose failure it is when a workspace's repository cannot be frozen: the candidate's, or the engine's. No engine."""

import io
import tarfile

import pytest

from assize.archive import Bounds, Rejected
from assize.benchmarks.programbench import freezing, gittree
from assize.benchmarks.programbench.engine import Engine
from assize.errors import InfrastructureError

SHARED = f'Error: "{freezing.SHARED}" could not be found on container 1:'


@pytest.fixture
def engine(tmp_path):
    """An engine whose ``cp`` of the repository and whose ``git cat-file`` do as a test says; all else works."""

    def make(cp="exit 0", cat_file="exit 0", passwd="exit 0") -> Engine:
        script = tmp_path / "engine"
        script.write_text(
            f"#!/bin/sh\n"
            f'case "$*" in\n'
            f"cp*shared.git*) {cp} ;;\n"
            f"cp*) {passwd} ;;\n"
            f"*cat-file*) {cat_file} ;;\n"
            f"*tar*) cat >/dev/null ;;\n"
            f"esac\n"
        )
        script.chmod(0o755)
        return Engine(str(script))

    return make


def copy_out(engine) -> bytes:
    return freezing._copy_out(engine, "1", gittree.BOUNDS)


@pytest.mark.parametrize(
    "said",
    [
        f"{SHARED} no such file or directory",
        f"{SHARED} copier: stat: open {freezing.SHARED}: too many levels of symbolic links",
        f"Error response from daemon: Could not find the file {freezing.SHARED} in container 1",
    ],
)
def test_a_repository_that_the_engine_says_is_not_there_is_the_candidates_failure(engine, said):
    with pytest.raises(Rejected, match="is gone"):
        copy_out(engine(cp=f"echo '{said}' >&2; exit 125"))


@pytest.mark.parametrize(
    "said",
    [
        "Error: timed out waiting for storage lock",
        f"{SHARED} timed out waiting for storage lock",
        "Error: OCI runtime error: input/output error",
        "",
    ],
)
def test_whatever_else_an_engine_says_is_its_own_failure(engine, said):
    with pytest.raises(InfrastructureError, match="engine cp: exit status 125"):
        copy_out(engine(cp=f"echo '{said}' >&2; exit 125"))


def test_an_engine_that_has_lost_the_containers_files_has_failed(engine):
    lost = f"echo '{SHARED} no such file or directory' >&2; exit 125"
    with pytest.raises(InfrastructureError, match="no such file"):
        copy_out(engine(cp=lost, passwd="exit 125"))


def test_an_engine_that_takes_too_long_has_failed_whatever_it_said(engine, monkeypatch):
    monkeypatch.setattr(freezing, "FREEZE_S", 0.5)
    with pytest.raises(InfrastructureError, match="not done in"):
        copy_out(engine(cp=f"echo '{SHARED} no such file or directory' >&2; exec sleep 600"))


def test_a_tar_that_was_cut_off_is_the_engines_failure_though_it_claims_success(engine, tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("shared.git/HEAD")
        member.size = 5000
        tar.addfile(member, io.BytesIO(b"x" * 5000))
    (tmp_path / "whole.tar").write_bytes(buffer.getvalue())
    assert copy_out(engine(cp=f"cat {tmp_path}/whole.tar")) == buffer.getvalue()
    for cut in ("head -c 3000", "head -c 0"):
        with pytest.raises(InfrastructureError, match="exit status 0"):
            copy_out(engine(cp=f"{cut} {tmp_path}/whole.tar"))


def freeze(engine) -> bytes:
    return freezing._freeze(engine, "1", gittree.Repository("0" * 40, b""), Bounds())


def test_a_git_that_dies_of_what_it_reads_is_the_candidates_failure(engine):
    with pytest.raises(Rejected, match="loose object x is corrupt"):
        freeze(engine(cat_file="echo 'fatal: loose object x is corrupt' >&2; exit 128"))


@pytest.mark.parametrize(
    "end",
    [
        "exit 0",
        "echo 'Error: the stream was closed' >&2; exit 125",
        "exit 255",
        "kill -KILL $$",
        "echo 'fatal: Out of memory, malloc failed (tried to allocate 9 bytes)' >&2; exit 128",
        f"printf '{'0' * 40} commit'; exit 137",
    ],
)
def test_a_git_that_was_ended_otherwise_is_not(engine, end):
    with pytest.raises(InfrastructureError, match="git cat-file: exit status"):
        freeze(engine(cat_file=end))


def test_a_git_that_takes_too_long_is_not_either(engine, monkeypatch):
    monkeypatch.setattr(freezing, "FREEZE_S", 0.5)
    with pytest.raises(InfrastructureError, match="not done in"):
        freeze(engine(cat_file="exec sleep 600"))
