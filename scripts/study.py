#!/usr/bin/env python
"""Check a study's config (validate), or resolve it with all its pins and freeze it (freeze)."""

from assize import cli
from assize.records import write_record
from assize.study import RESOURCE_MODES, Study, load_config, resolve


def main(argv) -> dict:
    parser = cli.Parser(prog="study.py", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, parser_class=cli.Parser)
    validate = verbs.add_parser("validate", help="check a config; nothing is written")
    freeze = verbs.add_parser("freeze", help="write the resolved study")
    for verb in (validate, freeze):
        verb.add_argument("config", help="a study's YAML file")
        verb.add_argument("--resource-mode", choices=RESOURCE_MODES, help="what the profile asks for")
    freeze.add_argument("--output", required=True, help="results/<study>/study.json")
    arguments = parser.parse_args(argv)
    frozen = resolve(load_config(arguments.config), arguments.config, arguments.resource_mode)
    if arguments.verb == "freeze":
        write_record(arguments.output, frozen)
    study = Study(frozen)
    terms = {name: study.terms_digest(name) for name in study.benchmarks}
    return {"ok": True, "study": study.name, "digest": study.digest, "terms": terms, "planned": len(study.episodes())}


if __name__ == "__main__":
    cli.run(main)
