"""Whose workspace a container is, told by its labels, and the removal of those that nobody will come back to."""

import json
import os
import platform
import subprocess
import time
from dataclasses import dataclass

from assize.benchmarks.programbench.engine import KIND, NODE, STUDY, Engine
from assize.cli import log

WORKSPACE = "programbench-workspace"
EPISODE, ROLE, DEADLINE, JOB = "assize.episode", "assize.role", "assize.deadline", "assize.job"
# Where the study runs: a copy of it elsewhere has episodes of the same names.
ROOT_LABEL = "assize.root"


@dataclass(frozen=True)
class Place:
    """Whose workspace a container is."""

    study: str
    episode: str

    def labels(self, deadline: float) -> dict[str, str]:
        job = os.environ.get("SLURM_JOB_ID", "")
        return {
            STUDY: self.study,
            EPISODE: self.episode,
            ROLE: "solver",
            KIND: WORKSPACE,
            NODE: platform.node(),
            DEADLINE: str(int(deadline)),
            JOB: job,
            ROOT_LABEL: os.getcwd(),
        }


def sweep(engine: Engine, place: Place | None = None) -> list[str]:
    """Remove workspaces that nobody will come back to: of ``place``, past their deadline, or of a Slurm job that ended.

    Returns
    -------
    The containers that were removed.
    """
    mine = ("--filter", f"label={KIND}={WORKSPACE}")
    removed = []
    for container in engine.call("ps", "--all", "--quiet", "--no-trunc", *mine).stdout.split():
        done = engine.call("inspect", "--format", "{{json .Config.Labels}}", container, check=False)
        if done.returncode:
            continue
        labels = json.loads(done.stdout)
        whose = (labels.get(STUDY), labels.get(EPISODE), labels.get(ROOT_LABEL))
        same = place is not None and whose == (place.study, place.episode, os.getcwd())
        if labels.get(NODE) == platform.node() and (same or is_abandoned(labels, time.time(), job_ended)):
            engine.remove(container)
            removed.append(container)
            log(f"swept: workspace {container[:19]} of study {labels.get(STUDY)}, episode {labels.get(EPISODE)}")
    return removed


def is_abandoned(labels: dict[str, str], now: float, ended) -> bool:
    """Whether a workspace is past its deadline, or its Slurm job has ended (``ended(job)``). Pure, but for that."""
    deadline, job = labels.get(DEADLINE, ""), labels.get(JOB, "")
    if deadline.isdigit() and now > int(deadline):
        return True
    return bool(job) and job != os.environ.get("SLURM_JOB_ID") and ended(job)


def job_ended(job: str) -> bool:
    """Whether Slurm says that a job has ended. Where it says nothing the job counts as running."""
    try:
        done = subprocess.run(
            ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"],
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    if done.returncode:
        return "Invalid job id" in done.stderr
    alive = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"}
    return not alive & set(done.stdout.split())
