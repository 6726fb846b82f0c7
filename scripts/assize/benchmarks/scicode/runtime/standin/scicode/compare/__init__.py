"""Comparisons that SciCode's test cases call."""
