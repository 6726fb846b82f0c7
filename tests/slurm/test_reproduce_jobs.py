"""A bundle that was made on one machine is graded again on a cluster. Needs the cluster of tests/cluster/."""

import json
import sys

import yaml

from conftest import SMALL, Project, copy_project
from slurm_support import ENVIRONMENT, needs_cluster

pytestmark = needs_cluster


def test_another_resource_mode_is_named_and_hinders_nothing(project, tmp_path):
    """Who checks a study may have another place to run it."""
    (project.root / "study.yaml").write_text(yaml.safe_dump(SMALL))
    project.snakemake("--configfile", "study.yaml")
    bundle = project.root / json.loads(project.script("reproduce.py", "bundle", "results/small").stdout)["output"]
    elsewhere = Project(copy_project(tmp_path / "elsewhere"))
    command = f"{sys.executable} scripts/reproduce.py rerun {bundle} --profile profiles/slurm"
    comparison = json.loads(elsewhere.run("bash", "-c", f". {ENVIRONMENT}; {command}").stdout)["comparison"]
    assert comparison["identical"] == comparison["planned"] == 4
    assert comparison["terms"]["command"] == [{"what": "resource_mode", "bundle": "none", "here": "slurm"}]
    grades = list((elsewhere.root / "results/small-rerun/episodes").rglob("grade.json"))
    assert {json.loads(path.read_text())["provenance"]["slurm"]["cpus"] for path in grades} == {16}
