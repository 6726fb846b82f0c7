"""The SciCode benchmark: what the court's verbs mean for a problem and its steps."""

import os
from functools import cache
from importlib import resources
from pathlib import Path

from assize.benchmarks import Benchmark, Plan
from assize.errors import InfrastructureError, UsageError
from assize.records import digest, sha256_file, strict_json, write_atomic
from assize.study import staged_path

DEFAULT_REPETITIONS = 2
# Of the container lane; see images.py.
IMAGE = "frank-bench-py:3.12-scicode1"


@cache
def manifest() -> dict[str, dict[str, list[int]]]:
    """split -> problem -> number of cases of each step (0: given, not scored). Every denominator comes from here."""
    return strict_json(resources.files(__package__).joinpath("manifest.json").read_text())


def split_of(problem: str) -> str:
    return next(split for split, problems in manifest().items() if problem in problems)


class ScicodeBenchmark(Benchmark):
    name = "scicode"
    protocol_version = "2"
    admission = "each"
    part = "step"

    def plan(self, section: dict, datasets: dict) -> Plan:
        from assize.benchmarks.scicode.court import DEFAULT_STEP_LIMITS, VENV, lock_digest
        from assize.benchmarks.scicode.problems import SHA256

        sandbox = {"lane": "bubblewrap"} | section.get("sandbox", {})
        if sandbox["lane"] == "container":
            sandbox = {"image": IMAGE} | sandbox
        used = []

        def staged(key: str, name: str) -> dict:
            if name not in datasets:
                allowed = ", ".join(datasets) or "none is declared"
                raise UsageError("bad_config", f"{key}: {name!r} is no dataset; allowed: {allowed}")
            used.append(name)
            return {"path": staged_path(datasets[name]), "sha256": datasets[name]["sha256"]}

        problems = {split: staged(f"problems.{split}", name) for split, name in section["problems"].items()}
        for split, found in problems.items():
            if found["sha256"] != SHA256[split]:
                raise UsageError("bad_config", f"problems.{split}: its sha256 is not the published split's")
        if "test" in problems and "given" not in section:
            raise UsageError("bad_config", "given: the test split needs the text of the given steps")
        targets = section["targets"]
        if targets == "derived" and "test" in problems:
            raise UsageError("bad_config", "targets: the test split has no reference to derive them from")
        known = [problem for split in problems for problem in manifest()[split]]
        instances = section.get("instances", known)
        unknown = sorted(set(instances) - set(known))
        if unknown:
            raise UsageError("bad_config", f"instances: no problem {', '.join(unknown)} in {', '.join(problems)}")
        dry = section.get("dry_run", os.environ.get("DRY_RUN", "0") not in ("", "0"))
        # Derived targets come from a run of their own: one repetition has run the reference twice.
        repetitions = 1 if targets == "derived" else DEFAULT_REPETITIONS
        return Plan(
            terms={
                "problems": problems,
                "given": staged("given", section["given"]) if "given" in section else None,
                "targets": targets if isinstance(targets, str) else staged("targets.dataset", targets["dataset"]),
                "extraction": section.get("extraction", "function"),
                "context": {"dev": "reference", "test": "self"} | section.get("context", {}),
                "special": section.get("special", "verbatim"),
                "limits": section.get("limits", {}),
                "sandbox": sandbox,
                "runtime": {"venv": VENV, "lock": lock_digest()},
                "prompts": {
                    variant: staged(f"prompts.{variant}", name) for variant, name in section.get("prompts", {}).items()
                },
                "dry_run": dry,
            },
            instances=instances,
            repetitions=section.get("calibration", {}).get("repetitions", repetitions),
            # One step may take all of its time; the others of its problem run beside it.
            minutes=15 + int(section.get("limits", {}).get("wall_s", DEFAULT_STEP_LIMITS["wall_s"]) // 60),
            datasets=sorted(set(used)),
        )

    def work_digests(self, condition: dict, instances: list[str]) -> dict[str, str]:
        from assize.benchmarks.scicode.submission import MUTATED, find_responses

        solver = {key: value for key, value in condition.items() if key not in ("benchmarks", "submissions")}
        submissions = condition.get("submissions", {}).get(self.name)
        if condition["solver"] != "replay" or submissions == MUTATED:
            return {instance: digest([solver, submissions]) for instance in instances}
        brought = {instance: [] for instance in instances}
        for number, path in find_responses(submissions).items():
            if number.split(".")[0] in brought:
                brought[number.split(".")[0]].append([path.name, sha256_file(path)])
        return {instance: digest([solver, files]) for instance, files in brought.items()}

    def calibrate(self, context, instance: str, repetition: int) -> dict:
        from assize.benchmarks.scicode.judging import calibrate

        return calibrate(context, _problem(context, instance), repetition)

    def prepare(self, context, episode, workspace: Path) -> dict:
        from assize.benchmarks.scicode.prompts import PLAIN, VARIANTS, prompt
        from assize.benchmarks.scicode.submission import RESPONSES

        problem, given = _problem(context, episode.instance), given_steps(context)
        staged = context.terms["prompts"]
        for variant in VARIANTS:
            template = Path(staged[variant]["path"]).read_text(encoding="utf-8") if variant in staged else PLAIN
            for step in problem.scored_steps:
                path = workspace / "prompts" / variant / f"{step.number}.txt"
                write_atomic(path, prompt(problem, step, variant, given, template).encode())
        (workspace / RESPONSES).mkdir()
        return {
            "task": {
                "steps": [step.number for step in problem.scored_steps],
                "prompts": {variant: "official" if variant in staged else "plain" for variant in VARIANTS},
                "responses": f"{RESPONSES}/<step>.py, .txt or .md",
            }
        }

    def solve(self, context, episode, workspace: Path) -> dict:
        from assize.agent import run_agent
        from assize.benchmarks.scicode.prompts import INSTRUCTION
        from assize.benchmarks.scicode.submission import MUTATED, RESPONSES, find_responses

        condition = context.study.frozen["conditions"][episode.condition]
        problem, solver = _problem(context, episode.instance), condition["solver"]
        if solver == "noop":
            return {"status": "done"}
        if solver == "command":
            return run_agent(context.lane(), condition, workspace, {}, problem.id, INSTRUCTION)
        if solver == "reference" or condition["submissions"][self.name] == MUTATED:
            responses = reference_responses(problem, mutate=solver != "reference")
            if not responses:
                return {"status": "missing", "reason": f"the {problem.split} split has no reference"}
            files = {f"{number}.py": code.encode() for number, code in responses.items()}
        else:
            found = find_responses(condition["submissions"][self.name])
            numbers = [step.number for step in problem.scored_steps if step.number in found]
            files = {found[number].name: found[number].read_bytes() for number in numbers}
            if not files:
                return {"status": "missing", "reason": f"no response for any step of problem {problem.id}"}
        for name, content in files.items():
            write_atomic(workspace / RESPONSES / name, content)
        return {"status": "done", "detail": {"files": sorted(files)}}

    def snapshot(self, context, episode, workspace: Path) -> tuple[dict, bytes | None]:
        from assize.archive import Rejected, freeze
        from assize.benchmarks.scicode.submission import RESPONSES

        responses = workspace / RESPONSES
        if responses.is_symlink() or not responses.is_dir():
            return {"status": "rejected", "reason": f"{RESPONSES} is no directory"}, None
        try:
            return {"status": "frozen"}, freeze(responses)
        except Rejected as reason:
            return {"status": "rejected", "reason": str(reason)}, None

    def grade(self, context, episode, archive: bytes, evidence: Path) -> dict:
        from assize.benchmarks.scicode.judging import grade

        return grade(context, _problem(context, episode.instance), archive, evidence)

    def facts(self, context, episode) -> dict:
        from assize.benchmarks.scicode.judging import facts

        return facts(context, split_of(episode.instance))

    def summary(self, grades: dict) -> dict:
        from assize.benchmarks.scicode.scores import summary

        return summary(grades)

    def parts(self, episode, grade: dict | None) -> tuple[float, int]:
        from assize.benchmarks.scicode.scores import steps

        return steps(episode, grade)

    def doctor_checks(self, study, engine: str | None) -> list:
        from assize.benchmarks.scicode.court import find_runtime
        from assize.doctor import missing, ok

        # In every lane: targets are cut and derived outside a container.
        runtime = study.benchmarks[self.name]["terms"]["runtime"]
        try:
            find_runtime(runtime["venv"], runtime["lock"])
        except InfrastructureError as error:
            return [missing("scicode packages", error.message, error.hint)]
        return [ok("scicode packages", f"{runtime['venv']}, of lock {runtime['lock'][:12]}")]

    def add_verbs(self, verbs) -> None:
        from assize.benchmarks.scicode.verbs import add_verbs

        add_verbs(verbs)


def _problem(context, instance: str):
    """The problem of an instance, from the staged split, checked against the manifest."""
    from assize.benchmarks.scicode.problems import read_split

    split = split_of(instance)
    problem = read_split(context.terms["problems"][split]["path"], split)[instance]
    if [len(step.cases) for step in problem.steps] != manifest()[split][instance]:
        raise UsageError("other_split", f"problem {instance}: its steps are not the manifest's")
    return problem


def given_steps(context) -> dict[str, str]:
    from assize.benchmarks.scicode.problems import read_given

    given = context.terms["given"]
    if given is None:
        return {}
    if not Path(given["path"]).exists():
        raise InfrastructureError("not_staged", f"{given['path']}: the given steps are not staged", "run the workflow")
    return read_given(given["path"])


def reference_responses(problem, mutate: bool = False) -> dict[str, str]:
    """Step -> reference code, empty if there is none; with a known third of the split made wrong where asked."""
    from assize.benchmarks.scicode.mutation import is_mutated, mutated

    if any(step.reference is None for step in problem.scored_steps):
        return {}
    responses = {step.number: step.reference for step in problem.scored_steps}
    if mutate:
        order = [
            f"{name}.{index}"
            for name, cases in manifest()[problem.split].items()
            for index, count in enumerate(cases, 1)
            if count
        ]
        for number in responses:
            if is_mutated(order.index(number)):
                responses[number] = mutated(responses[number])
    return responses
