"""What the doctor looks at for ProgramBench: official package, wheelhouse, and containers as upstream makes them."""

from pathlib import Path

from assize.benchmarks.programbench.official import find_official
from assize.benchmarks.programbench.wheelhouse import PLACE, verify
from assize.doctor import Finding, absent, ask, missing, ok
from assize.errors import AssizeError

# Upstream's evaluator leaves all but the network to the engine's own defaults.
UPSTREAM_OPTIONS = ("--pull", "never", "--network", "none")


def check(study, section: dict, engine: str | None) -> list[Finding]:
    """The findings for a study on this machine."""
    from assize.benchmarks import load_benchmark
    from assize.doctor.node import check_commit

    findings = [check_package(section["terms"]["package"]["root"]), check_wheelhouse(study.root / PLACE)]
    if engine:
        images = load_benchmark("programbench").images(section)
        here = next((image for image in images if ask(engine, "image", "inspect", image).output is not None), None)
        findings.append(check_commit(engine, here, "evaluators", UPSTREAM_OPTIONS))
    return findings


def check_package(root: str | None) -> Finding:
    """The official package is there, with the bytes that the protocol pins."""
    try:
        official = find_official(root)
    except AssizeError as error:
        return missing("programbench", error.message, error.hint)
    return ok("programbench", f"the official package, as {official.source}")


def check_wheelhouse(path: Path) -> Finding:
    """Every byte of the wheelhouse is right; before the study's first run there is none."""
    if not path.exists():
        return absent("wheelhouse", f"{path} is not built yet", "the run builds it, beside the controller")
    try:
        wheelhouse = verify(path)
    except AssizeError as error:
        return missing("wheelhouse", error.message, error.hint)
    return ok("wheelhouse", f"{path}, {wheelhouse.fingerprint[:12]}")
