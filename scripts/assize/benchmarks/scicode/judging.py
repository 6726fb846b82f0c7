"""Judging a problem: calibrate its reference and canaries, grade one snapshot of it."""

from pathlib import Path

from assize.adapter import failed, remove_tree, scratch
from assize.archive import Rejected, unpack
from assize.benchmarks.scicode import calibration, canaries, grading
from assize.benchmarks.scicode.composition import Options, compose, declared_names
from assize.benchmarks.scicode.court import core_slots, cut_targets, find_runtime, run_programs, survey
from assize.benchmarks.scicode.extraction import EXTRACTIONS
from assize.benchmarks.scicode.problems import OFFICIAL_TARGETS, Problem
from assize.cli import log
from assize.errors import InfrastructureError
from assize.records import read_record, sha256_file, write_atomic
from assize.sandbox import open_lane

# Names that the official code itself loses under ``special: official`` (13.8-13.14, 62.x): no fault of this harness.
LOST_OFFICIALLY = ("Maxwell", "Block", "EnlargedBlock")


class ProblemCourt:
    """A problem with all that is needed to run its programs: runtime, lane, targets, options."""

    def __init__(self, context, problem: Problem):
        from assize.benchmarks.scicode.benchmark import given_steps

        self.context, self.problem, self.terms = context, problem, context.terms
        self.runtime = find_runtime(self.terms["runtime"]["venv"], self.terms["runtime"]["lock"])
        self.lane = context.lane(read_only_paths=[self.runtime.mount])
        self.given = given_steps(context)

    def variants(self, responses: dict[str, str]) -> dict[str, dict]:
        """Step -> extraction -> program, the primary extraction first."""
        primary = self.terms["extraction"]
        order = [primary, *(name for name in EXTRACTIONS if name != primary)]
        return {
            step.number: {name: self._compose(step, responses, name) for name in order}
            for step in self.problem.scored_steps
        }

    def _compose(self, step, responses: dict, extraction: str):
        options = Options(extraction, self.terms["context"], self.terms["special"])
        return compose(step, self.problem, responses, self.given, options)

    def run(self, programs: dict, targets: bytes | None, problem: Problem | None = None, lane=None, **options) -> dict:
        if not programs:
            return {}
        with core_slots(len(programs), self.terms["allocation"]["cpus"]) as workers:
            return run_programs(
                lane or self.lane,
                self.runtime,
                problem or self.problem,
                programs,
                self.terms["limits"],
                targets=targets,
                workers=workers,
                expected_s=self.expected_s(),
                **options,
            )

    def judge(self, responses: dict[str, str], targets: bytes | None) -> tuple[list[dict], dict]:
        """(checks of a grade, results by program) for the responses of the problem."""
        variants = self.variants(responses)
        results = self.run(grading.programs_to_run(variants), targets)
        declared = declared_names(self.problem)
        if self.terms["special"] == "official":
            declared -= set(LOST_OFFICIALLY)
        return [grading.check(number, each, results, declared) for number, each in variants.items()], results

    def told(self, results: dict) -> dict:
        """What a record says of the packages that judged; official only where the official ``scicode`` package did."""
        runtime = next((result["runtime"] for result in results.values()), {})
        return {
            "official_runtime": runtime.get("scicode") == "official",
            "runtime_lock": self.runtime.lock,
            "runtime": runtime,
        }

    def expected_s(self) -> dict[str, float]:
        """Seconds of each step: of its calibration where there is one, else later steps are taken for longer."""
        guess = {step.number: index * 1e-3 for index, step in enumerate(self.problem.steps)}
        record = self._calibration_folder() / "1.json"
        if record.exists():
            guess |= read_record(record, "calibration")["detail"].get("seconds", {})
        return guess

    def _calibration_folder(self) -> Path:
        return self.context.study.root / "calibration" / "scicode" / self.problem.id

    def derived_path(self, repetition: int = 1) -> Path:
        return self._calibration_folder() / f"targets-{repetition}.h5"

    def targets(self) -> tuple[bytes | None, dict]:
        """(targets of this problem's steps, what a record says of them)."""
        wanted = self.terms["targets"]
        if wanted == "none":
            return None, {"targets": None, "official_targets": False}
        if wanted == "derived":
            path = self.derived_path()
            if not path.exists():
                hint = f"delete {path.parent}/1.json and rerun the workflow"
                raise InfrastructureError("no_targets", f"{path}: the derived targets are gone", hint)
            return path.read_bytes(), {"targets": sha256_file(path), "official_targets": False}
        numbers = [step.number for step in self.problem.scored_steps]
        return cut_targets(self.runtime, wanted["path"], numbers), {
            "targets": wanted["sha256"],
            "official_targets": wanted["sha256"] == OFFICIAL_TARGETS,
        }

    def survey(self, path) -> dict:
        """What of this problem's targets an h5 file lacks."""
        return survey(self.runtime, path, {step.number: len(step.cases) for step in self.problem.scored_steps})


def calibrate(context, problem: Problem, repetition: int) -> dict:
    """The body of a calibration record. Canaries do not depend on chance: they run in the first repetition only."""
    from assize.benchmarks.scicode.benchmark import reference_responses

    if context.terms["dry_run"]:
        log(grading.DRY_OUTPUT)
        dry = {"verdict": "pass", "scoring_status": "dry_run"}
        sandbox = {"lane": context.terms["sandbox"]["lane"]}
        return {
            "passed": True,
            "reasons": [],
            "flags": ["dry_run"],
            "reference": dry,
            "canaries": {},
            "sandbox": sandbox,
            "detail": {},
        }
    court = ProblemCourt(context, problem)
    responses = reference_responses(problem)
    missing, detail = [], {}
    if context.terms["targets"] == "derived":
        targets, detail = derive(court, responses, repetition)
        said = {"official_targets": False}
    else:
        targets, said = court.targets()
        if targets is None:
            missing = [step.number for step in problem.scored_steps]
        else:
            found = court.survey(context.terms["targets"]["path"])
            missing = found["missing"] + found["unreadable"]
    checks = None
    if responses and not missing:
        checks, _ = court.judge(responses, targets)
    outcomes = {}
    if repetition == 1:
        own, programs = canaries.clean_canaries()
        outcomes = court.run(programs, None, problem=own)
        outcomes |= court.run(canaries.failing_canaries(problem), targets)
    passed = sum(item["verdict"] == "pass" for item in checks or ())
    return {
        **calibration.findings(checks, outcomes, missing, said["official_targets"]),
        "reference": {"passed": passed, "steps": len(checks) if checks is not None else None, "checks": checks},
        "canaries": {name: calibration.told(result) for name, result in outcomes.items()},
        "sandbox": court.lane.provenance() | court.told(outcomes),
        "detail": {"seconds": {item["id"]: item["seconds"] for item in checks or ()}, **said, **detail},
    }


def derive(court: ProblemCourt, responses: dict[str, str], repetition: int) -> tuple[bytes, dict]:
    """Run the reference and keep what its cases compare with ``target``: (the h5 file's bytes, its digest)."""
    variants = court.variants(responses)
    programs = {number: each["function"] for number, each in variants.items()}
    with scratch() as folder:
        path = Path(folder, "targets.h5")
        # Reference code is the benchmark's own, and a container gives no files back.
        lane = open_lane("bubblewrap", options={"read_only_paths": [court.runtime.mount]})
        results = court.run(programs, None, derive_to=path, lane=lane)
        failures = [f"{name}: {item['signature']}" for name, item in results.items() if not item["passed"]]
        if failures:
            raise InfrastructureError("not_derived", f"targets of problem {court.problem.id}: {'; '.join(failures)}")
        data = path.read_bytes()
    write_atomic(court.derived_path(repetition), data)
    return data, {"derived_targets": sha256_file(court.derived_path(repetition))}


def grade(context, problem: Problem, archive: bytes, evidence: Path) -> dict:
    """Judge the responses in a frozen archive."""
    from assize.benchmarks.scicode.submission import read_responses

    if context.terms["dry_run"]:
        log(grading.DRY_OUTPUT)
        return grading.dry_body(problem)
    with scratch() as folder:
        work = Path(folder, "responses")
        work.mkdir()
        try:
            unpack(archive, work)
        except Rejected as reason:
            return failed("submission_rejected", str(reason)) | facts(context, problem.split)
        responses = read_responses(work)
        remove_tree(work)
    court = ProblemCourt(context, problem)
    targets, said = court.targets()
    checks, results = court.judge(responses, targets)
    for name, result in results.items():
        write_atomic(evidence / f"{name.replace('/', '.')}.log", result["output"].encode())
    return {
        **grading.body(problem, checks),
        "sandbox": court.lane.provenance() | court.told(results),
        "provenance": {
            **said,
            "official_runtime": court.told(results)["official_runtime"],
            **facts(context, problem.split)["provenance"],
        },
    }


def facts(context, split: str) -> dict:
    """What every grade of a split states, whatever became of the work."""
    terms = context.terms
    return {
        "provenance": {
            "problems": terms["problems"][split]["sha256"],
            "extraction": terms["extraction"],
            "context": terms["context"][split],
            "special": terms["special"],
        }
    }
