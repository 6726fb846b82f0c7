"""Profiles: what a command must know of the one that Snakemake is given."""

from dataclasses import dataclass, field
from pathlib import Path

from assize.errors import UsageError


@dataclass(frozen=True)
class Profile:
    """``resource_mode`` is None where the profile leaves it to the study; ``site`` has ``submitit-*`` by short name;
    ``content`` is all that its file says."""

    folder: Path
    executor: str | None
    resource_mode: str | None
    site: dict = field(default_factory=dict)
    content: dict = field(default_factory=dict)

    @property
    def submits(self) -> bool:
        """Whether jobs go to a scheduler, rather than run where Snakemake does."""
        return self.executor not in (None, "local")


def read_profile(folder) -> Profile:
    """Read ``<folder>/config.yaml``; UsageError if it is missing or no mapping."""
    import yaml

    path = Path(folder) / "config.yaml"
    try:
        content = yaml.safe_load(path.read_text())
    except OSError:
        raise UsageError("missing_profile", f"{path}: no such profile", "profiles of the project: profiles/*") from None
    except yaml.YAMLError as error:
        raise UsageError("bad_profile", f"{path}: not YAML: {error}") from None
    if not isinstance(content, dict):
        raise UsageError("bad_profile", f"{path}: a profile is a mapping")
    site = {key.removeprefix("submitit-"): value for key, value in content.items() if key.startswith("submitit-")}
    mode = pairs(content.get("config")).get("resource_mode")
    return Profile(Path(folder), content.get("executor"), mode, site, content)


def pairs(setting) -> dict:
    """Of a setting of a profile that gives values to names: a mapping, or a list of ``name=value``."""
    return setting if isinstance(setting, dict) else dict(entry.split("=", 1) for entry in setting or [])


def check_cores(frozen: dict, cores) -> None:
    """Refuse a run that submits its jobs to Slurm with other ``cores`` than the study's allocation has CPUs.

    A group of grades asks for what ``cores`` can hold at once, and a single grade for the allocation: some grades of
    the study would be made in other allocations than the others.

    Raises
    ------
    UsageError : with the value that both must have.
    """
    terms = [section["terms"] for section in frozen["benchmarks"].values()]
    wrong = [one["allocation"]["cpus"] for one in terms if one["resource_mode"] == "slurm"]
    if any(cpus != cores for cpus in wrong):
        raise UsageError(
            "other_allocation",
            f"{frozen['name']}: the profile has cores: {cores}, and the study's allocation {wrong[0]} CPUs",
            f"set cores: {wrong[0]} in a copy of the profile (or --cores {wrong[0]}), or allocation.cpus in the study",
        )
