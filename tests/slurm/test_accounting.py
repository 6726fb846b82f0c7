"""What Slurm says that the jobs of a study used: with accounting, without it, and of a study that was one job."""

import json
import sys
from pathlib import Path

import pytest

from conftest import copy_project
from slurm_support import Account, needs_cluster, write_slow_study

pytestmark = needs_cluster


@pytest.fixture
def account(tmp_path):
    account = Account("root", copy_project(tmp_path / "assize"), Path(sys.executable).parent.parent)
    write_slow_study(account)
    return account


def accounted(account) -> dict:
    return json.loads((account.root / "results/slow/census/accounting.json").read_text())


def test_accounting_says_what_the_jobs_of_a_study_used(account, tmp_path):
    account.snakemake("--configfile study.yaml")
    record = accounted(account)
    assert (record["source"], record["reason"]) == ("sacct", None)
    rules = {line["rule"]: line for line in record["rules"]}
    assert {name: line["records"] for name, line in rules.items()} == {"calibrate": 1, "episode": 3, "grade": 3}
    (job,) = {grade["provenance"]["slurm"]["job_id"] for grade in account.grades("slow")}
    text = account.run(f"sacct --noheader --parsable2 --format=ElapsedRaw,AllocCPUS,TotalCPU --jobs {job}").stdout
    elapsed, cpus, cpu = text.splitlines()[0].split("|")
    line = rules["grade"]
    assert line["cpu_allocated_s"] == int(elapsed) * int(cpus)
    minutes, seconds = cpu.split(":")
    assert line["cpu_used_s"] == pytest.approx(60 * int(minutes) + float(seconds), abs=0.001)
    assert line["cpu_efficiency"] > 0
    assert 0 < line["memory_used_mb"] < line["memory_asked_mb"] == 30720
    assert len(record["grades"]) == 3
    for row in record["grades"]:
        assert (row["job_id"], row["elapsed_s"], row["records"]) == (job, int(elapsed), 3)
        assert row["state"] == "COMPLETED"
    shown = account.run("python scripts/census.py --table --study results/slow/study.json").stdout
    assert "source: sacct" in shown

    # A site without accounting: no sacct on the path.
    tools = tmp_path / "tools"
    tools.mkdir()
    for program in Path("/usr/bin").iterdir():
        if program.name != "sacct":
            (tools / program.name).symlink_to(program)
    (account.root / "results/slow/census/accounting.json").unlink()
    account.run(f"PATH={account.environment}/bin:{tools} snakemake --configfile study.yaml --profile profiles/slurm")
    record = accounted(account)
    assert (record["source"], record["reason"]) == ("squeue", "sacct: not found")
    for row in record["grades"]:
        assert (row["job_id"], row["elapsed_s"], row["cpu_s"], row["max_rss_mb"]) == (job, int(elapsed), None, None)
    assert {line["cpu_efficiency"] for line in record["rules"]} == {None}


def test_one_job_for_a_whole_study_is_accounted_as_one(account):
    """While that job runs its CPU time is unknown, and is said to be; asked again afterwards, it is known."""
    inside = "snakemake --profile profiles/allocation --configfile study.yaml"
    account.run(f"sbatch --wait --cpus-per-task=16 --mem=30720M --output=allocation.log --wrap '{inside}'")
    record = accounted(account)
    assert record["source"] == "sacct"
    (line,) = record["rules"]
    assert (line["rule"], line["records"], line["jobs"]) == ("calibrate+episode+grade", 7, 1)
    assert (line["jobs_measured"], line["cpu_used_s"]) == (0, None)
    assert {row["state"] for row in record["grades"]} == {"RUNNING"}
    account.run("python scripts/accounting.py --study results/slow/study.json")
    record = accounted(account)
    (line,) = record["rules"]
    assert (line["jobs_measured"], line["memory_asked_mb"]) == (1, 30720)
    assert 0 < line["cpu_efficiency"] < 1
    assert {(row["state"], row["records"]) for row in record["grades"]} == {("COMPLETED", 7)}
