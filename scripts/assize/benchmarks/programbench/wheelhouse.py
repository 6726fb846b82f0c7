"""The evaluator's wheelhouse: wheels for the test branches, installed into evaluator containers without a network.

Upstream installs its pytest plugins while it evaluates and accepts that this fails; offline it always does, and a
correct submission then scores 0. The wheelhouse holds the pinned releases instead (``envs/evaluator-wheelhouse.lock``),
as wheels that fit every Python from 3.10 on, with one record of their hashes. It is for evaluators alone: a solver
never sees it.
"""

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from assize.errors import AssizeError, InfrastructureError, UsageError
from assize.records import ROOT, digest, read_record, sha256_file, write_atomic, write_record

LOCK = ROOT / "envs" / "evaluator-wheelhouse.lock"
PLACE = Path("runtime", "evaluator-wheelhouse")
RECORD = "wheelhouse.json"
REQUIREMENTS = "requirements.txt"
CONSTRAINTS = "constraints.txt"

# Published as an sdist alone: its wheel is built here, with the setuptools that the lock pins.
BUILT = "pytest-dependency"
BUILDER = "setuptools"
# What is installed in any image, at the lock's versions. The rest is what these need, for images that lack it.
PLUGINS = ("execnet", "libtmux", "pytest-dependency", "pytest-rerunfailures", "pytest-timeout", "pytest-xdist")
# The oldest Python of an image. Wheels that fit it on any platform fit every later one.
OLDEST_PYTHON = "3.10"
# 1980-01-01, the earliest time that a zip archive can state.
EPOCH = "315532800"


@dataclass(frozen=True)
class Release:
    """One pinned release of the lock: its wheel or its sdist must have one of the sha256 ``hashes``."""

    name: str
    version: str
    marker: str | None
    hashes: tuple[str, ...]

    def requirement(self, marker: bool = False) -> str:
        """The release as one line that pip's ``--require-hashes`` takes."""
        condition = f" ; {self.marker}" if marker and self.marker else ""
        return f"{self.name}=={self.version}{condition} " + " ".join(f"--hash=sha256:{sha}" for sha in self.hashes)


@dataclass(frozen=True)
class Wheelhouse:
    """A verified wheelhouse: where it lies, its record, and the sha256 (64 hex digits) of that record's canonical form.

    The fingerprint depends on the wheels alone, neither on the place nor on the time.
    """

    path: Path
    lock: dict
    fingerprint: str


def read_lock(text: str) -> list[Release]:
    """The releases of a lock as ``uv pip compile --generate-hashes`` writes it. Pure.

    Raises
    ------
    UsageError : a line is no pin, or a pin has no hash.
    """
    releases = []
    lines = re.sub(r"(?m)^#.*$", "", text).replace("\\\n", " ").splitlines()
    for line in filter(str.strip, lines):
        match = re.fullmatch(
            r"([A-Za-z0-9._-]+)==([^\s;]+)(?:\s*;\s*(.*?))?((?:\s+--hash=sha256:[0-9a-f]{64})+)\s*", line
        )
        if not match:
            raise UsageError(
                "bad_lock", f"{LOCK.name}: not a pinned release with its hashes: {line[:80]!r}", "make lock"
            )
        name, version, marker, hashes = match.groups()
        releases.append(Release(name, version, marker, tuple(re.findall(r"sha256:([0-9a-f]{64})", hashes))))
    return releases


def build(root) -> Path:
    """Build the wheelhouse of the study at ``root`` unless it is there and right: whole or not at all.

    Returns
    -------
    Path : ``<root>/runtime/evaluator-wheelhouse``.

    Raises
    ------
    InfrastructureError : the package index is out of reach or has other bytes, or the one wheel could not be built.
    """
    from filelock import FileLock

    place = Path(root) / PLACE
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        try:
            verify(place)
        except AssizeError:
            with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as folder:
                fresh = Path(folder, "wheelhouse")
                _fill(fresh, read_lock(LOCK.read_text()))
                verify(fresh)
                if place.exists():
                    place.rename(Path(folder, "replaced"))
                fresh.rename(place)
    return place


def _fill(folder: Path, releases: list[Release]) -> None:
    folder.mkdir()
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        requirements = Path(scratch, "requirements.txt")
        # Without their markers: what a Python of an image needs does not depend on the Python that runs here.
        requirements.write_text("".join(f"{one.requirement()}\n" for one in releases if one.name != BUILT))
        anywhere = ["--only-binary", ":all:", "--platform", "any", "--implementation", "py", "--abi", "none"]
        _pip(
            *("download", "--no-deps", "--require-hashes", *anywhere, "--python-version", OLDEST_PYTHON),
            *("--dest", folder, "--requirement", requirements),
        )
        for release in releases:
            if release.name == BUILT:
                build_wheel(release, folder, next(folder.glob(f"{BUILDER}-*.whl")))
    wheels = [_describe(release, folder) for release in sorted(releases, key=lambda one: one.name)]
    record = {"schema": "assize.wheelhouse/1", "releases": sha256_file(LOCK), "wheels": wheels}
    for name, text in _for_pip(record).items():
        write_atomic(folder / name, text.encode())
    write_record(folder / RECORD, record)


def build_wheel(release: Release, folder: Path, builder: Path) -> None:
    """Build the wheel of an sdist into ``folder``: the same bytes whoever builds it, and whenever.

    ``builder`` is the wheel of the setuptools to build with. Times, file modes and the order of hashes are fixed;
    nothing is compressed, since what that gives depends on the zlib of this machine.
    """
    with tempfile.TemporaryDirectory() as scratch:
        tools, requirements, settings = (Path(scratch, name) for name in ("tools", "requirements.txt", "settings.cfg"))
        with zipfile.ZipFile(builder) as wheel:
            wheel.extractall(tools)
        requirements.write_text(release.requirement() + "\n")
        # Not pip's --config-settings: not every pip passes them on to what a requirements file names.
        settings.write_text("[bdist_wheel]\ncompression = stored\n")
        _pip(
            *("wheel", "--no-deps", "--require-hashes", "--no-binary", release.name, "--no-build-isolation"),
            *("--no-cache-dir", "--wheel-dir", folder, "--requirement", requirements),
            environment={
                "SOURCE_DATE_EPOCH": EPOCH,
                "PYTHONHASHSEED": "0",
                "PYTHONPATH": str(tools),
                "DIST_EXTRA_CONFIG": str(settings),
            },
        )


def _pip(*arguments, environment: dict | None = None) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *map(str, arguments)]
    done = subprocess.run(
        command,
        env=os.environ | (environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        umask=0o022,
    )
    if done.returncode:
        said = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("WARNING"))
        raise InfrastructureError(
            "wheelhouse_not_built",
            f"evaluator wheelhouse: pip {arguments[0]}: {said.strip()[-800:]}",
            "a package index that has the releases of envs/evaluator-wheelhouse.lock must be in reach",
        )


def _describe(release: Release, folder: Path) -> dict:
    """The record's entry of one wheel."""
    stem = f"{re.sub(r'[-_.]+', '_', release.name)}-{release.version}-"
    found = [path for path in folder.glob("*.whl") if path.name.startswith(stem)]
    if len(found) != 1:
        raise InfrastructureError("wheelhouse_not_built", f"evaluator wheelhouse: {len(found)} wheels {stem}*")
    return {
        "name": release.name,
        "version": release.version,
        "marker": release.marker,
        "filename": found[0].name,
        "sha256": sha256_file(found[0]),
        "size": found[0].stat().st_size,
        "built": release.name == BUILT,
    }


def _for_pip(record: dict) -> dict[str, str]:
    """The two files that pip reads in a container: what to install, by hash, and what nothing else may replace."""
    pins = [Release(wheel["name"], wheel["version"], wheel["marker"], (wheel["sha256"],)) for wheel in record["wheels"]]
    return {
        REQUIREMENTS: "".join(f"{pin.requirement(marker=True)}\n" for pin in pins),
        CONSTRAINTS: "".join(f"{pin.name}=={pin.version}\n" for pin in pins),
    }


def texts_for(wheelhouse: Wheelhouse, installed: dict[str, str], python: str) -> tuple[str, str]:
    """What pip installs into an image beside what that has, by hash; and the versions that are then in force.

    Parameters
    ----------
    installed : distribution -> version, of the image's own Python; what is no plugin stays as it is.
    python : the version of that Python.

    Raises
    ------
    InfrastructureError : the image has a version that a plugin does not take.
    """
    pins = [
        Release(wheel["name"], wheel["version"], wheel["marker"], (wheel["sha256"],))
        for wheel in wheelhouse.lock["wheels"]
    ]
    chosen = [pin for pin in pins if pin.name in PLUGINS or pin.name not in installed]
    kept = {pin.name: installed[pin.name] for pin in pins if pin not in chosen}
    faults = _conflicts(wheelhouse, [pin.name for pin in chosen], kept, python)
    if faults:
        raise InfrastructureError(
            "image_too_old",
            f"the evaluator's plugins do not fit the image: {'; '.join(faults)}",
            "the image's own packages are not replaced; use an image, or a lock of the wheelhouse, that fits",
        )
    versions = {pin.name: kept.get(pin.name, pin.version) for pin in pins}
    install = "".join(f"{pin.requirement(marker=True)}\n" for pin in chosen)
    return install, "".join(f"{name}=={version}\n" for name, version in versions.items())


def _conflicts(wheelhouse: Wheelhouse, chosen: list[str], kept: dict[str, str], python: str) -> list[str]:
    """What the chosen wheels ask for that the image has, and has otherwise."""
    from packaging.metadata import Metadata
    from packaging.utils import canonicalize_name

    here = {"python_version": ".".join(python.split(".")[:2]), "python_full_version": python, "extra": ""}
    faults = []
    for wheel in wheelhouse.lock["wheels"]:
        if wheel["name"] not in chosen:
            continue
        with zipfile.ZipFile(wheelhouse.path / wheel["filename"]) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            needs = Metadata.from_email(archive.read(name), validate=False).requires_dist or []
        for need in needs:
            found = kept.get(canonicalize_name(need.name))
            applies = need.marker is None or need.marker.evaluate(here)
            if found and applies and not need.specifier.contains(found, prereleases=True):
                faults.append(f"{wheel['name']} {wheel['version']} needs {need.name}{need.specifier}, it has {found}")
    return faults


def verify(path) -> Wheelhouse:
    """Check every byte of the wheelhouse at ``path`` against its record, and its record against the lock.

    Raises
    ------
    InfrastructureError : it is missing, of another lock, or not what its record says. Every fault is named.
    """
    path = Path(path)
    remedy = "build it again: python scripts/evaluator_wheelhouse.py --root STUDY_ROOT"
    try:
        record = read_record(path / RECORD, "wheelhouse")
    except (UsageError, OSError, ValueError) as error:
        raise InfrastructureError("bad_wheelhouse", f"evaluator wheelhouse: {error}", remedy) from None
    faults = _faults(path, record)
    if faults:
        raise InfrastructureError("bad_wheelhouse", f"evaluator wheelhouse {path}: {'; '.join(faults)}", remedy)
    return Wheelhouse(path, record, digest(record))


def _faults(path: Path, record: dict) -> list[str]:
    faults = []
    if record["releases"] != sha256_file(LOCK):
        faults.append(f"it was built of another lock than {LOCK.name}")
    texts = {name: text.encode() for name, text in _for_pip(record).items()}
    wheels = {wheel["filename"]: wheel for wheel in record["wheels"]}
    there = {entry.name for entry in os.scandir(path)}
    faults += [f"{name} is missing" for name in sorted({*texts, *wheels} - there)]
    faults += [f"{name} does not belong there" for name in sorted(there - {*texts, *wheels, RECORD})]
    for name in sorted(there & {*texts, *wheels}):
        file = path / name
        if file.is_symlink() or not file.is_file():
            faults.append(f"{name} is not a regular file")
        elif name in texts and file.read_bytes() != texts[name]:
            faults.append(f"{name} is not what the record gives")
        elif name in wheels and sha256_file(file) != wheels[name]["sha256"]:
            faults.append(f"{name} has sha256 {sha256_file(file)}, recorded is {wheels[name]['sha256']}")
    return faults + _release_faults(record)


def _release_faults(record: dict) -> list[str]:
    """Whether the wheels are the lock's releases: all of them, no other, and by the published hashes."""
    recorded = {(wheel["name"], wheel["version"], wheel["marker"]): wheel for wheel in record["wheels"]}
    faults = []
    for release in read_lock(LOCK.read_text()):
        wheel = recorded.pop((release.name, release.version, release.marker), None)
        if wheel is None:
            faults.append(f"{release.name}=={release.version} is not in the record")
        elif release.name != BUILT and wheel["sha256"] not in release.hashes:
            faults.append(f"{wheel['filename']} has none of the hashes that {LOCK.name} has of it")
    return faults + [f"{name}=={version} is not in {LOCK.name}" for name, version, _ in recorded]
