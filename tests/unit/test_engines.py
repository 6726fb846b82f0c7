"""What podman and docker have in common, on programs that stand in for them."""

import pytest

from assize import engines
from assize.errors import InfrastructureError


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Nothing is on the PATH but the engines that are installed here, each a shell script."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return write


def test_the_first_engine_that_is_installed_is_taken_unless_one_is_asked_for(install):
    assert engines.find_engine() is None
    install("docker", "")
    assert (engines.find_engine(), engines.find_engine("podman")) == ("docker", None)
    install("podman", "")
    assert (engines.find_engine(), engines.find_engine("docker")) == ("podman", "docker")
    assert (engines.asked_for(None), engines.asked_for("docker")) == ("podman or docker", "docker")


def test_an_engine_that_fails_or_hangs_is_an_infrastructure_failure(install):
    install("podman", 'echo "no storage" >&2; exit 125')
    with pytest.raises(InfrastructureError, match="podman image inspect: no storage"):
        engines.call("podman", "image", "inspect", "x")
    done = engines.call("podman", "image", check=False)
    assert (done.returncode, engines.complaint(done)) == (125, "no storage")
    install("podman", "while :; do :; done")
    with pytest.raises(InfrastructureError, match="podman info: no answer in"):
        engines.call("podman", "info", timeout=0.2)


def test_an_engine_reads_what_it_is_given_and_nothing_else(install):
    install("podman", 'while read -r line; do echo "$line"; done')
    assert engines.call("podman", "load", input=b"1\n2\n").stdout == b"1\n2\n"
    assert engines.call("podman", "load", text=True).stdout == ""


def test_an_image_is_named_by_its_digest_or_else_by_its_id():
    assert engines.image_digest({"Id": "sha256:1", "Digest": "sha256:2"}, ["sha256:3"]) == "sha256:2"
    assert engines.image_digest({"Id": "1"}, ["sha256:3"]) == "sha256:3"
    assert engines.image_digest({"Id": "1"}) == engines.image_digest({"Id": "sha256:1", "Digest": ""}) == "sha256:1"


def test_scicodes_image_is_built_with_the_engine_that_is_there(install):
    from assize.benchmarks.scicode import images

    with pytest.raises(InfrastructureError, match="podman or docker is not installed"):
        images.ensure()
    install("docker", "exit 1")
    with pytest.raises(InfrastructureError, match="docker has no image"):
        images.ensure()
