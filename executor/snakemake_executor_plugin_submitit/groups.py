"""What is done of a group of jobs, and what of it must run again."""

import hashlib
import json
import os
from collections.abc import Iterable


def unfinished(jobs: Iterable, done: set, needs) -> set:
    """The jobs of a group that must run again: all that hang together with one that is not done.

    What a job leaves for the next one in its chain may have stayed on the node. ``needs(job)`` gives the jobs that it
    depends on, of this group or not.
    """
    jobs = set(jobs)
    left, found = jobs - done, set()
    neighbours = {job: set() for job in jobs}
    for job in jobs:
        for other in jobs.intersection(needs(job)):
            neighbours[job].add(other)
            neighbours[other].add(job)
    while left:
        job = left.pop()
        found.add(job)
        left |= neighbours[job] - found
    return found


def members_of(job) -> list:
    return list(job.jobs) if job.is_group() else [job]


def outputs_of(job) -> set[str]:
    return {str(file) for member in members_of(job) for file in member.output}


def exists(path: str) -> bool:
    """Over a network a missing file may be remembered as missing for a minute; a folder that is read is asked anew."""
    if os.path.exists(path):
        return True
    try:
        os.listdir(os.path.dirname(path) or ".")
    except OSError:
        return False
    return os.path.exists(path)


class Groups:
    """What tasks have done, by the files and Snakemake's marks: each job is marked as incomplete before it is
    submitted, and Snakemake inside the task removes the mark with the job's success."""

    def __init__(self, workflow):
        self.workflow, self.dag = workflow, workflow.dag
        # Jobs that a task of an earlier run makes, but not as this run would: what it leaves does not count as done.
        self.outdated: set = set()

    def content(self, job) -> str:
        """A digest of all that Snakemake would make a job again for: its code, params and the names of its inputs."""
        of = self.workflow.persistence
        parts = [of._code(job.rule), of._params(job), of._input(job)]
        return hashlib.sha256(json.dumps(parts, default=repr).encode()).hexdigest()

    def contents(self, job) -> dict[str, str]:
        """By output of a job or of a group's members: ``content``."""
        return {str(file): self.content(member) for member in members_of(job) for file in member.output}

    def remaining(self, job):
        """The job, or of a group that was tried before the part that is not done; None where all is."""
        if not job.is_group():
            return None if self.done([job]) else job
        # As it was before its failure; see ``spare``.
        job.toposorted = None
        job.finalize()
        left = self.unfinished(job)
        if not left or len(left) == len(job.jobs):
            return job if left else None
        return self.part(job, left)

    def part(self, group, members: set):
        part = type(group)(group.groupid, frozenset(members), group.global_resources)
        part.attempt = group.attempt
        part.finalize()
        return part

    def spare(self, job) -> set:
        """Hide from Snakemake what is done of a group that failed, since it would remove the outputs of all members.
        Gives what is hidden."""
        if not job.is_group():
            return set()
        left = self.unfinished(job)
        layers = [[member for member in layer if member in left] for layer in job.toposorted]
        job.toposorted = [layer for layer in layers if layer]
        return set(job.jobs) - left

    def unfinished(self, group) -> set:
        return unfinished(group.jobs, self.done(group.jobs), lambda member: self.dag.dependencies[member])

    def done(self, jobs) -> set:
        """Those of the jobs whose files are there, and no longer marked as incomplete."""
        # Processes inside the tasks remove the marks of what they complete; this one must not remember them.
        self.workflow.persistence._incomplete_cache = None
        return {job for job in jobs if job not in self.outdated and self._is_done(job)}

    def _is_done(self, job) -> bool:
        there = job.output and all(exists(str(file)) for file in job.output)
        return bool(there) and not self.workflow.async_run(self.workflow.persistence.incomplete(job))
