"""The evaluator's wheelhouse: built of the pinned releases, the same bytes each time, and checked byte by byte."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from assize.benchmarks.programbench import wheelhouse
from assize.errors import InfrastructureError, UsageError
from assize.records import digest, sha256_file

SHA = "0" * 64


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A wheelhouse of the lock, from the package index (or pip's cache)."""
    return wheelhouse.build(tmp_path_factory.mktemp("study"))


@pytest.fixture
def house(built, tmp_path) -> Path:
    """A copy of it, to spoil."""
    return shutil.copytree(built, tmp_path / "wheelhouse")


def test_it_holds_every_release_of_the_lock_as_a_wheel_for_any_machine(built):
    found = wheelhouse.verify(built)
    releases = {release.name: release for release in wheelhouse.read_lock(wheelhouse.LOCK.read_text())}
    wheels = {wheel["name"]: wheel for wheel in found.lock["wheels"]}
    assert wheels.keys() == releases.keys()
    assert wheels["pytest-rerunfailures"]["version"] == "16.4"
    for name, wheel in wheels.items():
        assert wheel["filename"].endswith("-none-any.whl")
        assert wheel["sha256"] == sha256_file(built / wheel["filename"])
        assert wheel["built"] == (name == "pytest-dependency")
        assert wheel["built"] or wheel["sha256"] in releases[name].hashes
    assert found.fingerprint == digest(found.lock)
    assert not [entry for entry in built.parent.iterdir() if entry.name.startswith(".")], "scratch is left behind"


def test_a_second_build_changes_nothing_and_a_damaged_wheelhouse_is_replaced(built):
    def stamps():
        return {path.name: path.stat().st_mtime_ns for path in built.iterdir()}

    before, fingerprint = stamps(), wheelhouse.verify(built).fingerprint
    assert wheelhouse.build(built.parents[1]) == built
    assert stamps() == before
    next(built.glob("execnet-*.whl")).unlink()
    wheelhouse.build(built.parents[1])
    assert wheelhouse.verify(built).fingerprint == fingerprint


def test_the_wheel_that_is_built_here_has_the_same_bytes_wherever_it_is_built(built, tmp_path, monkeypatch):
    release = next(one for one in wheelhouse.read_lock(wheelhouse.LOCK.read_text()) if one.name == wheelhouse.BUILT)
    builder = next(built.glob("setuptools-*.whl"))
    again = tmp_path / "again"
    again.mkdir()
    # Another temporary directory, other file modes, another zone.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    mask = os.umask(0o077)
    try:
        wheelhouse.build_wheel(release, again, builder)
    finally:
        os.umask(mask)
    (wheel,) = again.iterdir()
    assert wheel.read_bytes() == (built / wheel.name).read_bytes()
    with zipfile.ZipFile(wheel) as content:
        assert {member.date_time for member in content.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {member.compress_type for member in content.infolist()} == {zipfile.ZIP_STORED}
        assert {member.external_attr >> 16 & 0o777 for member in content.infolist()} <= {0o644, 0o664}


def test_pip_installs_all_of_it_offline_and_by_hash(built, tmp_path):
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    pip = [python, "-m", "pip", "--isolated", "install", "--quiet", "--no-index", "--find-links", built]
    subprocess.run([*pip, "--require-hashes", "--requirement", built / "requirements.txt"], check=True)
    # What a branch's own script installs later cannot replace it.
    subprocess.run([*pip, "--constraint", built / "constraints.txt", "pytest", "pytest-xdist"], check=True)
    options = ["-n", "1", "--reruns=1", "--timeout=9", "--max-worker-restart=4", "--version"]
    done = subprocess.run([python, "-m", "pytest", *options], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    subprocess.run([python, "-c", "import libtmux, pytest_dependency"], check=True)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_one_flipped_byte_of_a_wheel_is_found(house):
    wheel = next(house.glob("pytest_timeout-*.whl"))
    flip(wheel)
    with pytest.raises(InfrastructureError, match=f"{wheel.name} has sha256 {sha256_file(wheel)}, recorded is "):
        wheelhouse.verify(house)


def test_a_missing_wheel_an_extra_file_and_a_link_are_found_together(house):
    execnet, pluggy = next(house.glob("execnet-*.whl")), next(house.glob("pluggy-*.whl"))
    execnet.unlink()
    (house / "sitecustomize.py").write_text("")
    pluggy.rename(house.parent / "elsewhere")
    pluggy.symlink_to(house.parent / "elsewhere")
    with pytest.raises(InfrastructureError) as caught:
        wheelhouse.verify(house)
    assert f"{execnet.name} is missing" in caught.value.message
    assert "sitecustomize.py does not belong there" in caught.value.message
    assert f"{pluggy.name} is not a regular file" in caught.value.message
    assert "evaluator_wheelhouse.py --root" in caught.value.hint


def test_what_pip_is_told_to_install_is_checked_too(house):
    requirements = house / "requirements.txt"
    requirements.write_text(requirements.read_text().replace("16.4", "16.6.1"))
    with pytest.raises(InfrastructureError, match=r"requirements\.txt is not what the record gives"):
        wheelhouse.verify(house)


def test_a_record_that_was_made_to_fit_a_changed_wheel_is_found(house):
    wheel = next(house.glob("pytest_timeout-*.whl"))
    before = sha256_file(wheel)
    flip(wheel)
    for name in ("wheelhouse.json", "requirements.txt"):
        (house / name).write_text((house / name).read_text().replace(before, sha256_file(wheel)))
    with pytest.raises(InfrastructureError, match=r"none of the hashes that evaluator-wheelhouse\.lock has"):
        wheelhouse.verify(house)


def test_a_wheelhouse_of_another_lock_is_refused(house, tmp_path, monkeypatch):
    other = tmp_path / "evaluator-wheelhouse.lock"
    other.write_text(wheelhouse.LOCK.read_text().replace("pytest-timeout==2", "pytest-timeout==1"))
    monkeypatch.setattr(wheelhouse, "LOCK", other)
    with pytest.raises(InfrastructureError, match="of another lock") as caught:
        wheelhouse.verify(house)
    assert "pytest-timeout==1.4.0 is not in the record" in caught.value.message
    assert "pytest-timeout==2.4.0 is not in evaluator-wheelhouse.lock" in caught.value.message


@pytest.mark.parametrize("spoil", [shutil.rmtree, lambda house: (house / "wheelhouse.json").write_text("{}")])
def test_no_wheelhouse_and_no_record_are_infrastructure_failures_with_the_remedy(house, spoil):
    spoil(house)
    with pytest.raises(InfrastructureError, match=r"wheelhouse\.json") as caught:
        wheelhouse.verify(house)
    assert "evaluator_wheelhouse.py --root" in caught.value.hint


def test_a_build_that_fails_leaves_nothing(tmp_path, monkeypatch):
    lock = tmp_path / "evaluator-wheelhouse.lock"
    lock.write_text(wheelhouse.LOCK.read_text().replace("--hash=sha256:67fba928", "--hash=sha256:00000000"))
    monkeypatch.setattr(wheelhouse, "LOCK", lock)
    with pytest.raises(InfrastructureError, match=r"pip download: .*(?s:.)*hash"):
        wheelhouse.build(tmp_path / "study")
    assert [path.name for path in (tmp_path / "study" / "runtime").iterdir()] == ["evaluator-wheelhouse.lock"]


@pytest.mark.parametrize(
    ("line", "release"),
    [
        (f"a==1 --hash=sha256:{SHA}\n", wheelhouse.Release("a", "1", None, (SHA,))),
        (
            f"# a word\na-b==1.2 ; python_full_version < '3' \\\n    --hash=sha256:{SHA} \\\n    --hash=sha256:{SHA}\n",
            wheelhouse.Release("a-b", "1.2", "python_full_version < '3'", (SHA, SHA)),
        ),
    ],
)
def test_the_lock_is_read_as_it_is_written(line, release):
    assert wheelhouse.read_lock(line) == [release]


@pytest.mark.parametrize("line", ["a>=1", "a==1", f"a --hash=sha256:{SHA}", "a==1 --hash=md5:00", "-r other.txt"])
def test_a_lock_without_pins_and_hashes_is_refused(line):
    with pytest.raises(UsageError, match="not a pinned release with its hashes"):
        wheelhouse.read_lock(line + "\n")


def test_the_command_prints_one_object_and_verify_writes_nothing(built, project):
    root = built.parents[1]
    done = project.script("evaluator_wheelhouse.py", "--root", root, "verify")
    assert f'"fingerprint": "{wheelhouse.verify(built).fingerprint}"' in done.stdout
    assert len(done.stdout.splitlines()) == 1
    missing = project.script("evaluator_wheelhouse.py", "--root", project.root / "nowhere", "verify", check=False)
    assert (missing.returncode, missing.stdout.count("\n")) == (3, 1)
    assert '"ok": false' in missing.stdout
    assert not (project.root / "nowhere").exists()
    assert project.script("evaluator_wheelhouse.py", check=False).returncode == 2


def test_a_study_without_programbench_builds_none(project):
    assert "wheelhouse" not in project.jobs()
    target = "results/starter/runtime/evaluator-wheelhouse/wheelhouse.json"
    assert project.jobs(target) == {"wheelhouse": 1}
    project.snakemake(target)
    assert wheelhouse.verify(project.root / Path(target).parent)
