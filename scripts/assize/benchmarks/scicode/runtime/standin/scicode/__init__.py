"""Stand-in for the official ``scicode`` package: the names that SciCode's tests and harness import, written anew."""
