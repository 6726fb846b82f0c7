"""The ProgramBench benchmark: programs rebuilt from a cleanroom's executable and docs, judged by the official package."""

from assize.benchmarks.programbench.benchmark import ProgramBench

BENCHMARK = ProgramBench()
