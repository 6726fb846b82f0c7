#!/usr/bin/env python
"""Adapter of the command benchmark: calibrate, admit, prepare, solve, snapshot, grade, and the one-shot bench."""

from assize import cli, commandline
from assize.benchmarks.command import BENCHMARK
from assize.benchmarks.command.bench import run_bench

__all__ = ["run_bench"]

if __name__ == "__main__":
    cli.run(commandline.main(BENCHMARK))
