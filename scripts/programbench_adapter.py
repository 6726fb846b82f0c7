#!/usr/bin/env python
"""Adapter of the ProgramBench benchmark: calibrate, probe, prepare, snapshot, grade, images, manifest, sweep.

With ``--study`` the workflow's form (calibrate, admit, prepare, solve, snapshot, grade, images, fetch).
"""

from assize import cli, commandline
from assize.benchmarks.programbench import BENCHMARK, byhand


def main(argv) -> dict:
    in_workflow = any(argument.split("=")[0] == "--study" for argument in argv)
    return commandline.main(BENCHMARK)(argv) if in_workflow else byhand.main(argv)


if __name__ == "__main__":
    cli.run(main)
