#!/usr/bin/env python
"""Audit a finished study: hash every file again, check every record, derive the census again, follow every link."""

from pathlib import Path

from assize import audit, cli
from assize.errors import GateClosed


def main(argv) -> dict:
    parser = cli.Parser(prog="audit.py", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, parser_class=cli.Parser)
    verify = verbs.add_parser("verify", help="find every broken link; exit 4 if there is one")
    verify.add_argument("study", help="results/<study>")
    verify.add_argument("--seal", help="the seal that was published with the study's numbers")
    arguments = parser.parse_args(argv)
    found = audit.verify(Path(arguments.study), arguments.seal)
    for name in found["unplanned"]:
        cli.log(f"note: {arguments.study}/{name}: its episode is not planned, and it is counted nowhere")
    if found["broken"]:
        lines = [f"  {item['file']}: {item['link']}: {item['message']}" for item in found["broken"]]
        message = "\n".join([f"{arguments.study}: {len(lines)} broken link(s):", *lines])
        raise GateClosed("broken", message, "find out who changed it, and when", found)
    cli.log(f"{arguments.study}: every link holds; not hashed: {', '.join(found['exempt'])}; seal {found['seal']}")
    return {"ok": True, **found}


if __name__ == "__main__":
    cli.run(main)
