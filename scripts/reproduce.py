#!/usr/bin/env python
"""Bundle a finished study for others (bundle), or grade a bundle's frozen work again and compare (rerun)."""

import subprocess
import sys
from pathlib import Path

from assize import bundle, cli, rerun
from assize.errors import GateClosed
from assize.profile import read_profile
from assize.records import sha256_file, write_record


def main(argv) -> dict:
    parser = cli.Parser(prog="reproduce.py", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, parser_class=cli.Parser)
    verb = verbs.add_parser("bundle", help="write a study's records, snapshots and evidence to one archive")
    verb.add_argument("study", help="results/<study>")
    verb.add_argument("--output", help="default: results/<study>.bundle.tar.gz")
    verb.set_defaults(call=make_bundle)
    verb = verbs.add_parser(
        "rerun", help="stage, calibrate and grade the same snapshots; exit 4 unless all are identical"
    )
    verb.add_argument("bundle")
    verb.add_argument("--profile", default="profiles/local", help="Snakemake's profile: where it runs")
    verb.add_argument("--seal", help="the seal that was published with the study's numbers")
    verb.add_argument(
        "--trust", action="store_true", help="grade although the study asks for more than data by hash and a sandbox"
    )
    verb.add_argument(
        "--other-terms", action="store_true", help="grade although this checkout's terms are not the same"
    )
    verb.set_defaults(call=grade_again)
    arguments = parser.parse_args(argv)
    return arguments.call(arguments)


def make_bundle(arguments) -> dict:
    root = Path(arguments.study)
    output = Path(arguments.output or f"{root}.bundle.tar.gz")
    manifest = bundle.write_bundle(root, output)
    return {"ok": True, "output": str(output), "sha256": sha256_file(output), "bundle": manifest}


def grade_again(arguments) -> dict:
    mode = read_profile(arguments.profile).resource_mode
    bundle = Path(arguments.bundle)
    laid_out = rerun.lay_out(bundle, mode, arguments.trust, arguments.other_terms, arguments.seal)
    compared = "as was published" if arguments.seal else "compare it with what was published, or say --seal"
    notes = [f"seal of the bundle's study: {laid_out.manifest['seal']}: {compared}", *rerun.sources(laid_out.study)]
    cli.log("\n".join(notes))
    # stdout is for the result; a grade that could not be made is told by the comparison.
    snakemake = Path(sys.executable).with_name("snakemake")
    command = [snakemake, "--profile", arguments.profile, "--configfile", laid_out.config]
    subprocess.run(command, stdout=sys.stderr)
    record = rerun.compare(laid_out)
    path = laid_out.study.root / rerun.COMPARISON
    write_record(path, record)
    cli.log(told(record))
    if record["identical"] != record["planned"]:
        message = f"{record['planned'] - record['identical']} of {record['planned']} grades are not identical"
        raise GateClosed("not_identical", message, f"{path} has both grades of each", {"comparison": record})
    return {"ok": True, "comparison": record}


def told(record: dict) -> str:
    """The comparison in words."""
    lines = [f"{record['study']}: {record['identical']} of {record['planned']} grades are identical"]
    for name, found in record["terms"].items():
        lines += [f"  other terms: {name}: {_unlike(line)}" for line in found]
    lines += [f"  another project: {_unlike(line)}" for line in record["pins"]]
    for item in record["changed"]:
        lines.append(f"  changed: {item['episode']}: {'; '.join(map(_unlike, item['differences']))}")
    lines += [f"  not comparable: {item['episode']}: {item['why']}" for item in record["not_comparable"]]
    return "\n".join(lines)


def _unlike(line: dict) -> str:
    return f"{line['what']} {line['bundle']!r} -> {line['here']!r}"


if __name__ == "__main__":
    cli.run(main)
