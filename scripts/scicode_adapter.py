#!/usr/bin/env python
"""Adapter of the SciCode benchmark: calibrate, admit, prepare, solve, snapshot, grade, targets, images, bench."""

from assize import cli, commandline
from assize.benchmarks.scicode import BENCHMARK

if __name__ == "__main__":
    cli.run(commandline.main(BENCHMARK))
