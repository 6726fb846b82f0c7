"""The doctor: what a cluster must have before a study, looked at beforehand, one finding a line.

Each check is a probe, which asks the machine, and a decision, which is pure. ``installation`` looks at this checkout,
``cluster`` at what a login node can tell of Slurm, ``node`` at the machine that jobs run on.
"""

# An old Python must get as far as the finding that it is old.
from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assize.profile import Profile

OK, MISSING, ABSENT = "ok", "missing", "absent"


@dataclass(frozen=True)
class Finding:
    """One line: ``ok``; ``missing``, what the study needs; ``absent``, what it can do without."""

    check: str
    status: str
    found: str
    remedy: str = ""
    place: str = ""

    def as_json(self) -> dict:
        return asdict(self)


def ok(check: str, found: str) -> Finding:
    return Finding(check, OK, found)


def missing(check: str, found: str, remedy: str) -> Finding:
    return Finding(check, MISSING, found, remedy)


def absent(check: str, found: str, because: str) -> Finding:
    return Finding(check, ABSENT, f"{found}; not needed: {because}")


@dataclass(frozen=True)
class Answer:
    """What a program said: its output where it succeeded, else None, and the last line of what it complained."""

    output: str | None
    complaint: str = ""


def ask(*command: str, seconds: float = 60, **options) -> Answer:
    """Run a program and wait for its answer, ``seconds`` at most."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, **options)
    except FileNotFoundError:
        return Answer(None, f"{command[0]}: not found")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Answer(None, f"{command[0]}: {error}")
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
        return Answer(None, f"{command[0]}: {lines[-1].removeprefix(f'{command[0]}: ')}"[:300])
    # Some programs of Slurm say what they did on stderr.
    return Answer(done.stdout or done.stderr)


@dataclass(frozen=True)
class Needs:
    """What a study needs of a site, and what its profile says of the site. Memory in MiB, time in minutes.

    ``group_minutes`` is what the largest group of grades asks for, one after another; ``jobs`` how many Slurm jobs the
    profile lets be in flight.
    """

    executor: str
    resource_mode: str
    cpus: int
    memory_mb: int
    minutes: int
    lanes: frozenset[str]
    engine: str | None
    images: tuple[str, ...]
    settings: dict
    group_minutes: int = 0
    jobs: int | None = None
    profile: str = "profiles/slurm"

    @property
    def slurm(self) -> bool:
        in_slurm = self.executor == "submitit" and self.settings.get("cluster") != "local"
        return in_slurm or self.resource_mode == "slurm"

    @property
    def container(self) -> bool:
        return "container" in self.lanes


def needs_of(profile: Profile, frozen: dict) -> Needs:
    """What a frozen study needs under a profile."""
    from collections import Counter

    from assize.benchmarks import load_benchmark
    from assize.profile import pairs
    from assize.study import Study, memory_mb

    images = {image for name, section in frozen["benchmarks"].items() for image in load_benchmark(name).images(section)}
    sections = frozen["benchmarks"].values()
    sandboxes = [section["terms"]["sandbox"] for section in sections]
    allocations = [section["terms"]["allocation"] for section in sections]
    episodes = Counter(episode.benchmark for episode in Study(frozen).episodes())
    share = int(pairs(profile.content.get("group-components")).get("grade", 1))
    groups = {name: section for name, section in frozen["benchmarks"].items() if not section["alone"]}
    jobs = str(profile.content.get("jobs"))
    return Needs(
        executor=profile.executor or "local",
        resource_mode=next(section["terms"]["resource_mode"] for section in sections),
        cpus=max(allocation["cpus"] for allocation in allocations),
        memory_mb=max(memory_mb(allocation["memory"]) for allocation in allocations),
        minutes=max(section["minutes"] for section in sections),
        lanes=frozenset(sandbox["lane"] for sandbox in sandboxes),
        engine=next((sandbox["engine"] for sandbox in sandboxes if sandbox.get("engine")), None),
        images=tuple(sorted(images)),
        settings={name.replace("-", "_"): value for name, value in profile.site.items()},
        group_minutes=max((min(share, episodes[name]) * groups[name]["minutes"] for name in groups), default=0),
        jobs=int(jobs) if jobs.isdecimal() else None,
        profile=f"{profile.folder}/config.yaml",
    )


def print_findings(findings: list[Finding]) -> None:
    """One line each, in colours where a person watches. Without a package: they may be what is missing."""
    colours = {OK: "32", MISSING: "1;31", ABSENT: "33"}
    places = max((len(finding.place) for finding in findings), default=0)
    checks = max((len(finding.check) for finding in findings), default=0)
    for finding in findings:
        status = f"{finding.status:7}"
        if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
            status = f"\033[{colours[finding.status]}m{status}\033[0m"
        place = f"  {finding.place:{places}}" if places else ""
        remedy = f"; remedy: {finding.remedy}" if finding.remedy else ""
        print(f"{status}{place}  {finding.check:{checks}}  {finding.found}{remedy}".replace("\n", " "))
