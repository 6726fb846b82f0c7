"""The node's checks on a compute node: in a Slurm job that is made just as a grade's is."""

import os
import shlex
import shutil
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

from assize.cli import log
from assize.doctor import Finding, Needs, missing
from assize.records import ROOT, strict_json

MINUTES = 15


def examine_node(needs: Needs, arguments) -> list[Finding]:
    """Submit the checks with the profile's settings and the study's allocation, wait, and give what the node found.

    However this ends, the job is gone.
    """
    from snakemake_executor_plugin_submitit import ExecutorSettings, clear_allocation
    from snakemake_executor_plugin_submitit.journal import Task
    from snakemake_executor_plugin_submitit.node import preamble
    from snakemake_executor_plugin_submitit.queues import open_queue
    from snakemake_executor_plugin_submitit.slurm import shape_of

    clear_allocation(os.environ)
    settings = ExecutorSettings(**needs.settings)
    queue, run = open_queue(settings.cluster), uuid.uuid4().hex[:8]
    # Below the checkout: a node that does not see it is found out.
    folder = (Path(".snakemake") / f"doctor-{run}").absolute()
    folder.mkdir(parents=True)
    script, answer = folder / "0.sh", folder / "findings.json"
    script.write_text(preamble(settings.modules, settings.scratch) + command(arguments, answer))
    resources = {"mem_mb": needs.memory_mb, "runtime": MINUTES}
    tasks = []
    try:
        (id,) = queue.submit(folder, f"doctor-{run}-1", shape_of(resources, needs.cpus, settings), [script])
        tasks.append(Task(id, 0, folder))
        log(f"doctor: job {id} looks at a node; Ctrl-C cancels it")
        words = wait(queue, tasks[0], arguments.wait)
    except BaseException:
        queue.cancel(tasks, run)
        raise
    if words is None:
        queue.cancel(tasks, run)
    findings = read_answer(answer, id, words, arguments.wait, tasks[0].log)
    if answer.exists():
        shutil.rmtree(folder)
    return findings


def command(arguments, answer: Path) -> str:
    """The job's command: this very program, for one machine."""
    own = [sys.executable, str(ROOT / "scripts" / "doctor.py"), "--part", "node", "--json"]
    own += ["--profile", arguments.profile, "--configfile", arguments.configfile]
    return (
        f"cd {shlex.quote(os.getcwd())} || exit 1\n"
        # 3 is an answer: something is missing.
        f"{shlex.join(own)} > {shlex.quote(str(answer))}.new || [ $? = 3 ] || exit 1\n"
        f"mv {shlex.quote(str(answer))}.new {shlex.quote(str(answer))}\n"
    )


def wait(queue, task, seconds: float) -> str | None:
    """Slurm's word for the end of the job; None if it did not end in time."""
    from snakemake_executor_plugin_submitit.slurm import Outcome

    until = time.monotonic() + seconds
    while time.monotonic() < until:
        answer = queue.outcomes([task])
        if answer is not None and answer[0][task.id] not in (Outcome.ACTIVE, Outcome.UNKNOWN):
            return answer[1][task.id]
        time.sleep(1)
    return None


def read_answer(answer: Path, id: str, words: str | None, seconds: float, log_file: Path) -> list[Finding]:
    """What the node found; where it gave no answer, that is the finding."""
    # A shared file system may show a new file late.
    until = time.monotonic() + (30 if words and words.startswith("COMPLETED") else 0)
    while not answer.exists() and time.monotonic() < until:
        time.sleep(0.5)
    if answer.exists():
        found = strict_json(answer.read_text())
        return [replace(Finding(**finding), place=found["node"]) for finding in found["findings"]]
    if words is None:
        return [missing("node", f"job {id} did not end within {seconds:.0f} s", "try again with a longer --wait")]
    end = ""
    if log_file.exists():
        lines = [line for line in log_file.read_text(errors="replace").splitlines() if line.strip()]
        told = [line for line in lines if "submitit-" in line and "Error" not in line] or lines[-1:]
        end = f": {told[0].strip()}"[:400] if told else ""
    return [missing("node", f"job {id} ended without an answer ({words}){end}", f"its log: {log_file}")]
