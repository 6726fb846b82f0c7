"""The command benchmark: what the court's verbs mean for a command-graded suite."""

from pathlib import Path

from assize.archive import Rejected, check_file_map, write_file_map
from assize.benchmarks import Benchmark, Plan
from assize.errors import UsageError
from assize.records import digest
from assize.study import repository, staged_path
from assize.submissions import read_submissions

DEFAULT_REPETITIONS = 2


class CommandBenchmark(Benchmark):
    name = "command"
    protocol_version = "1"
    admission = "each"

    def plan(self, section: dict, datasets: dict) -> Plan:
        from assize.benchmarks.command.suite import read_suite

        sandbox = {"lane": "bubblewrap", "limits": {}} | section.get("sandbox", {})
        if sandbox["lane"] == "container" and "image" not in sandbox:
            raise UsageError("bad_config", "sandbox.image: the container lane needs one")
        source = section["suite"]
        if "dataset" in source:
            if source["dataset"] not in datasets:
                allowed = ", ".join(datasets) or "none is declared"
                raise UsageError(
                    "bad_config", f"suite.dataset: {source['dataset']!r} is no dataset; allowed: {allowed}"
                )
            if "instances" not in section:
                # The episode list is fixed before anything is fetched: a staged suite cannot be asked for it.
                raise UsageError("bad_config", "instances: a suite that is staged needs them listed")
            declaration = datasets[source["dataset"]]
            path, sha256 = staged_path(declaration), declaration["sha256"]
            instances, files, staged = section["instances"], [], [source["dataset"]]
            slowest = 0.0
        else:
            path = source["path"]
            try:
                suite = read_suite(repository(path))
            except UsageError as error:
                raise UsageError("bad_config", f"suite.path: {error.message}") from None
            sha256, files, staged = suite.sha256, [path], []
            slowest = max(task.timeout_s or 0.0 for task in suite.tasks.values())
            instances = section.get("instances", list(suite.tasks))
            unknown = sorted(set(instances) - set(suite.tasks))
            if unknown:
                allowed = ", ".join(suite.tasks)
                raise UsageError("bad_config", f"instances: no task {', '.join(unknown)}; allowed: {allowed}")
        # A calibration is the longest: a reference and two canaries, each with a build and a grader.
        minutes = 5 + int(6 * max(slowest, sandbox["limits"].get("wall_s", 60.0)) // 60)
        return Plan(
            terms={"suite": {"path": path, "sha256": sha256}, "sandbox": sandbox},
            instances=instances,
            repetitions=section.get("calibration", {}).get("repetitions", DEFAULT_REPETITIONS),
            minutes=minutes,
            files=files,
            datasets=staged,
        )

    def work_digests(self, condition: dict, instances: list[str]) -> dict[str, str]:
        solver = {key: value for key, value in condition.items() if key not in ("benchmarks", "submissions")}
        if condition["solver"] != "replay":
            return {instance: digest(solver) for instance in instances}
        submissions = read_submissions(condition["submissions"][self.name])
        return {instance: digest([solver, submissions.get(instance)]) for instance in instances}

    def calibrate(self, context, instance: str, repetition: int) -> dict:
        from assize.benchmarks.command.calibration import calibrate

        task = self._task(context, instance)
        return calibrate(context.lane(task.image), task, self._limits(context, task), repetition)

    def prepare(self, context, episode, workspace: Path) -> dict:
        task = self._task(context, episode.instance)
        write_file_map(workspace, task.files)
        return {"task": {"instruction": task.instruction, "files": sorted(task.files), "language": task.language}}

    def solve(self, context, episode, workspace: Path) -> dict:
        from assize.agent import run_agent

        condition = context.study.frozen["conditions"][episode.condition]
        task = self._task(context, episode.instance)
        solver = condition["solver"]
        if solver == "noop":
            return {"status": "done"}
        if solver == "command":
            limits = context.terms["sandbox"]["limits"]
            return run_agent(context.lane(task.image), condition, workspace, limits, task.id, task.instruction)
        if solver == "reference":
            files = task.reference_files
        else:
            files = read_submissions(condition["submissions"][self.name]).get(episode.instance)
        if files is None:
            return {"status": "missing", "reason": f"no submission for task {episode.instance}"}
        try:
            write_file_map(workspace, check_file_map(files))
        except Rejected as reason:
            return {"status": "rejected", "reason": str(reason)}
        return {"status": "done", "detail": {"files": sorted(files)}}

    def snapshot(self, context, episode, workspace: Path) -> tuple[dict, bytes | None]:
        from assize.benchmarks.command.court import build_and_freeze

        task = self._task(context, episode.instance)
        return build_and_freeze(context.lane(task.image), task, workspace, self._limits(context, task))

    def grade(self, context, episode, archive: bytes, evidence: Path) -> dict:
        from assize.benchmarks.command.court import grade_archive

        task = self._task(context, episode.instance)
        limits = self._limits(context, task)
        body = grade_archive(context.lane(task.image), task, archive, limits, evidence)
        return body | self.facts(context, episode)

    def facts(self, context, episode) -> dict:
        limits = self._limits(context, self._task(context, episode.instance))
        return {"provenance": {"suite": context.terms["suite"]["sha256"], "limits": limits.as_json()}}

    def images(self, section: dict) -> list[str]:
        """The study's image, and those that tasks name, unless the suite is still to be staged."""
        from assize.benchmarks.command.suite import read_suite

        suite, images = section["terms"]["suite"], super().images(section)
        if not images or not repository(suite["path"]).exists():
            return images
        tasks = read_suite(repository(suite["path"]), suite["sha256"]).tasks
        return sorted({*images, *(tasks[name].image for name in section["instances"] if tasks[name].image)})

    def add_verbs(self, verbs) -> None:
        from assize.benchmarks.command.bench import add_verb

        add_verb(verbs)

    @staticmethod
    def _task(context, instance: str):
        from assize.benchmarks.command.suite import read_suite

        suite = context.terms["suite"]
        tasks = read_suite(repository(suite["path"]), suite["sha256"]).tasks
        if instance not in tasks:
            raise UsageError("unknown_instance", f"{suite['path']}: no task {instance}; it has {', '.join(tasks)}")
        return tasks[instance]

    @staticmethod
    def _limits(context, task):
        from assize.benchmarks.command.court import phase_limits

        return phase_limits(task, context.terms["sandbox"]["limits"])
