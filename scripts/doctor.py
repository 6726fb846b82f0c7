#!/usr/bin/env python3
"""Check a cluster before a study: one line a check, ok, missing (the study needs it) or absent (it does not).

Exit status: 0 all that the study needs is there, 3 something is missing, 2 bad usage or input.
"""

from __future__ import annotations

import json
import platform
import sys

from assize import cli, doctor
from assize.doctor import installation


def main(argv) -> None:
    parser = cli.Parser(prog="doctor.py", description=__doc__)
    parser.add_argument(
        "--profile", default="profiles/slurm", help="the Snakemake profile of the runs (profiles/slurm)"
    )
    parser.add_argument("--configfile", "--study", default="config/study.yaml", help="the study's config")
    parser.add_argument("--on-node", action="store_true", help="check a compute node in a Slurm job, not this machine")
    parser.add_argument("--wait", type=float, default=3600, help="seconds to wait for that job (3600)")
    parser.add_argument("--part", choices=("all", "node"), default="all", help="node: only what holds for one machine")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    arguments = parser.parse_args(argv)
    findings = examine(arguments)
    good = all(finding.status != doctor.MISSING for finding in findings)
    if arguments.json:
        print(
            json.dumps(
                {"ok": good, "node": platform.node(), "findings": [finding.as_json() for finding in findings]},
                sort_keys=True,
            )
        )
    else:
        doctor.print_findings(findings)
    raise SystemExit(0 if good else 3)


def examine(arguments) -> list[doctor.Finding]:
    """All findings; where the packages are missing, those alone, since nothing else can be looked at."""
    findings = installation.check_environment()
    if any(finding.check == "packages" and finding.status == doctor.MISSING for finding in findings):
        return findings
    from assize.doctor import cluster, node, remote
    from assize.profile import read_profile
    from assize.study import Study, load_config, resolve

    profile = read_profile(arguments.profile)
    frozen = resolve(load_config(arguments.configfile), arguments.configfile, profile.resource_mode)
    needs = doctor.needs_of(profile, frozen)
    if arguments.part == "all":
        findings += installation.check_profile(needs, arguments.profile)
        findings += installation.check_cores(frozen, profile.content.get("cores")) if profile.submits else []
        findings += installation.check_datasets(frozen)
        findings += cluster.check_cluster(needs) if needs.slurm else []
    if not arguments.on_node:
        return findings + node.check_node(needs) + benchmark_checks(Study(frozen), needs)
    if any(finding.status == doctor.MISSING for finding in findings):
        cli.log("doctor: no job is submitted before what is missing here is there")
        return findings
    return findings + remote.examine_node(needs, arguments)


def benchmark_checks(study, needs: doctor.Needs) -> list[doctor.Finding]:
    """What each benchmark of the study looks at by itself."""
    from assize.benchmarks import load_benchmark
    from assize.doctor.node import find_engine

    engine = find_engine(needs)
    return [finding for name in study.benchmarks for finding in load_benchmark(name).doctor_checks(study, engine)]


if __name__ == "__main__":
    sys.exit(cli.run(main))
