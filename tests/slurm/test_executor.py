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
import slurm_stand_in as stand_in
import yaml

from conftest import ROOT, wait_for

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
        mem_mb=200,
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
        """Id -> state of this workflow's jobs: from accounting, which may be late, and from the queue's memory."""
        arguments = ["--noheader", "--parsable2", "--starttime=now-1hours", "--format=JobID,State,WorkDir"]
        lines = self.slurm("sacct", "-X", *arguments)
        lines += self.slurm("squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%Z")
        rows = [line.split("|", 2) for line in lines]
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
    if (workflow.root / "slurm").exists():
        for job in (workflow.root / "slurm" / "jobs").iterdir():
            stand_in.end(job)
    if shutil.which("squeue") and (CLUSTER / "env").exists() and (left := workflow.queue()):
        workflow.slurm("scancel", *left)


class TestSlurm:
    pytestmark = needs_slurm

    def test_300_jobs_share_8_slurm_jobs_in_arrays(self, workflow, record_property):
        """In groups of the size that profiles/slurm gives grades."""
        group = dict(text.split("=") for text in slurm_profile()["group-components"])["grade"]
        before = os.times()
        output = workflow.run(count=300, group=int(group))
        after = os.times()
        jobs = workflow.accounted()
        assert len(jobs) <= 8
        # All full groups are one array; what is left over is smaller, and asks for less time.
        assert len({job.split("_")[0] for job in jobs}) == (1 if 300 % int(group) == 0 else 2)
        assert len(workflow.outputs()) == 300
        assert workflow.remains() == []
        # What the controller and the Snakemakes inside took, in CPU seconds a job.
        controller = after.children_user + after.children_system - before.children_user - before.children_system
        lines = workflow.slurm("sacct", "--noheader", "--parsable2", "--format=TotalCPU", "--jobs", ",".join(jobs))
        inside = sum(map(seconds, lines)) / 2  # a job's row and its only step's
        record_property("controller_cpu_s_per_job", controller / 300)
        print(f"CPU seconds of Snakemake a job: controller {controller / 300:.3f}, in Slurm {inside / 300:.3f}")
        assert (controller + inside) / 300 < 0.1, output

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
        succeed_at_last(workflow, member=2, attempt=3)
        output = workflow.run("--retries", "2", count=5, group=5)
        assert workflow.started() == ["0", "1", "2", "2", "2", "3", "4"], output
        assert len(workflow.accounted()) == 3
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
        """The real answers with another word for COMPLETED: this cluster enforces no memory limit. Accounting may be
        late; then it is the queue that says how the job ended, in one word."""
        word = state.split()[0]
        shim(workflow, "sacct", f'{shutil.which("sacct")} "$@" | sed "s/COMPLETED/{state}/"')
        shim(workflow, "squeue", f'{shutil.which("squeue")} "$@" | sed "s/COMPLETED/{word}/"')
        output = workflow.run(count=1, status=1)
        assert re.search(rf"Job \S+ of \S+: {word}\b", output)

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

    def test_a_preempted_job_goes_on(self, workflow, tmp_path_factory):
        """A job of a partition that goes first takes the whole node, for longer than a task's own word is waited for.
        That this was no attempt is seen from the command, which would not succeed at another."""
        succeed_at_last(workflow, member=0, attempt=1, command="until [ -e go ]; do sleep 0.1; done")
        controller = workflow.start("--retries", "2", count=1)
        wait_for(lambda: (workflow.root / "started").exists())
        (job,) = workflow.queue()
        log = tmp_path_factory.mktemp("first") / "log"
        arguments = ["--partition=first", "--cpus-per-task=16", "--mem=1000", f"--output={log}", "--wrap=sleep 50"]
        workflow.slurm("sbatch", f"--chdir={workflow.root}", *arguments)
        wait_for(lambda: workflow.slurm("squeue", "--noheader", "--format=%T", "--jobs", job) == ["PENDING"])
        (workflow.root / "go").touch()
        output, _ = controller.communicate(timeout=300)
        assert controller.returncode == 0, output
        assert "Trying to restart" not in output
        assert workflow.started() == ["0", "0"]
        assert workflow.accounted()[job] == "COMPLETED"
        assert len(workflow.accounted()) == 2

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


@pytest.fixture
def slurm(workflow):
    """Programs that answer as Slurm's would; see ``slurm_stand_in``."""
    folder = stand_in.install(workflow.root / "slurm")
    workflow.environment["PATH"] = f"{folder}:{os.environ['PATH']}"
    return folder


class TestWhatSlurmSays:
    def test_a_requeued_job_goes_on_whatever_it_said_when_it_was_ended(self, workflow, slurm):
        succeed_at_last(workflow, member=0, attempt=1, command="until [ -e go ]; do sleep 0.1; done")
        controller = workflow.start("--retries", "2", count=1)
        wait_for(lambda: (workflow.root / "started").exists())
        (job,) = (slurm / "jobs").iterdir()
        stand_in.end(job, queued="PENDING", accounted="PREEMPTED")
        (result,) = wait_for(lambda: list(workflow.root.glob(".snakemake/submitit/*/*/*_result.pkl")))
        os.utime(result, (time.time() - 60, time.time() - 60))
        asked(slurm)
        (workflow.root / "go").touch()
        stand_in.start(job)
        output, _ = controller.communicate(timeout=60)
        assert controller.returncode == 0, output
        assert "Trying to restart" not in output
        assert workflow.started() == ["0", "0"]
        assert len(list((slurm / "jobs").iterdir())) == 1

    def test_a_started_again_task_forgets_how_it_ended(self, workflow, slurm):
        """Else an end of long ago is what is believed once Slurm has forgotten the job."""
        controller = workflow.start(count=1, command="until [ -e go ]; do sleep 0.1; done")
        wait_for(lambda: (workflow.root / "started").exists())
        (job,) = (slurm / "jobs").iterdir()
        stand_in.end(job, queued="PENDING", accounted="PREEMPTED")
        (result,) = wait_for(lambda: list(workflow.root.glob(".snakemake/submitit/*/*/*_result.pkl")))
        stand_in.start(job)
        wait_for(lambda: len(workflow.started()) == 2)
        assert not result.exists()
        (workflow.root / "go").touch()
        output, _ = controller.communicate(timeout=60)
        assert controller.returncode == 0, output

    def test_a_refusal_that_passes_is_waited_out(self, workflow, slurm):
        refusals = [
            "AssocMaxSubmitJobLimit",
            "Socket timed out on send/recv operation",
            "Resource temporarily unavailable",
        ]
        (slurm / "refuse").write_text("".join(f"{line}\n" for line in refusals))
        output = workflow.run(count=4)
        assert len(workflow.outputs()) == 4
        assert output.count("Slurm refuses") == 1
        assert "AssocMaxSubmitJobLimit" in output
        # In smaller arrays than the one of four that was refused.
        assert len({job.name.split("_")[0] for job in (slurm / "jobs").iterdir()}) == 4
        assert workflow.remains() == []

    def test_a_refusal_for_good_is_a_failure_at_once(self, workflow, slurm):
        (slurm / "refuse").write_text("invalid partition specified: gpu\n" * 9)
        output = workflow.run("--retries", "2", count=1, status=1)
        assert re.search("The submission of small-.* failed: .*invalid partition", output)
        assert len((slurm / "refuse").read_text().splitlines()) == 6

    def test_a_job_that_will_never_start_is_named_once(self, workflow, slurm):
        (slurm / "pend").write_text("BadConstraints")
        controller = workflow.start(count=2)
        line = next(line for line in controller.stdout if "BadConstraints" in line)
        assert re.search(r"Job 7_\d will not start by itself \(BadConstraints\): correct submitit-constraint", line)
        (slurm / "pend").unlink()
        for job in (slurm / "jobs").iterdir():
            stand_in.start(job)
        output, _ = controller.communicate(timeout=60)
        assert controller.returncode == 0, output
        assert "BadConstraints" not in output

    def test_jobs_are_marked_as_incomplete_before_they_can_end(self, workflow, slurm):
        """The task removes the mark: one that came later would stay."""
        shim(workflow, "sbatch", f'ls .snakemake/incomplete | wc -l > marks; exec {slurm}/sbatch "$@"')
        workflow.environment["PATH"] = f"{workflow.root}/shims:{slurm}:{os.environ['PATH']}"
        workflow.run(count=2)
        assert (workflow.root / "marks").read_text() == "2\n"

    def test_an_old_job_of_the_same_id_is_another_one(self, workflow, slurm):
        """Accounting is late, and has the id from before job ids began again."""
        (slurm / "sacct").write_text('#!/bin/bash\necho "7|COMPLETED|0:0|node7|other"\n')
        controller = workflow.start(count=1, command="until [ -e go ]; do sleep 0.1; done")
        wait_for(lambda: (workflow.root / "started").exists())
        asked(slurm)
        (workflow.root / "go").touch()
        output, _ = controller.communicate(timeout=60)
        assert controller.returncode == 0, output
        assert len(workflow.outputs()) == 1

    def test_a_group_asks_for_what_a_node_has_at_every_attempt(self, workflow, slurm):
        """Of episodes, which ask for twice as much memory at a further attempt; with the limits of profiles/slurm."""
        profile = slurm_profile()
        (workflow.root / "Snakefile").write_text(
            SNAKEFILE.replace("mem_mb=200", "mem_mb=lambda wildcards, attempt: 1024 << (attempt - 1)")
        )
        arguments = ["--retries", "2", "--cores", str(profile["cores"]), "--resources", *profile["resources"]]
        workflow.run(*arguments, count=25, group=25, command="exit 1", status=1)
        scripts = [(job / "script").read_text() for job in sorted((slurm / "jobs").iterdir())]
        asked = [re.search(r"--mem=(\d+)M", script)[1] for script in scripts]
        # 16 side by side, 15, and 7.
        assert list(map(int, asked)) == [16 * 1024, 15 * 2048, 7 * 4096]

    def test_a_group_that_gets_on_is_ended_from_outside_as_often_as_it_takes(self, workflow, slurm):
        command = "[ {wildcards.i} = $(cat turn) ] || sleep 300"
        succeed_at_last(workflow, member=0, attempt=1, command=command)
        (workflow.root / "turn").write_text("0")
        controller = workflow.start(count=3, group=3)
        for turn in range(3):
            wait_for(lambda turn=turn: len(workflow.outputs()) == turn + 1)
            if turn < 2:
                job = max((slurm / "jobs").iterdir(), key=lambda job: int(job.name))
                (workflow.root / "turn").write_text(str(turn + 1))
                time.sleep(1)  # for the mark of what is done to go
                stand_in.end(job, queued="TIMEOUT", accounted="TIMEOUT")
        output, _ = controller.communicate(timeout=60)
        assert controller.returncode == 0, output
        assert "Trying to restart" not in output
        assert [workflow.started().count(str(member)) for member in range(3)] == [1, 2, 3]

    def test_a_group_that_gets_nowhere_has_failed(self, workflow, slurm):
        controller = workflow.start(count=2, group=2, command="sleep 300")
        wait_for(lambda: (workflow.root / "started").exists())
        (job,) = (slurm / "jobs").iterdir()
        stand_in.end(job, queued="TIMEOUT", accounted="TIMEOUT")
        output, _ = controller.communicate(timeout=60)
        assert controller.returncode == 1, output
        assert "TIMEOUT|0:0" in output


def test_two_failures_of_a_member_leave_the_others_alone(workflow):
    succeed_at_last(workflow, member=1, attempt=3)
    output = workflow.run("--submitit-cluster", "local", "--retries", "2", count=3, group=3)
    assert workflow.started() == ["0", "1", "1", "1", "2"], output
    assert "0" not in output.partition("Removing output files")[2].partition("\n")[2][:10]


def test_what_is_done_of_a_retried_group_is_never_marked_as_incomplete(workflow):
    """A controller that dies meanwhile would else have it made again."""
    succeed_at_last(workflow, member=1, attempt=2, command="[ {resources.attempt} = 1 ] || sleep 300")
    controller = workflow.start("--submitit-cluster", "local", "--retries", "1", count=3, group=3)
    wait_for(lambda: (workflow.root / "started").exists() and len(workflow.started()) == 4)
    marks = [path.name for path in (workflow.root / ".snakemake" / "incomplete").iterdir() if path.is_file()]
    assert len(marks) == 1
    os.kill(controller.pid, signal.SIGINT)
    controller.communicate(timeout=60)


def test_what_follows_on_the_done_members_of_a_failed_group_runs(workflow):
    rules = SNAKEFILE.replace('"out/{i}", i', '"two/{i}", i').replace("{params.command}", "[ {wildcards.i} != 1 ]")
    rules += """

rule two:
    input:
        "out/{i}",
    output:
        "two/{i}",
    shell:
        "cp {input} {output}"
"""
    (workflow.root / "Snakefile").write_text(rules)
    arguments = ["--submitit-cluster", "local", "--retries", "1", "--keep-going"]
    output = workflow.run(*arguments, count=3, group=3, status=1)
    assert sorted(path.name for path in (workflow.root / "two").iterdir()) == ["0", "2"], output
    assert workflow.started() == ["0", "1", "1", "2"]
    # And the next run has only the rest to do.
    (workflow.root / "Snakefile").write_text(rules.replace("[ {wildcards.i} != 1 ]", "true"))
    arguments += ["--rerun-triggers", "mtime"]
    output = workflow.run(*arguments, count=3, group=3)
    assert workflow.started() == ["0", "1", "1", "1", "2"], output


def test_a_dead_controllers_job_that_makes_it_otherwise_is_ended(workflow):
    """Its params have changed since: what it would leave is not what this run is to make."""
    until = "while [ ! -e go ]; do sleep 0.1; done"
    rules = SNAKEFILE.replace("echo ${{SLURM_JOB_ID:-}} >", "echo {params.word} >").replace(
        "params:", 'params:\n        word=config["word"],'
    )
    (workflow.root / "Snakefile").write_text(rules)
    arguments = ["--submitit-cluster", "local"]
    controller = workflow.start(*arguments, count=2, group=2, command=until, word="old")
    wait_for(lambda: (workflow.root / "started").exists() and len(workflow.started()) == 2)
    controller.kill()
    controller.wait()
    subprocess.run([SNAKEMAKE, "--unlock", "--config", "word=new"], cwd=workflow.root, check=True, capture_output=True)
    again = workflow.start(*arguments, count=2, group=2, command=until, word="new")
    wait_for(lambda: len(workflow.started()) == 4)
    (workflow.root / "go").touch()
    output, _ = again.communicate(timeout=60)
    assert again.returncode == 0, output
    assert "cancelling" in output
    assert [path.read_text().strip() for path in workflow.outputs()] == ["new", "new"]
    assert processes_in(workflow.root) == []


def test_a_dead_controllers_job_that_makes_the_same_is_waited_for(workflow):
    until = "while [ ! -e go ]; do sleep 0.1; done"
    arguments = ["--submitit-cluster", "local"]
    controller = workflow.start(*arguments, count=2, group=2, command=until)
    wait_for(lambda: (workflow.root / "started").exists() and len(workflow.started()) == 2)
    controller.kill()
    controller.wait()
    subprocess.run([SNAKEMAKE, "--unlock"], cwd=workflow.root, check=True, capture_output=True)
    again = workflow.start(*arguments, count=2, group=2, command=until)
    wait_for(lambda: "of an earlier run" in again.stdout.readline())
    (workflow.root / "go").touch()
    output, _ = again.communicate(timeout=60)
    assert again.returncode == 0, output
    assert workflow.started() == ["0", "1"]


def test_a_node_without_a_home_runs_tasks(workflow):
    arguments = ["--submitit-cluster", "local", "--submitit-modules", "export HOME=/proc/none"]
    output = workflow.run(*arguments, count=1)
    assert len(workflow.outputs()) == 1, output


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
    assert processes_in(workflow.root) == [], output


def succeed_at_last(workflow: Workflow, member: int, attempt: int, command="true") -> None:
    """Have one member of a group fail until its job is at this attempt, by Snakemake's count, and all run a command."""
    condition = f"{command}; [ {{wildcards.i}} != {member} ] || [ {{resources.attempt}} = {attempt} ]"
    rules = SNAKEFILE.replace("{params.command}", condition)
    (workflow.root / "Snakefile").write_text(
        rules.replace("mem_mb=200,", "mem_mb=200,\n        attempt=lambda wildcards, attempt: attempt,")
    )


def slurm_profile() -> dict:
    return yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())


def asked(slurm: Path) -> None:
    """Wait until the executor has looked twice at the stand-in."""
    for _ in range(2):
        last = (slurm / "lock").stat().st_mtime_ns
        wait_for(lambda last=last: (slurm / "lock").stat().st_mtime_ns != last)
        time.sleep(0.5)


def processes_in(folder: Path) -> list:
    return [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(folder)]


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
