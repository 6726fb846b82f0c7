#!/usr/bin/env python3
"""Stage a dataset of a study, or push a file to another host.

    stage.py get --study STUDY.json --dataset NAME --output PATH
    stage.py get --declaration DATASET.json --dataset NAME --output PATH
    stage.py push FILE HOST:PATH

Prints one JSON object on stdout; progress goes to stderr. Exit status: 0 done, 2 bad usage or input, 3 no source has
the declared bytes or the machinery failed. Environment: PIP_INDEX_URL, HF_ENDPOINT, ASSIZE_SSH (ssh with its options).
"""

import argparse
import json
import sys
import traceback
from pathlib import Path

from assize import records
from assize.errors import AssizeError, InfrastructureError, UsageError


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaint is a UsageError, and so ends as the one JSON object."""

    def error(self, message: str):
        raise UsageError("bad_usage", f"{self.prog}: {message}", self.format_usage().strip())


def parser() -> Parser:
    """The command line of this script."""
    commands = Parser(prog="stage.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = commands.add_subparsers(required=True, metavar="{get,push}")
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
    return commands


def run_get(arguments) -> dict:
    """The receipt of the dataset, once it is in its place."""
    from assize.staging import stage

    if arguments.study:
        declaration = declared_in(arguments.study, arguments.dataset)
    else:
        declaration = read_json(arguments.declaration)
    receipt = stage(declaration, arguments.dataset, arguments.output)
    return {"path": str(arguments.output), **receipt}


def run_push(arguments) -> dict:
    """What had to be sent."""
    from assize.staging.push import push

    return push(arguments.file, arguments.target)


def read_json(path: Path):
    """The JSON value in a file. Raises UsageError when it cannot be read as one."""
    try:
        return records.strict_json(path.read_text())
    except OSError as error:
        raise UsageError("bad_input", f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError("bad_input", f"{path}: not JSON: {error}") from None


def declared_in(study: Path, name: str):
    """The declaration of the dataset ``name`` in a study. Raises UsageError when the study has none."""
    value = read_json(study)
    datasets = value.get("datasets", {}) if isinstance(value, dict) else None
    if not isinstance(datasets, dict):
        raise UsageError("bad_input", f"{study}: not a study with datasets")
    if name not in datasets:
        known = ", ".join(sorted(datasets)) or "none"
        raise UsageError("unknown_dataset", f"{study}: no dataset {name!r}; declared: {known}")
    return datasets[name]


def main(argv: list[str] | None = None) -> int:
    """Run the command; the exit status."""
    try:
        arguments = parser().parse_args(argv)
        result, status = {"ok": True, **arguments.run(arguments)}, 0
    except AssizeError as error:
        result, status = error.as_json(), error.exit_status
    except Exception as error:  # a fault of ours: still the one JSON object that callers rely on
        traceback.print_exc()
        unforeseen = InfrastructureError("internal_error", f"{type(error).__name__}: {error}", "See stderr.")
        result, status = unforeseen.as_json(), unforeseen.exit_status
    print(json.dumps(result, sort_keys=True))
    return status


if __name__ == "__main__":
    sys.exit(main())
