"""Command-graded suites: a held-out grader runs after the candidate has ended, and its exit status is the verdict."""

from assize.benchmarks.command.benchmark import CommandBenchmark

BENCHMARK = CommandBenchmark()
