"""How fast the dev references are graded, against one process a step in turn, as the official script does it."""

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from assize.benchmarks.scicode.court import run_programs
from assize.benchmarks.scicode.verbs import reference_programs


def compare(lane, runtime, problems: list, cores: int | None = None) -> dict:
    """Grade every step both ways, with the same code, targets and cores.

    Returns
    -------
    Walls in seconds, ``ratio`` = sequential / parallel, ``bound_s`` = max(longest step, step CPU / cores) and
    ``over_bound`` = parallel wall / bound; ``verdicts_agree``.
    """
    cores = cores or len(os.sched_getaffinity(0))
    programs = {problem.id: reference_programs(problem) for problem in problems}
    with tempfile.TemporaryDirectory(prefix="assize-bench-") as folder:
        targets = {}
        for problem in problems:
            path = Path(folder, f"{problem.id}.h5")
            run_programs(lane, runtime, problem, programs[problem.id], {}, workers=cores, derive_to=path)
            targets[problem.id] = path.read_bytes()
    started = time.monotonic()
    sequential = {}
    for problem in problems:
        for number, program in programs[problem.id].items():
            one = run_programs(lane, runtime, problem, {number: program}, {}, targets=targets[problem.id])
            sequential |= one
    sequential_s = time.monotonic() - started
    seconds = {number: result["seconds"] for number, result in sequential.items()}

    started = time.monotonic()
    parallel = grade_all(lane, runtime, problems, programs, targets, cores, seconds)
    parallel_s = time.monotonic() - started
    bound_s = max(max(seconds.values()), sum(seconds.values()) / cores)
    return {
        "cores": cores,
        "steps_graded": len(parallel),
        "passed": sum(result["passed"] for result in parallel.values()),
        "verdicts_agree": all(parallel[n]["passed"] == result["passed"] for n, result in sequential.items()),
        "sequential_s": round(sequential_s, 2),
        "parallel_s": round(parallel_s, 2),
        "ratio": round(sequential_s / parallel_s, 2),
        "bound_s": round(bound_s, 2),
        "over_bound": round(parallel_s / bound_s, 2),
        "steps": seconds,
    }


def grade_all(lane, runtime, problems: list, programs: dict, targets: dict, cores: int, seconds: dict) -> dict:
    """Grade many problems at once: as many evaluators as cores, the problem with the longest step first."""

    def one(problem):
        return run_programs(
            lane, runtime, problem, programs[problem.id], {}, targets=targets[problem.id], expected_s=seconds
        )

    order = sorted(problems, key=lambda problem: -sum(seconds[number] for number in programs[problem.id]))
    results = {}
    with ThreadPoolExecutor(cores) as pool:
        for found in pool.map(one, order):
            results |= found
    return results
