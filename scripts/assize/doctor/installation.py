"""Whether this checkout is set up: the Python, the locked packages, the executor, the profile's settings.

Nothing but the standard library is imported before the packages are known to be there.
"""

# An old Python must get as far as the finding that it is old.
from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

from assize.doctor import MISSING, Finding, Needs, missing, ok

OLDEST = (3, 11)
LOCK = Path(__file__).resolve().parents[3] / "envs" / "requirements.lock"
SET_UP = "make setup, then run this with .venv/bin/python"


def check_environment() -> list[Finding]:
    """The Python that runs this, and the packages that it finds."""
    python = decide_python(sys.version_info[:3], sys.executable)
    if python.status == MISSING:
        # An old one may not even be able to list what it has.
        return [python, decide_packages([], {}, None)]
    from importlib.metadata import distributions

    installed = {normal(item.metadata["Name"]): item.version for item in distributions() if item.metadata["Name"]}
    applies = applies_here if "packaging" in installed else None
    return [python, decide_packages(read_pins(LOCK.read_text()), installed, applies)]


def decide_python(version: tuple, executable: str) -> Finding:
    text = f"{'.'.join(map(str, version))} ({executable})"
    if version[:2] < OLDEST:
        return missing("python", f"{text} is older than 3.11", "make setup PYTHON=python3.11")
    return ok("python", text)


def read_pins(lock: str) -> list[tuple[str, str, str]]:
    """(Name, version, marker or "") of each package of a lock that uv wrote. Pure."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)\s*(?:;\s*(.*?))?\s*\\?$", lock, re.MULTILINE)
    return [(normal(name), version, marker) for name, version, marker in found]


def normal(name: str) -> str:
    """The one spelling of a package's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def applies_here(marker: str) -> bool:
    from packaging.markers import Marker

    return Marker(marker).evaluate()


def decide_packages(pins: list[tuple[str, str, str]], installed: dict[str, str], applies) -> Finding:
    """Every package of the lock is installed in the version that it pins. ``applies(marker)``: None, nothing is."""
    if applies is None:
        return missing("packages", "the locked packages are not installed", SET_UP)
    wanted = {name: version for name, version, marker in pins if not marker or applies(marker)}
    others = [
        f"{name} {installed[name]} is not {version}" if name in installed else f"{name} {version} is not installed"
        for name, version in wanted.items()
        if installed.get(name) != version
    ]
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        return missing("packages", "; ".join(others[:3]) + more, SET_UP)
    return ok("packages", f"{len(wanted)} as locked in envs/requirements.lock")


def check_datasets(frozen: dict) -> list[Finding]:
    """Each dataset of the study is staged, or can be: a night ends early at one that cannot."""
    from assize.staging.sources import SourceFailed, describe, probe
    from assize.study import staged_path

    findings = []
    for name, declaration in frozen["datasets"].items():
        place, failures = Path(staged_path(declaration)), []
        if place.is_file() and place.stat().st_size == declaration["size"]:
            findings.append(ok("datasets", f"{name} is staged"))
            continue
        for source in declaration["sources"]:
            try:
                probe(source)
            except SourceFailed as error:
                failures.append(f"{describe(source)}: {error}"[:250])
            else:
                findings.append(ok("datasets", f"{name} will be staged from {describe(source)}"))
                break
        else:
            said = f"{name} is not staged, and no source of it answers here: {'; '.join(failures)}"
            remedy = f"stage it where one does (scripts/stage.py get), or add a source; its place is {place}"
            findings.append(missing("datasets", said, remedy))
    return findings


def check_cores(frozen: dict, cores) -> list[Finding]:
    """Groups of grades and single ones get the same allocation."""
    from assize import profile
    from assize.errors import UsageError

    try:
        profile.check_cores(frozen, cores)
    except UsageError as error:
        return [missing("cores", error.message, error.hint)]
    return []


def check_profile(needs: Needs, where) -> list[Finding]:
    """The executor that the profile asks for, and its settings."""
    if needs.executor == "local":
        return [ok("executor", "local: no job leaves this machine")]
    module = f"snakemake_executor_plugin_{needs.executor.replace('-', '_')}"
    if find_spec(module) is None:
        return [missing("executor", f"{where}: Snakemake finds no executor {needs.executor}", SET_UP)]
    findings = [ok("executor", f"{needs.executor}, found by Snakemake")]
    if needs.executor == "submitit":
        import dataclasses

        from snakemake_executor_plugin_submitit import ExecutorSettings

        known = [field.name for field in dataclasses.fields(ExecutorSettings)]
        findings.append(decide_settings(needs.settings, known, where))
    return findings


def decide_settings(settings: dict, known: list[str], where) -> Finding:
    """Snakemake passes over a setting of a profile that it does not know."""
    spelt = {name: f"submitit-{name.replace('_', '-')}" for name in [*settings, *known]}
    unknown = [spelt[name] for name in settings if name not in known]
    if unknown:
        allowed = ", ".join(spelt[name] for name in known)
        return missing("settings", f"{where}: no setting {', '.join(unknown)}", f"one of {allowed}")
    told = ", ".join(f"{spelt[name]} {' '.join(str(value).split())}" for name, value in settings.items())
    return ok("settings", told or "none: the site's defaults")
