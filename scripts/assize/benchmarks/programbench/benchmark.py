"""The ProgramBench benchmark: what the court's verbs mean for an official instance.

Nothing is imported at the top that a study without ProgramBench would have to install.
"""

from pathlib import Path

from assize.benchmarks import Benchmark, Plan
from assize.benchmarks.programbench.calibration import DEFAULT_REPETITIONS, MINIMUM
from assize.errors import UsageError
from assize.records import digest, sha256_file
from assize.study import RESULTS, memory_mb, repository, solver_of

# Beside compile.sh and the tests: containers, copies, the install of the wheelhouse.
MARGIN_MINUTES = 30
WHEELHOUSE = "runtime/evaluator-wheelhouse"


class ProgramBench(Benchmark):
    name = "programbench"
    protocol_version = "2"
    # Inference starts only when all references have passed.
    admission = "all"

    def plan(self, section: dict, datasets: dict) -> Plan:
        from assize.benchmarks.programbench import official
        from assize.benchmarks.programbench.court import SECONDS
        from assize.benchmarks.programbench.manifest import read_manifest

        path = section["manifest"]
        try:
            manifest = read_manifest(repository(path))
        except UsageError as error:
            raise UsageError("bad_config", f"manifest: {error.message}") from None
        instances = section.get("instances", list(manifest["tasks"]))
        unknown = sorted(set(instances) - set(manifest["tasks"]))
        if unknown:
            allowed = ", ".join(manifest["tasks"])
            raise UsageError("bad_config", f"instances: no task {', '.join(unknown)} in {path}; allowed: {allowed}")
        calibration = section.get("calibration", {})
        fetched = [] if section.get("blobs") else [f"runtime/fetched/{self.name}.json"]
        engine = {"engine": section["engine"]} if "engine" in section else {}
        seconds = SECONDS | section.get("seconds", {})
        branches = max(len(manifest["tasks"][name]["branches"]) for name in instances)
        return Plan(
            terms={
                "package": {"revision": official.REVISION, "root": section.get("programbench_root")},
                "manifest": {"path": path, "sha256": sha256_file(repository(path))},
                "tasks": section.get("tasks"),
                "blobs": section.get("blobs"),
                "sandbox": {"lane": "container", "network": "none"} | engine,
                "seconds": seconds,
                "minimum": calibration.get("minimum", MINIMUM),
            },
            instances=instances,
            repetitions=calibration.get("repetitions", DEFAULT_REPETITIONS),
            minutes=section.get("minutes", longest_minutes(seconds, branches)),
            files=[path],
            runtime=[f"{WHEELHOUSE}/wheelhouse.json"],
            ready=[f"runtime/images/{self.name}.json", *fetched],
            alone=True,
        )

    def work_digests(self, condition: dict, instances: list[str]) -> dict[str, str]:
        from assize.benchmarks.programbench.replay import digest_of, open_submissions

        if condition.get("network"):
            raise UsageError("bad_config", "network: a solver of ProgramBench has none")
        solver = {key: value for key, value in condition.items() if key not in ("benchmarks", "submissions")}
        if condition["solver"] != "replay":
            return {instance: digest(solver) for instance in instances}
        submissions = open_submissions(condition["submissions"][self.name])
        return {instance: digest([solver, digest_of(submissions, instance)]) for instance in instances}

    def calibrate(self, context, instance: str, repetition: int) -> dict:
        from assize.adapter import remove_tree
        from assize.benchmarks.programbench import calibration
        from assize.benchmarks.programbench.court import evaluate

        court = open_court(context)
        evidence = context.study.root / "calibration" / self.name / instance / str(repetition)
        remove_tree(evidence)
        body = evaluate(court, court.task(instance), None, set(), evidence)
        return calibration.record(body, context.terms["minimum"])

    def prepare(self, context, episode, workspace: Path) -> dict:
        from assize.benchmarks.programbench import episodes

        return episodes.prepare(context, open_court(context), episode, workspace)

    def solve(self, context, episode, workspace: Path) -> dict:
        from assize.benchmarks.programbench import episodes

        return episodes.solve(context, episode, workspace)

    def snapshot(self, context, episode, workspace: Path) -> tuple[dict, bytes | None]:
        from assize.benchmarks.programbench import episodes

        return episodes.snapshot(context, episode, workspace)

    def grade(self, context, episode, archive: bytes, evidence: Path) -> dict:
        from assize.benchmarks.programbench.calibration import require
        from assize.benchmarks.programbench.court import evaluate
        from assize.records import read_record

        court = open_court(context)
        task = court.task(episode.instance)
        folder = context.study.root / "calibration" / self.name / episode.instance
        repetitions = context.study.benchmarks[self.name]["repetitions"]
        records = [read_record(folder / f"{number}.json", "calibration") for number in range(1, repetitions + 1)]
        identity = court.identity(task)
        clean = require([record["detail"] for record in records], identity)
        return evaluate(court, task, judged_archive(context.study, episode), clean, evidence)

    def facts(self, context, episode) -> dict:
        from assize.benchmarks.programbench.court import nothing_passed

        court = open_court(context)
        task = court.task(episode.instance)
        return {"detail": nothing_passed(task), **court.facts(task)}

    def images(self, section: dict) -> list[str]:
        from assize.benchmarks.programbench.manifest import read_manifest

        tasks = read_manifest(repository(section["terms"]["manifest"]["path"]))["tasks"]
        return sorted({tasks[name]["image"] for name in section["instances"]})

    def doctor_checks(self, study, engine: str | None) -> list:
        from assize.benchmarks.programbench.checks import check

        return check(study, study.benchmarks[self.name], engine)

    def summary(self, grades: dict) -> dict:
        from assize.benchmarks.programbench.scores import summary

        return summary(grades)

    def host_folders(self, section: dict) -> dict[str, str]:
        return {key: section[key] for key in ("programbench_root", "tasks", "blobs") if key in section}

    def add_options(self, parser) -> None:
        from assize.benchmarks.programbench.verbs import add_options

        add_options(parser)

    def add_verbs(self, verbs) -> None:
        from assize.benchmarks.programbench.verbs import add_study_verbs

        add_study_verbs(verbs, self)


def judged_archive(study, episode) -> Path | None:
    """What is judged of an episode: its snapshot, or None for the reference, which is the cleanroom's own executable.

    The study's conditions say which that is, also where the work was frozen elsewhere: no record of the work may.
    """
    reference = solver_of(study.frozen["conditions"][episode.condition]) == "reference"
    return None if reference else study.episode_folder(episode) / "submission.tar.gz"


def longest_minutes(seconds: dict[str, int], branches: int) -> int:
    """Minutes of a grade of which everything runs to its limit: what ends for its time is run once more. Pure."""
    limits = 2 * seconds["compile"] + branches * 2 * seconds["run_tests"]
    return -(-limits // 60) + MARGIN_MINUTES


def blobs_of(context) -> Path:
    """The folder of the study's test blobs: its own, or the dataset's at its pin, which studies share."""
    from assize.benchmarks.programbench.official import BLOB_REVISION

    own = context.terms["blobs"]
    return repository(own) if own else RESULTS / "staged" / f"programbench-tests-{BLOB_REVISION}"


def open_court(context):
    """The court of a study: package, engine, manifest and wheelhouse, each verified."""
    import os

    from assize.benchmarks.programbench.court import Court
    from assize.benchmarks.programbench.engine import find_engine
    from assize.benchmarks.programbench.manifest import read_manifest
    from assize.benchmarks.programbench.official import find_official
    from assize.benchmarks.programbench.wheelhouse import verify

    terms, options = context.terms, context.options
    given = getattr(options, "evaluator_wheelhouse", None) or os.environ.get("PROGRAMBENCH_EVALUATOR_WHEELHOUSE")
    official = find_official(getattr(options, "programbench_root", None) or terms["package"]["root"])
    path = repository(terms["manifest"]["path"])
    if sha256_file(path) != terms["manifest"]["sha256"]:
        raise UsageError("other_terms", f"{path}: not the manifest of the study's terms", "rerun the workflow")
    return Court(
        official=official,
        engine=find_engine(context.engine or terms["sandbox"].get("engine")),
        manifest=read_manifest(path),
        tasks=repository(terms["tasks"]) if terms["tasks"] else official.tasks,
        blobs=blobs_of(context).absolute(),
        study=context.study.name,
        resource_mode=terms["resource_mode"],
        cpus=terms["allocation"]["cpus"],
        memory_mb=memory_mb(terms["allocation"]["memory"]),
        wheelhouse=verify(Path(given) if given else context.study.root / WHEELHOUSE),
        seconds=terms["seconds"],
    )
