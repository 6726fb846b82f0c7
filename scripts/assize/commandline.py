"""The command line that every adapter has: global arguments, then a verb of the court's procedure."""

import argparse
import re

from assize import adapter
from assize.benchmarks import Benchmark
from assize.cli import Parser, amount_of_memory
from assize.engines import ENGINES
from assize.errors import UsageError
from assize.study import RESOURCE_MODES, Episode, Study


def _attempt(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match:
        raise UsageError("bad_usage", f"--attempt: {text!r} is not N/M", "for example: --attempt 2/3")
    return int(match[1]), int(match[2])


def parser(benchmark: Benchmark) -> Parser:
    """The command line that every adapter has: global arguments, then a verb."""
    top = Parser(prog=f"{benchmark.name}_adapter.py", description=f"The {benchmark.name} benchmark's adapter.")
    top.add_argument("--resource-mode", choices=RESOURCE_MODES, help="must be the study's")
    top.add_argument("--cpus", type=int, help="of the evaluator's allocation; must be the study's")
    top.add_argument(
        "--memory", type=amount_of_memory, help="of the evaluator's allocation, for example 30g; must be the study's"
    )
    top.add_argument("--engine", choices=ENGINES, help="of the container lane")
    benchmark.add_options(top)
    verbs = top.add_subparsers(dest="verb", required=True, parser_class=Parser)
    again = argparse.ArgumentParser(add_help=False)
    again.add_argument("--attempt", help="N/M: after attempt M, an infrastructure failure is recorded as void")
    for name, help_ in (
        ("prepare", "lay out a fresh workspace for one episode"),
        ("solve", "let the solver of the episode's condition work in it"),
        ("snapshot", "end the candidate, then freeze its work"),
        ("grade", "judge one snapshot in a fresh evaluator"),
    ):
        verb = verbs.add_parser(name, help=help_, parents=[again])
        verb.add_argument("--study", required=True, help="results/<study>/study.json")
        verb.add_argument("--episode", required=True, help="condition/instance/repeat")
    verb = verbs.add_parser("calibrate", help="grade the reference and the canaries of one instance", parents=[again])
    verb.add_argument("--study", required=True)
    verb.add_argument("--instance", required=True)
    verb.add_argument("--repetition", type=int, default=1)
    verb = verbs.add_parser("admit", help="decide from its calibrations whether an instance is admitted")
    verb.add_argument("--study", required=True)
    verb.add_argument("--instance", required=True)
    benchmark.add_verbs(verbs)
    return top


def main(benchmark: Benchmark):
    """The ``main(argv)`` of a benchmark's adapter, for ``assize.cli.run``."""

    def run(argv) -> dict:
        arguments = parser(benchmark).parse_args(argv)
        if hasattr(arguments, "call"):
            return arguments.call(arguments)
        study = Study.read(arguments.study)
        if benchmark.name not in study.benchmarks:
            raise UsageError("bad_usage", f"{arguments.study}: the study has no benchmark {benchmark.name}")
        attempt, attempts = _attempt(arguments.attempt) if getattr(arguments, "attempt", None) else (1, None)
        context = adapter.Context(benchmark, study, arguments.engine, attempt, attempts, arguments)
        _agree(context.terms, arguments)
        if arguments.verb == "admit":
            return {"ok": True, "record": adapter.admit(context, arguments.instance)}
        if arguments.verb == "calibrate":
            folder = study.root / "calibration" / benchmark.name / arguments.instance
            output = folder / f"{arguments.repetition}.json"
            return {"ok": True, "record": adapter.calibrate(context, arguments.instance, arguments.repetition, output)}
        episode = Episode.parse(f"{benchmark.name}/{arguments.episode}")
        if episode not in study.episodes():
            raise UsageError("unknown_episode", f"{arguments.study}: {episode} is not planned")
        return {"ok": True, "record": getattr(adapter, arguments.verb)(context, episode)}

    return run


def _agree(terms: dict, arguments) -> None:
    """What the command line says of resources must be what the terms say, which every record carries."""
    given = {
        "--resource-mode": (arguments.resource_mode, terms["resource_mode"]),
        "--cpus": (arguments.cpus, terms["allocation"]["cpus"]),
        "--memory": (arguments.memory, terms["allocation"]["memory"]),
    }
    for option, (said, meant) in given.items():
        if said is not None and said != meant:
            raise UsageError("other_terms", f"{option} {said}: the study's terms say {meant}")
