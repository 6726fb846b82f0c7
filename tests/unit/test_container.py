"""The container lane's decisions, without a container."""

import io
import tarfile

import pytest

from assize.errors import InfrastructureError
from assize.sandbox import Limits, Phase
from assize.sandbox.container import ContainerLane, check_limits, pack_case, read_case
from conftest import make_task

ASKED = {"cpus": 2, "memory_mb": 512}


def test_limits_that_are_in_force_pass():
    check_limits(None, ["9223372036854771712", "-1", "100000"])
    check_limits(ASKED, ["536870912", "200000", "100000"])


@pytest.mark.parametrize(
    "in_force",
    [["9223372036854771712", "-1", "100000"], ["max", "max", "100000"], ["536870912", "none"], ["none", "none"], []],
)
def test_limits_that_an_engine_ignored_are_an_infrastructure_failure(in_force):
    with pytest.raises(InfrastructureError, match="unlimited CPUs"):
        check_limits(ASKED, in_force)


def test_the_graders_files_go_in_closed_to_others_and_only_in_its_phase(tmp_path):
    task = make_task("exit 0\n", grader_files={"a/b.sh": "1", "c": "2"})
    with tarfile.open(fileobj=io.BytesIO(pack_case(Phase("true", tmp_path, Limits())))) as tar:
        assert not any("grader" in name for name in tar.getnames())
    phase = Phase(task.grader_cmd, tmp_path, Limits(), task.grader_files)
    with tarfile.open(fileobj=io.BytesIO(pack_case(phase))) as tar:
        modes = {member.name: member.mode for member in tar if "grader" in member.name}
    assert modes == {"case/grader": 0o700, "case/grader/a": 0o700, "case/grader/a/b.sh": 0o600, "case/grader/c": 0o600}


def test_a_reward_that_is_a_link_is_not_followed():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("case/grader/reward.json")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    assert read_case(buffer.getvalue()) == (None, "reward_not_regular", False)


def test_a_missing_engine_and_a_missing_image_name_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="podman or docker is not installed"):
        ContainerLane("x:1")
    engine = tmp_path / "podman"
    engine.write_text("#!/bin/sh\necho 'image not known' >&2; exit 125\n")
    engine.chmod(0o755)
    with pytest.raises(InfrastructureError, match=r"podman has no image x:1 \(image not known\)"):
        ContainerLane("x:1")


def test_of_what_was_not_brought_out_nothing_is_read():
    assert read_case(b"") == (None, None, False)
