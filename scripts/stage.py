#!/usr/bin/env python3
"""Stage a dataset of a study, or push a file to another host.

    stage.py get --study STUDY.json --dataset NAME --output PATH
    stage.py get --declaration DATASET.json --dataset NAME --output PATH
    stage.py push FILE HOST:PATH

Prints one JSON object on stdout; progress goes to stderr. Exit status: 0 done, 2 bad usage or input, 3 no source has
the declared bytes or the machinery failed, 143 ended by SIGTERM. Environment: PIP_INDEX_URL, HF_ENDPOINT, ASSIZE_SSH
(ssh with its options).
"""

import argparse
from pathlib import Path

from assize import cli
from assize.errors import UsageError
from assize.records import read_record
from assize.study import Study


def main(argv) -> dict:
    parser = cli.Parser(prog="stage.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, metavar="{get,push}", parser_class=cli.Parser)
    getting = verbs.add_parser("get", help="stage a declared dataset here", allow_abbrev=False)
    declared = getting.add_mutually_exclusive_group(required=True)
    declared.add_argument("--study", type=Path, metavar="STUDY.json", help="a study with the dataset in its `datasets`")
    declared.add_argument(
        "--declaration", type=Path, metavar="DATASET.json", help="the declaration of the dataset alone"
    )
    getting.add_argument("--dataset", required=True, metavar="NAME", help="the name of the dataset")
    getting.add_argument("--output", required=True, type=Path, metavar="PATH", help="the file that it shall become")
    getting.set_defaults(run=run_get)
    pushing = verbs.add_parser("push", help="make a file on another host the same as one here", allow_abbrev=False)
    pushing.add_argument("file", type=Path, metavar="FILE")
    pushing.add_argument("target", metavar="HOST:PATH")
    pushing.set_defaults(run=run_push)
    arguments = parser.parse_args(argv)
    return {"ok": True, **arguments.run(arguments)}


def run_get(arguments) -> dict:
    """The receipt of the dataset, once it is in its place."""
    from assize.staging import stage

    if arguments.study:
        declaration = declared_in(arguments.study, arguments.dataset)
    else:
        declaration = read_record(arguments.declaration, "dataset")
    receipt = stage(declaration, arguments.dataset, arguments.output)
    return {"path": str(arguments.output), **receipt}


def run_push(arguments) -> dict:
    """What had to be sent."""
    from assize.staging.push import push

    return push(arguments.file, arguments.target)


def declared_in(study: Path, name: str) -> dict:
    """The declaration of the dataset ``name`` in a study. Raises UsageError when the study has none."""
    datasets = Study.read(study).frozen["datasets"]
    if name not in datasets:
        known = ", ".join(sorted(datasets)) or "none"
        raise UsageError("unknown_dataset", f"{study}: no dataset {name!r}; declared: {known}")
    return datasets[name]


if __name__ == "__main__":
    cli.run(main)
