"""The executor alone, with trivial jobs: cancel, a dead controller, ends that Slurm decides, and no Slurm at all."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from conftest import wait_for

CLUSTER = Path(os.environ.get("ASSIZE_CLUSTER_DIR", "/var/tmp/assize-cluster"))
SNAKEMAKE = Path(sys.executable).parent / "snakemake"

needs_slurm = [
    pytest.mark.skipif(not (CLUSTER / "env").exists(), reason="no Slurm: bring one up with tests/cluster/up, as root"),
    # One after another: most ask for the whole node.
    pytest.mark.usefixtures("whole_cluster"),
]

SNAKEFILE = """
N = int(config.get("count", 1))


rule all:
    input:
        expand("out/{i}", i=range(N)),


rule one:
    output:
        "out/{i}",
    group:
        "small"
    threads: int(config.get("threads", 1))
    resources:
        mem_mb=100,
    params:
        command=config.get("command", "true"),
    shell:
        "echo {wildcards.i} >> started; {params.command}; echo ${{SLURM_JOB_ID:-}} > {output}"
"""


class Workflow:
    """a workflow of ``count`` jobs in a directory of its own, and what Slurm knows of its jobs, by that directory."""

    def __init__(self, root: Path):
        self.root = root
        (root / "Snakefile").write_text(SNAKEFILE)
        self.environment = {**os.environ, "SLURM_CONF": str(CLUSTER / "etc" / "slurm.conf")}

    def start(self, *arguments, group=1, **config) -> subprocess.Popen:
        settings = [f"{name}={value}" for name, value in config.items()]
        return subprocess.Popen(
            [SNAKEMAKE, *arguments, "--executor", "submitit", "--jobs", "200", "--cores", "16", "--rerun-incomplete"]
            + ["--group-components", f"small={group}", "--default-resources", "runtime=5"]
            + ["--seconds-between-status-checks", "2", "--config", *settings],
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments, status=0, **options) -> str:
        process = self.start(*arguments, **options)
        output, _ = process.communicate(timeout=400)
        assert process.returncode == status, output
        return output

    def slurm(self, *command) -> list[str]:
        # Not through the shims of the workflow.
        environment = self.environment | {"PATH": os.environ["PATH"]}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    def queue(self) -> list[str]:
        """Ids of this workflow's jobs that are in the queue."""
        rows = [line.split("|", 1) for line in self.slurm("squeue", "--noheader", "--array", "--format=%i|%Z")]
        return [job for job, directory in rows if Path(directory) == self.root]

    def accounted(self) -> dict[str, str]:
        """Id -> state of this workflow's jobs, from accounting."""
        arguments = ["--noheader", "--parsable2", "--starttime=now-1hours", "--format=JobID,State,WorkDir"]
        rows = [line.split("|", 2) for line in self.slurm("sacct", "-X", *arguments)]
        return {job: state for job, state, directory in rows if Path(directory) == self.root}

    def outputs(self) -> list[Path]:
        return sorted((self.root / "out").glob("*"))

    def started(self) -> list[str]:
        return sorted((self.root / "started").read_text().split())

    def remains(self) -> list[str]:
        """Files that the executor left."""
        return sorted(path.name for path in (self.root / ".snakemake" / "submitit").rglob("*") if path.is_file())


@pytest.fixture
def workflow(tmp_path):
    """Ends what it started, whatever the test did."""
    workflow = Workflow(tmp_path)
    yield workflow
    if shutil.which("squeue") and (CLUSTER / "env").exists() and (left := workflow.queue()):
        workflow.slurm("scancel", *left)


class TestSlurm:
    pytestmark = needs_slurm

    def test_300_jobs_are_6_slurm_jobs_in_one_array(self, workflow, record_property):
        before = os.times()
        output = workflow.run(count=300, group=50)
        after = os.times()
        jobs = workflow.accounted()
        assert len(jobs) == 6
        assert len({job.split("_")[0] for job in jobs}) == 1
        assert len(workflow.outputs()) == 300
        assert workflow.remains() == []
        # What the controller and the six Snakemakes inside took, in CPU seconds a job.
        controller = after.children_user + after.children_system - before.children_user - before.children_system
        lines = workflow.slurm("sacct", "--noheader", "--parsable2", "--format=TotalCPU", "--jobs", ",".join(jobs))
        inside = sum(map(seconds, lines)) / 2  # a job's row and its only step's
        record_property("controller_cpu_s_per_job", controller / 300)
        print(f"CPU seconds of Snakemake a job: controller {controller / 300:.3f}, in Slurm {inside / 300:.3f}")
        assert controller / 300 < 0.1, output

    def test_ctrl_c_leaves_none_of_100_queued_jobs(self, workflow):
        controller = workflow.start(count=100, threads=16, command="sleep 60")
        wait_for(lambda: len(workflow.queue()) == 100)
        os.killpg(controller.pid, signal.SIGINT)
        output, _ = controller.communicate(timeout=120)
        assert controller.returncode != 0
        assert workflow.queue() == [], output
        # And none comes later.
        time.sleep(3)
        assert workflow.queue() == []

    def test_ctrl_c_while_jobs_are_submitted_leaves_none(self, workflow):
        controller = workflow.start("--max-jobs-per-timespan", "20/1s", count=100, threads=16, command="sleep 60")
        wait_for(workflow.queue)
        os.killpg(controller.pid, signal.SIGINT)
        output, _ = controller.communicate(timeout=120)
        time.sleep(3)
        assert workflow.queue() == [], output

    def test_jobs_of_a_killed_controller_are_found_again_and_not_submitted_twice(self, workflow):
        command = "while [ ! -e go ]; do sleep 0.1; done"
        controller = workflow.start(count=6, group=2, command=command)
        wait_for(lambda: (workflow.root / "started").exists() and len(workflow.started()) == 6)
        os.killpg(controller.pid, signal.SIGKILL)
        controller.wait()
        assert len(workflow.queue()) == 3
        # The lock is all that a kill -9 leaves to a person.
        subprocess.run([SNAKEMAKE, "--unlock"], cwd=workflow.root, check=True, capture_output=True)
        # Other groups than before: each waits for two of the old jobs, or three.
        again = workflow.start(count=6, group=3, command=command)
        wait_for(lambda: "of an earlier run" in again.stdout.readline())
        (workflow.root / "go").touch()
        output, _ = again.communicate(timeout=120)
        assert again.returncode == 0, output
        jobs = workflow.accounted()
        assert len(jobs) == 3
        assert set(jobs.values()) == {"COMPLETED"}
        assert workflow.started() == sorted(map(str, range(6)))
        assert workflow.remains() == []

    def test_what_is_finished_while_no_controller_lives_is_not_made_again(self, workflow):
        """Also where Snakemake has a note of an older run, with other params."""
        workflow.run(count=2, group=2, command="true")
        command = "while [ ! -e go ]; do sleep 0.1; done"
        controller = workflow.start(count=2, group=2, command=command)
        wait_for(lambda: len(workflow.started()) == 4)
        os.killpg(controller.pid, signal.SIGKILL)
        controller.wait()
        (workflow.root / "go").touch()
        wait_for(lambda: not workflow.queue())
        subprocess.run([SNAKEMAKE, "--unlock"], cwd=workflow.root, check=True, capture_output=True)
        assert "Nothing to be done" in workflow.run(count=2, group=2, command=command)
        assert len(workflow.accounted()) == 2
        # And the new params are noted: others have it made again.
        workflow.run(count=2, group=2, command="true")
        assert len(workflow.started()) == 6

    def test_what_a_killed_controllers_job_left_undone_is_submitted(self, workflow):
        command = "[ {wildcards.i} = 0 ] || while [ ! -e go ]; do sleep 0.1; done"
        workflow.root.joinpath("Snakefile").write_text(SNAKEFILE.replace("{params.command}", command))
        controller = workflow.start(count=3, group=3)
        wait_for(lambda: (workflow.root / "started").exists() and len(workflow.started()) == 3 and workflow.outputs())
        os.killpg(controller.pid, signal.SIGKILL)
        controller.wait()
        subprocess.run([SNAKEMAKE, "--unlock"], cwd=workflow.root, check=True, capture_output=True)
        again = workflow.start(count=3, group=3)
        wait_for(lambda: "of an earlier run" in again.stdout.readline())
        workflow.slurm("scancel", *workflow.queue())
        wait_for(lambda: not workflow.queue())
        (workflow.root / "go").touch()
        output, _ = again.communicate(timeout=120)
        assert again.returncode == 0, output
        assert len(workflow.accounted()) == 2
        assert workflow.started().count("0") == 1
        assert len(workflow.outputs()) == 3

    def test_a_retry_makes_only_what_failed(self, workflow):
        command = "[ {wildcards.i} != 2 ] || [ {resources.attempt} = 2 ]"
        rules = SNAKEFILE.replace("{params.command}", command)
        rules = rules.replace(
            "mem_mb=100,", "mem_mb=lambda w, attempt: 100 * attempt,\n        attempt=lambda w, attempt: attempt,"
        )
        workflow.root.joinpath("Snakefile").write_text(rules)
        output = workflow.run("--retries", "1", count=5, group=5)
        assert workflow.started() == ["0", "1", "2", "2", "3", "4"], output
        assert len(workflow.accounted()) == 2
        # The log of the failure is shown, and stays.
        assert "FAILED|1:0" in output
        assert [name for name in workflow.remains() if name.endswith("_log.out")]

    def test_a_time_limit_ends_a_job(self, workflow):
        output = workflow.run("--set-resources", "one:runtime=1", count=1, command="sleep 300", status=1)
        assert "TIMEOUT" in output
        assert list(workflow.accounted().values()) == ["TIMEOUT"]

    def test_a_job_that_needs_more_than_there_is_is_refused_at_once(self, workflow):
        output = workflow.run("--set-resources", "one:mem_mb=99999999", count=1, status=1)
        assert re.search("The submission of small-.* failed", output)

    @pytest.mark.parametrize("state", ["OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "CANCELLED by 1000", "DEADLINE"])
    def test_a_state_that_slurm_decides_ends_a_job(self, workflow, state):
        """The real sacct's answer with another word for COMPLETED: this cluster enforces no memory limit."""
        shim(workflow, "sacct", f'{shutil.which("sacct")} "$@" | sed "s/COMPLETED/{state}/"')
        output = workflow.run(count=1, status=1)
        assert f"{state}|0:0" in output

    def test_an_accounting_outage_is_ridden_out_with_squeue(self, workflow):
        shim(workflow, "sacct", "echo 'sacct: error: Problem talking to the database' >&2; exit 1")
        workflow.run(count=2, command="sleep 2")
        assert len(workflow.outputs()) == 2

    def test_while_slurm_does_not_answer_nothing_fails(self, workflow):
        outage = f"[ ! -e {workflow.root}/outage ] || exit 1; exec "
        for name in ("sacct", "squeue", "sbatch"):
            shim(workflow, name, f'{outage}{shutil.which(name)} "$@"')
        controller = workflow.start(count=2, command="until [ -e go ]; do sleep 0.1; done")
        wait_for(lambda: len(workflow.queue()) == 2)
        (workflow.root / "outage").touch()
        wait_for(lambda: "Slurm does not answer" in controller.stdout.readline())
        (workflow.root / "go").touch()
        wait_for(lambda: not workflow.queue())
        (workflow.root / "outage").unlink()
        output, _ = controller.communicate(timeout=120)
        assert controller.returncode == 0, output
        assert "Slurm answers again" in output

    def test_jobs_that_cannot_be_submitted_wait_for_slurm(self, workflow):
        (workflow.root / "outage").touch()
        for name in ("squeue", "sbatch"):
            shim(workflow, name, f'[ ! -e {workflow.root}/outage ] || exit 1; exec {shutil.which(name)} "$@"')
        controller = workflow.start(count=2)
        wait_for(lambda: "wait to be submitted" in controller.stdout.readline())
        (workflow.root / "outage").unlink()
        output, _ = controller.communicate(timeout=120)
        assert controller.returncode == 0, output
        assert len(workflow.accounted()) == 2

    def test_a_job_that_slurm_does_not_know_is_lost(self, workflow):
        for name in ("sacct", "squeue"):
            shim(workflow, name, "exit 0")
        start = time.time()
        output = workflow.run("--submitit-lost-after", "3", count=1, command="sleep 20", status=1)
        assert "unknown to Slurm" in output
        assert time.time() - start < 20

    def test_a_requeued_job_goes_on(self, workflow):
        controller = workflow.start(count=1, command="until [ -e go ]; do sleep 0.1; done")
        wait_for(lambda: (workflow.root / "started").exists())
        (job,) = workflow.queue()
        workflow.slurm("scontrol", "requeue", job)
        (workflow.root / "go").touch()
        # Slurm holds a requeued job back for up to two minutes.
        output, _ = controller.communicate(timeout=300)
        assert controller.returncode == 0, output
        assert list(workflow.accounted()) == [job]
        assert workflow.started() == ["0", "0"]


def test_without_slurm_the_same_jobs_are_processes(workflow):
    """No more at once than there are CPUs; the resources of a group hold inside."""
    output = workflow.run("--submitit-cluster", "local", count=6, group=2, threads=2, command="sleep 0.2")
    assert len(workflow.outputs()) == 6, output
    assert workflow.remains() == []
    assert all(path.read_text().strip() == "" for path in workflow.outputs())


def test_without_slurm_a_failure_is_shown(workflow):
    output = workflow.run("--submitit-cluster", "local", count=1, command="exit 3", status=1)
    assert re.search(r"Job \d+ of small: failure", output)


def test_a_task_finds_its_modules_and_its_scratch_directory(workflow):
    """Through the settings of a profile, with more than one line, as a site would have them."""
    (workflow.root / "scratch").mkdir()
    (workflow.root / "modules").write_text("module() { export LOADED=$2; }\n")
    (workflow.root / "site").mkdir()
    (workflow.root / "site" / "config.yaml").write_text(
        f"submitit-modules: |\n  . {workflow.root}/modules\n  module load podman\n"
        f"submitit-scratch: {workflow.root}/$SCRATCH_NAME\n"
    )
    workflow.environment["SCRATCH_NAME"] = "scratch"
    arguments = ["--submitit-cluster", "local", "--profile", "site"]
    output = workflow.run(*arguments, count=1, command="echo $LOADED $TMPDIR > found")
    assert (workflow.root / "found").read_text() == f"podman {workflow.root}/scratch\n", output


def test_a_task_without_its_scratch_directory_fails_and_names_the_setting(workflow):
    arguments = ["--submitit-cluster", "local", "--submitit-scratch", "/missing/$HOME"]
    output = workflow.run(*arguments, count=1, status=1)
    assert re.search("submitit-scratch: /missing/.HOME .* is no directory", output.replace("'", ""))
    assert workflow.outputs() == []


def test_without_slurm_ctrl_c_ends_the_processes(workflow):
    controller = workflow.start("--submitit-cluster", "local", count=2, command="sleep 300")
    wait_for(lambda: (workflow.root / "started").exists())
    os.kill(controller.pid, signal.SIGINT)
    output, _ = controller.communicate(timeout=60)
    assert controller.returncode != 0
    left = [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(workflow.root)]
    assert left == [], output


def seconds(text: str) -> float:
    """Of ``minutes:seconds``, with hours and days before them where there are any."""
    total = 0.0
    for part in re.split("[-:]", text):
        total = total * 60 + float(part)
    return total


def shim(workflow: Workflow, name: str, script: str) -> None:
    """A program of Slurm that answers otherwise, for this workflow alone."""
    folder = workflow.root / "shims"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)
    workflow.environment["PATH"] = f"{folder}:{os.environ['PATH']}"
