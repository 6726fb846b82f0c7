"""Studies: a config file checked, resolved with all its pins, and frozen to ``results/<study>/study.json``."""

import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from assize.benchmarks import known_benchmarks, load_benchmark
from assize.errors import UsageError
from assize.records import ROOT, digest, read_record, schema_faults

RESULTS = Path("results")
RESOURCE_MODES = ("slurm", "container", "none")
# The solver of a condition whose snapshots lie in the study's folder already.
FROZEN = "frozen"
# Seconds that an agent's command has, where its condition says nothing else.
DEFAULT_TIMEOUT_S = 600.0


@dataclass(frozen=True, order=True)
class Episode:
    """One repeat of one condition at one instance of a benchmark."""

    benchmark: str
    condition: str
    instance: str
    repeat: int

    def __str__(self):
        return f"{self.benchmark}/{self.condition}/{self.instance}/{self.repeat}"

    @classmethod
    def parse(cls, text: str) -> "Episode":
        """The episode written as ``benchmark/condition/instance/repeat``; UsageError if it is not one."""
        parts = text.strip("/").split("/")
        if len(parts) != 4 or not parts[3].isdigit():
            raise UsageError("bad_episode", f"{text!r} is not an episode", "form: benchmark/condition/instance/repeat")
        return cls(parts[0], parts[1], parts[2], int(parts[3]))

    def as_json(self) -> dict:
        return {
            "benchmark": self.benchmark,
            "condition": self.condition,
            "instance": self.instance,
            "repeat": self.repeat,
        }


def load_config(path) -> dict:
    """Read a study's YAML file.

    Raises
    ------
    UsageError : the file is missing, is no YAML mapping, or gives a key twice (YAML would drop the first silently).
    """
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    def mapping(loader, node):
        keys = [loader.construct_object(key) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                line = node.start_mark.line + 1
                raise UsageError("bad_config", f"{path}: key {key!r} is given twice in the mapping at line {line}")
        return loader.construct_mapping(node, deep=True)

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    try:
        config = yaml.load(Path(path).read_text(), Loader)
    except FileNotFoundError:
        raise UsageError("missing_config", f"{path}: no such study config") from None
    except yaml.YAMLError as error:
        raise UsageError("bad_config", f"{path}: not YAML: {error}") from None
    if not isinstance(config, dict):
        raise UsageError("bad_config", f"{path}: a study config is a mapping")
    return config


def memory_mb(text: str) -> int:
    """``30g`` or ``512m`` in MiB."""
    return int(text[:-1]) * {"m": 1, "g": 1024}[text[-1].lower()]


def resolve(config: dict, source, resource_mode: str | None = None) -> dict:
    """Check a study's config whole and resolve it: the content of ``study.json``.

    Parameters
    ----------
    config : the study, as read from YAML.
    source : its file, for messages.
    resource_mode : what the profile asks for; a mode that the study pins must agree with it.

    Raises
    ------
    UsageError : with all the faults found, one a line: ``key.path: value ... allowed``.
    """
    faults = schema_faults(config, "study-config")
    if not faults:
        faults = _cross_faults(config, resource_mode)
    frozen = None
    if not faults:
        frozen, faults = _freeze(config, resource_mode)
    if faults:
        lines = "\n".join(f"  {fault}" for fault in faults)
        raise UsageError(
            "bad_config", f"{source}: {len(faults)} fault(s):\n{lines}", "config/README.md explains every key"
        )
    return frozen


def _cross_faults(config: dict, resource_mode: str | None) -> list[str]:
    """Faults that no schema can see: a name that refers to nothing, two modes that disagree."""
    faults = []
    for name in config["benchmarks"]:
        if load_benchmark(name) is None:
            faults.append(f"benchmarks.{name}: there is no such benchmark; allowed: {', '.join(known_benchmarks())}")
        else:
            section = config["benchmarks"][name]
            faults += [f"benchmarks.{name}.{fault}" for fault in schema_faults(section, load_benchmark(name).schema)]
    for name, condition in config["conditions"].items():
        for benchmark in condition.get("benchmarks", []):
            if benchmark not in config["benchmarks"]:
                allowed = ", ".join(config["benchmarks"])
                faults.append(f"conditions.{name}.benchmarks: {benchmark!r} is not in the study; allowed: {allowed}")
        for benchmark in condition.get("benchmarks", config["benchmarks"]):
            if condition["solver"] == "replay" and benchmark not in condition["submissions"]:
                faults.append(f"conditions.{name}.submissions: missing {benchmark}: the condition replays it")
    pinned = config.get("resource_mode")
    if pinned and resource_mode and pinned != resource_mode:
        faults.append(f"resource_mode: the study pins {pinned!r} and the profile asks for {resource_mode!r}")
    if resource_mode not in (None, *RESOURCE_MODES):
        faults.append(f"resource_mode: {resource_mode!r} is not allowed; allowed: {', '.join(RESOURCE_MODES)}")
    return faults


def _freeze(config: dict, resource_mode: str | None) -> tuple[dict, list[str]]:
    faults, benchmarks, conditions = [], {}, {}
    allocation = {"cpus": 16, "memory": "30g"} | config.get("allocation", {})
    datasets = config.get("datasets", {})
    for name, section in config["benchmarks"].items():
        benchmark = load_benchmark(name)
        try:
            plan = benchmark.plan(section, datasets)
        except UsageError as error:
            faults.append(f"benchmarks.{name}.{error.message}")
            continue
        mode = resource_mode or config.get("resource_mode", "none")
        if mode == "container" and plan.terms["sandbox"]["lane"] != "container":
            lane = plan.terms["sandbox"]["lane"]
            faults.append(f"resource_mode: container has no engine to enforce it in benchmarks.{name}, lane {lane}")
        terms = {
            "benchmark": name,
            "protocol_version": benchmark.protocol_version,
            "resource_mode": mode,
            "allocation": allocation,
            **plan.terms,
        }
        benchmarks[name] = {
            "terms": terms,
            "terms_digest": digest(terms),
            "instances": plan.instances,
            "repetitions": plan.repetitions,
            "minutes": plan.minutes,
            "files": plan.files,
            "datasets": plan.datasets,
            "runtime": plan.runtime,
            "ready": plan.ready,
            "alone": plan.alone,
        }
    for name, condition in config["conditions"].items():
        chosen = condition.get("benchmarks", list(config["benchmarks"]))
        work = {}
        for benchmark in chosen:
            if benchmark not in benchmarks:
                continue
            try:
                instances = benchmarks[benchmark]["instances"]
                work[benchmark] = load_benchmark(benchmark).work_digests(condition, instances)
            except UsageError as error:
                faults.append(f"conditions.{name}.{error.message}")
        conditions[name] = condition | {"benchmarks": chosen, "work": work}
    frozen = {
        "schema": "assize.study/1",
        "name": config["name"],
        "benchmarks": benchmarks,
        "conditions": conditions,
        "repeats": config.get("repeats", 1),
        "datasets": datasets,
        "config": config,
    }
    return frozen, faults


class Study:
    """A frozen study: what is planned, and where each record lies."""

    def __init__(self, frozen: dict):
        self.frozen = frozen
        self.name = frozen["name"]
        self.root = RESULTS / self.name
        self.benchmarks = frozen["benchmarks"]
        self.attempts = 1

    @classmethod
    def read(cls, path) -> "Study":
        """The study frozen at ``path``; UsageError if it is none, or is of a benchmark that there is not."""
        study = cls(read_record(path, "study"))
        unknown = sorted(set(study.benchmarks) - set(known_benchmarks()))
        if unknown:
            allowed = ", ".join(known_benchmarks())
            raise UsageError("unknown_benchmark", f"{path}: no benchmark {', '.join(unknown)}; there are {allowed}")
        if faults := study.dangling():
            lines = "\n".join(f"  {fault}" for fault in faults)
            raise UsageError("bad_record", f"{path}: {len(faults)} name(s) that refer to nothing:\n{lines}")
        study.root = Path(path).parent
        return study

    def dangling(self) -> list[str]:
        """Where one part of the study names what another part does not have."""
        faults = []
        for name, section in self.benchmarks.items():
            lost = [dataset for dataset in section["datasets"] if dataset not in self.frozen["datasets"]]
            faults += [f"benchmarks.{name}.datasets: there is no dataset {dataset!r}" for dataset in lost]
        for name, condition in self.frozen["conditions"].items():
            lost = [benchmark for benchmark in condition["benchmarks"] if benchmark not in self.benchmarks]
            faults += [f"conditions.{name}.benchmarks: there is no benchmark {benchmark!r}" for benchmark in lost]
        return faults

    @property
    def digest(self) -> str:
        return digest(self.frozen)

    def episodes(self) -> list[Episode]:
        """Every planned episode, in a stable order."""
        return [
            Episode(benchmark, name, instance, repeat)
            for name, condition in self.frozen["conditions"].items()
            for benchmark in condition["benchmarks"]
            for instance, repeat in product(
                self.benchmarks[benchmark]["instances"], range(1, self.frozen["repeats"] + 1)
            )
        ]

    def calibrations(self, benchmark: str, instance: str) -> list[Path]:
        """The calibrations that decide on an instance: its own, or all of the benchmark's."""
        section = self.benchmarks[benchmark]
        instances = section["instances"] if load_benchmark(benchmark).admission == "all" else [instance]
        return [
            self.root / "calibration" / benchmark / name / f"{repetition}.json"
            for name, repetition in product(instances, range(1, section["repetitions"] + 1))
        ]

    def all_calibrations(self) -> list[Path]:
        """The calibrations that decide on what is planned, each once."""
        planned = dict.fromkeys((episode.benchmark, episode.instance) for episode in self.episodes())
        return list(dict.fromkeys(path for pair in planned for path in self.calibrations(*pair)))

    def admission(self, benchmark: str, instance: str) -> Path:
        return self.root / "admission" / benchmark / f"{instance}.json"

    def grades(self) -> list[Path]:
        return [self.episode_folder(episode) / "grade.json" for episode in self.episodes()]

    def episode_folder(self, episode: Episode) -> Path:
        return self.root / "episodes" / str(episode)

    def terms_digest(self, benchmark: str) -> str:
        return self.benchmarks[benchmark]["terms_digest"]

    def solved(self) -> str:
        """The conditions whose episodes the workflow makes, as a wildcard's pattern. The others bring snapshots."""
        names = [name for name, condition in self.frozen["conditions"].items() if condition["solver"] != FROZEN]
        return "|".join(map(re.escape, names)) or "(?!)"

    def work_digest(self, benchmark: str, condition: str, instance: str) -> str:
        """What a condition hands in at an instance, as a digest: a change of it reruns that episode."""
        return self.frozen["conditions"][condition]["work"][benchmark][instance]

    def staged(self, benchmark: str) -> list[str]:
        """Paths of the staged files that a benchmark reads."""
        return [self.staged_path(name) for name in self.benchmarks[benchmark]["datasets"]]

    def runtime(self, benchmark: str) -> list[Path]:
        """What a rule makes for this study before a benchmark is calibrated."""
        return [self.root / path for path in self.benchmarks[benchmark]["runtime"]]

    def ready(self, benchmark: str) -> list[Path]:
        """As ``runtime``, but to make it again changes nothing that was calibrated."""
        return [self.root / path for path in self.benchmarks[benchmark]["ready"]]

    def dataset_of(self, sha256: str) -> str:
        """The name of the dataset with these bytes; KeyError if the study declares none."""
        return {declaration["sha256"]: name for name, declaration in self.frozen["datasets"].items()}[sha256]

    def cpus(self, benchmark: str) -> int:
        """CPUs of an evaluator's allocation."""
        return self.benchmarks[benchmark]["terms"]["allocation"]["cpus"]

    def memory_mb(self, benchmark: str) -> int:
        """MiB of an evaluator's allocation."""
        return memory_mb(self.benchmarks[benchmark]["terms"]["allocation"]["memory"])

    def group(self, stage: str, benchmark: str) -> str:
        """The name of a stage's group: the profile says by stage how many jobs share one of Slurm's; one with the name
        of a benchmark in it is in no profile, so each of its jobs is alone."""
        return f"{stage}-{benchmark}" if self.benchmarks[benchmark]["alone"] else stage

    def episode_cpus(self, benchmark: str) -> int:
        """CPUs of an episode's own job, in which its solver works."""
        return self.cpus(benchmark) if self.benchmarks[benchmark]["alone"] else 1

    def episode_memory_mb(self, benchmark: str, attempt: int = 1) -> int:
        """MiB of an episode's own job. A further attempt asks for twice as much, up to the evaluators' allocation.

        That allocation's own memory stays as it is: all grades of a study have the same.
        """
        most = self.memory_mb(benchmark)
        return most if self.benchmarks[benchmark]["alone"] else min(most, 1024 << (attempt - 1))

    def solve_minutes(self, condition: str) -> int:
        """Minutes that a condition's solver may take, with what its command is given."""
        solver = self.frozen["conditions"][condition]
        return 5 + (int(solver.get("timeout_s", DEFAULT_TIMEOUT_S) // 60) if solver["solver"] == "command" else 0)

    def minutes(self, benchmark: str) -> int:
        """Minutes that one calibration or one grade may take."""
        return self.benchmarks[benchmark]["minutes"]

    def options(self, benchmark: str) -> str:
        """The adapter's global options that say what the terms say, for a command line that can be read alone."""
        terms = self.benchmarks[benchmark]["terms"]
        allocation = terms["allocation"]
        if terms["resource_mode"] == "none":
            return "--resource-mode none"
        return f"--resource-mode {terms['resource_mode']} --cpus {allocation['cpus']} --memory {allocation['memory']}"

    def attempt(self, number: int) -> str:
        """For ``--attempt``: which attempt this is, of how many that the profile makes."""
        return f"{number}/{self.attempts}"

    def staged_path(self, dataset: str) -> str:
        return staged_path(self.frozen["datasets"][dataset])


def solver_of(condition: dict) -> str:
    """The solver that made a condition's work, here or where it was frozen."""
    return condition["of"] if condition["solver"] == FROZEN else condition["solver"]


def staged_path(declaration: dict) -> str:
    """Where a dataset is staged: by content, so that studies share it and never disagree about it."""
    return str(RESULTS / "staged" / declaration["sha256"] / declaration["filename"])


def receipt_path(staged) -> Path:
    """Where the receipt of a staged file lies."""
    return Path(f"{staged}.json")


def beside(root: Path, path: str) -> Path:
    """A path of a study's terms, for the study in the folder ``root``: what is staged lies beside that folder."""
    parts = Path(path).parts
    return root.parent.joinpath(*parts[1:]) if parts[0] == RESULTS.name else repository(path)


def repository(path: str) -> Path:
    """A path of a config: absolute as it is, else from the root of the project."""
    return ROOT / path
