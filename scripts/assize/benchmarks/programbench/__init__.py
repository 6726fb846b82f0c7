"""The ProgramBench benchmark: programs rebuilt from an executable and its docs, judged by the official package."""

from assize.benchmarks.programbench.benchmark import ProgramBench

BENCHMARK = ProgramBench()
