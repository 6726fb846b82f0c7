"""SciCode: scientific functions, step by step, judged by comparing with stored targets."""

from assize.benchmarks.scicode.benchmark import ScicodeBenchmark

BENCHMARK = ScicodeBenchmark()
