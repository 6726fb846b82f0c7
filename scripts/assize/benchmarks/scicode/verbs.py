"""The benchmark's own verbs: ``targets derive``, ``targets check`` and ``bench``. None of them needs a study."""

import json
import tempfile
from pathlib import Path

from assize.benchmarks.scicode import images
from assize.benchmarks.scicode.composition import Options, compose
from assize.benchmarks.scicode.court import (
    VENV,
    call_h5file,
    core_slots,
    find_runtime,
    lock_digest,
    run_programs,
    survey,
)
from assize.benchmarks.scicode.problems import SCORED_STEPS, SPLITS, Problem, read_split
from assize.cli import Parser, log
from assize.errors import InfrastructureError, UsageError
from assize.records import sha256_file, write_atomic
from assize.sandbox import open_lane


def add_verbs(verbs) -> None:
    targets = verbs.add_parser("targets", help="derive or check the file of targets (test_data.h5)")
    kinds = targets.add_subparsers(dest="targets_verb", required=True, parser_class=Parser)
    derive = kinds.add_parser("derive", help="run the dev split's reference code and write what it returns")
    derive.add_argument("--problems", required=True, help="problems_dev.jsonl")
    derive.add_argument("--output", required=True, help="the h5 file to write")
    derive.set_defaults(call=derive_targets)
    check = kinds.add_parser("check", help="is every scored case there, and readable?")
    check.add_argument("file", help="the h5 file")
    for split in SPLITS:
        check.add_argument(f"--{split}", help=f"the {split} split's jsonl file")
    check.set_defaults(call=check_targets)
    images.add_verb(verbs, Parser)
    bench = verbs.add_parser(
        "bench", help="time the dev references: one process a step in turn, and as they are graded"
    )
    bench.add_argument("--problems", required=True, help="problems_dev.jsonl")
    bench.add_argument("--output", required=True, help="the JSON file to write")
    bench.add_argument("--cores", type=int, help="cores to use; default: all")
    bench.set_defaults(call=run_bench)


def _open():
    """(runtime, bubblewrap lane that shows it)."""
    runtime = find_runtime(VENV, lock_digest())
    return runtime, open_lane("bubblewrap", options={"read_only_paths": [runtime.mount]})


def reference_programs(problem: Problem) -> dict:
    responses = {step.number: step.reference for step in problem.steps}
    return {step.number: compose(step, problem, responses, {}, Options()) for step in problem.scored_steps}


def derive_targets(arguments) -> dict:
    """Write the derived targets of the whole dev split. The file says in its attributes that it is derived."""
    runtime, lane = _open()
    with tempfile.TemporaryDirectory(prefix="assize-derive-") as folder:
        parts = []
        for problem in read_split(arguments.problems, "dev").values():
            part = Path(folder, f"{problem.id}.h5")
            programs = reference_programs(problem)
            with core_slots(len(programs), None) as workers:
                results = run_programs(lane, runtime, problem, programs, {}, workers=workers, derive_to=part)
            for name, result in results.items():
                if not result["passed"]:
                    raise InfrastructureError("not_derived", f"targets of step {name}: {result['signature']}")
            log(f"problem {problem.id}: targets of {len(programs)} steps")
            parts.append(str(part))
        whole = Path(folder, "whole.h5")
        call_h5file(runtime, "join", str(whole), *parts)
        write_atomic(arguments.output, whole.read_bytes())
    output = Path(arguments.output)
    return {
        "ok": True,
        "output": str(output),
        "sha256": sha256_file(output),
        "size": output.stat().st_size,
        "derived": True,
    }


def check_targets(arguments) -> dict:
    """Look for every scored case of the splits that were named. Exit status 2 and the list where some are missing."""
    given = {split: getattr(arguments, split) for split in SPLITS if getattr(arguments, split)}
    if not given:
        raise UsageError("bad_usage", "targets check: name at least one of --test and --dev")
    cases = {}
    for split, path in given.items():
        steps = [step for problem in read_split(path, split).values() for step in problem.scored_steps]
        if len(steps) != SCORED_STEPS[split]:
            raise UsageError("other_split", f"{path}: {len(steps)} scored steps, expected {SCORED_STEPS[split]}")
        cases |= {step.number: len(step.cases) for step in steps}
    if not Path(arguments.file).exists():
        raise UsageError("missing_targets", f"{arguments.file}: no such file")
    runtime = find_runtime(VENV, lock_digest())
    found = survey(runtime, arguments.file, cases)
    if found["missing"] or found["unreadable"]:
        faults = [f"{name}: missing" for name in found["missing"]] + found["unreadable"]
        lines = "\n".join(f"  {fault}" for fault in faults)
        raise UsageError("bad_targets", f"{arguments.file}: {len(faults)} fault(s) in {found['cases']} cases:\n{lines}")
    return {"ok": True, "steps": len(cases), "cases": found["cases"], "derived": "derived" in found["attributes"]}


def run_bench(arguments) -> dict:
    from assize.benchmarks.scicode.bench import compare

    runtime, lane = _open()
    problems = list(read_split(arguments.problems, "dev").values())
    result = compare(lane, runtime, problems, arguments.cores)
    write_atomic(arguments.output, json.dumps(result, indent=1, sort_keys=True).encode() + b"\n")
    return {"ok": True, "output": arguments.output, **{k: v for k, v in result.items() if k != "steps"}}
