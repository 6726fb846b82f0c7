"""The benchmarks, each a package here, behind one interface. No rule and no other module names one of them."""

import importlib
import pkgutil
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """What a benchmark's section of a study resolves to.

    ``terms`` bind every grade of the benchmark; ``instances`` do not, so that adding one reruns nothing. ``files`` are
    the repository's own inputs, ``datasets`` the names of the staged ones, ``runtime`` what a rule makes for the study
    before anything is calibrated, as paths below ``results/<study>/``, and ``ready`` the same where only that it was
    made counts, since adding an instance makes it again. ``minutes`` is what one calibration or one
    grade may take, for a scheduler that wants to know; what limits a candidate is in the terms. ``alone``: each
    calibration, episode and grade is a job of its own, with the whole allocation; else small ones share a job.
    """

    terms: dict
    instances: list[str]
    repetitions: int
    minutes: int = 10
    files: list[str] = field(default_factory=list)
    datasets: list[str] = field(default_factory=list)
    runtime: list[str] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)
    alone: bool = False


class Benchmark(ABC):
    """One benchmark. Verbs take an ``assize.adapter.Context`` and return the body of their record."""

    name: str
    # Raised when a change of the adapter can alter a verdict: it is part of the terms.
    protocol_version: str
    # "each": a failed calibration bars its instance. "all": it bars every instance.
    admission: str
    # What the parts of an instance are called, where the benchmark's headline counts them beside whole instances.
    part: str | None = None

    @property
    def schema(self) -> str:
        """Name of the schema of the benchmark's section in a study."""
        return f"benchmark-{self.name}"

    @abstractmethod
    def plan(self, section: dict, datasets: dict) -> Plan:
        """Resolve a study's section. UsageError names the key, without the ``benchmarks.<name>.`` before it."""

    @abstractmethod
    def work_digests(self, condition: dict, instances: list[str]) -> dict[str, str]:
        """For each instance, a digest of what the condition's solver brings. UsageError as in ``plan``."""

    @abstractmethod
    def calibrate(self, context, instance: str, repetition: int) -> dict:
        """Grade the reference (and the canaries) of an instance."""

    @abstractmethod
    def prepare(self, context, episode, workspace: Path) -> dict:
        """Lay out a fresh workspace, with nothing of the oracle in it."""

    @abstractmethod
    def solve(self, context, episode, workspace: Path) -> dict:
        """Let the condition's solver work in the workspace."""

    @abstractmethod
    def snapshot(self, context, episode, workspace: Path) -> tuple[dict, bytes | None]:
        """End the candidate; return the record's body and the frozen archive (None if there is nothing to judge)."""

    @abstractmethod
    def grade(self, context, episode, archive: bytes, evidence: Path) -> dict:
        """Judge one snapshot; raw outputs go to ``evidence``."""

    def facts(self, context, episode) -> dict:
        """What the grade of work that could not be run states all the same: ``detail``, ``sandbox``, ``provenance``."""
        return {}

    def parts(self, episode, grade: dict | None) -> tuple[float, int]:
        """(parts that passed, parts that there are) of one episode; the grade is None where there is none. Pure."""
        raise NotImplementedError

    def summary(self, grades: dict) -> dict:
        """Numbers of the benchmark's own for one condition, for the census: episode -> grade or None in. Pure."""
        return {}

    def images(self, section: dict) -> list[str]:
        """Local images that the containers of a study are made from; ``section`` is the benchmark's in study.json."""
        sandbox = section["terms"]["sandbox"]
        return [sandbox["image"]] if sandbox["lane"] == "container" and "image" in sandbox else []

    def doctor_checks(self, study, engine: str | None) -> list:
        """What a node must have for this benchmark beyond its lane and images, as ``assize.doctor.Finding``.

        ``study`` is an ``assize.study.Study``, ``engine`` the container engine of this machine.
        """
        return []

    def host_folders(self, section: dict) -> dict[str, str]:
        """Folders of this machine that a study's section, as its author wrote it, would have used: key -> path.

        What lies there is not hashed before it is used, so only the section's own author may name them unasked.
        """
        return {}

    def add_options(self, parser) -> None:  # noqa: B027
        """Add global arguments of the benchmark's own; its verbs find them in ``context.options``."""

    def add_verbs(self, verbs) -> None:  # noqa: B027 (most benchmarks have none)
        """Add verbs of the benchmark's own to the command line (argparse's subparsers)."""


@cache
def load_benchmark(name: str) -> Benchmark | None:
    """The benchmark called ``name``, or None if there is none."""
    if name not in known_benchmarks():
        return None
    return importlib.import_module(f"assize.benchmarks.{name}").BENCHMARK


def known_benchmarks() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))
