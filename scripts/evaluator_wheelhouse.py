#!/usr/bin/env python
"""Build the evaluator's wheelhouse of a study from pinned PyPI releases, or check one again.

    evaluator_wheelhouse.py --root STUDY_ROOT           build STUDY_ROOT/runtime/evaluator-wheelhouse if it is missing
    evaluator_wheelhouse.py --root STUDY_ROOT verify    check every byte of it; nothing is written

Prints one JSON object. Exit status: 0 done, 2 bad usage, 3 a wheel is missing or wrong, or the package index is out of
reach. Environment: PIP_INDEX_URL and the rest of pip's settings.
"""

import argparse
from pathlib import Path

from assize import cli
from assize.benchmarks.programbench import wheelhouse


def main(argv) -> dict:
    parser = cli.Parser(
        prog="evaluator_wheelhouse.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", required=True, type=Path, help="the study's folder, results/<study>")
    parser.add_argument("verb", nargs="?", choices=("build", "verify"), default="build")
    arguments = parser.parse_args(argv)
    if arguments.verb == "build":
        wheelhouse.build(arguments.root)
    found = wheelhouse.verify(arguments.root / wheelhouse.PLACE)
    return {"ok": True, "path": str(found.path), "fingerprint": found.fingerprint, "wheels": len(found.lock["wheels"])}


if __name__ == "__main__":
    cli.run(main)
