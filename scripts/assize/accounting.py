"""Accounting: what the Slurm jobs that made a study's records used, of what they were given.

The records themselves name their jobs; Slurm is asked once for all of them. Its numbers are of whole Slurm jobs, each
of which may have made many records: every line says how many. They stand in a file of their own, since a grade never
changes and the census must come out the same wherever it is made.
"""

import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from assize import doctor
from assize.records import read_record
from assize.resources import parse_allocation
from assize.study import Episode, Study

# Which records make a rule's Slurm jobs known: prepare, solve and snapshot are one job, and the snapshot names it.
RULES = ("calibrate", "episode", "grade")
SACCT_FIELDS = "JobID,State,ElapsedRaw,AllocCPUS,NNodes,TotalCPU,NTasks,MaxRSS,ReqMem,JobName"
SQUEUE_FIELDS = "%i|%T|%M|%C"
# Ids in one command line: far below what a kernel takes as one argument (128 KiB).
CHUNK = 1000


@dataclass(frozen=True)
class Job:
    """One Slurm job, all its starts together. Times in seconds, memory in MiB; None is what Slurm does not say.

    ``max_rss_mb`` is what seff calls memory utilized: of the step with the largest task, that task's MaxRSS times the
    step's tasks. ``memory_mb`` is what the job asked for in all.
    """

    job_id: str
    state: str
    elapsed_s: int | None
    cpus: int | None
    cpu_s: float | None = None
    max_rss_mb: float | None = None
    memory_mb: float | None = None
    starts: int = 1

    @property
    def over(self) -> bool:
        return _over(self.state)


def _over(state: str) -> bool:
    """Whether what was used is known: a start that was requeued has ended, though its job has not."""
    from snakemake_executor_plugin_submitit.slurm import is_active

    return state == "REQUEUED" or not is_active(state)


@dataclass(frozen=True)
class Answer:
    """What Slurm said: ``source`` is sacct, squeue or none, ``reason`` why not the one before it."""

    source: str
    reason: str | None
    jobs: dict[str, Job]


# ------------------------------------------------------------ parsing: pure


def parse_seconds(text: str) -> float | None:
    """Seconds of Slurm's ``[days-][hours:]minutes:seconds[.fraction]``; None where it is no such time."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", text.strip())
    if not found:
        return None
    days, hours, minutes = (int(part or 0) for part in found.groups()[:3])
    return (days * 24 + hours) * 3600 + minutes * 60 + float(found[4])


def parse_count(text: str) -> int | None:
    """A whole number; None where Slurm says something else, or nothing."""
    return int(text) if text.isdecimal() else None


def parse_mb(text: str) -> float | None:
    """MiB of ``165321K`` or ``0.34M``; None where Slurm says nothing."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", text.strip())
    return (
        float(found[1]) * {"": 1 / (1 << 20), "K": 1 / 1024, "M": 1, "G": 1024, "T": 1 << 20}[found[2]]
        if found
        else None
    )


def parse_asked(text: str, cpus: int, nodes: int) -> float | None:
    """MiB of ReqMem. Slurm before 21.08 says it per CPU (``4Gc``) or per node (``4Gn``), later ones for the job."""
    each = {"c": cpus, "n": nodes}.get(text[-1:], 1)
    value = parse_mb(text.rstrip("cn"))
    return None if value is None else value * each


def parse_sacct(text: str) -> dict[str, Job]:
    """Job id -> job, of ``sacct --duplicates --parsable2 --noheader --format=SACCT_FIELDS``.

    A row without a dot begins a start of a job, and rows of its steps follow. A job that was requeued has a start each
    time; rows of an older job, whose id Slurm has given out again, are told by their name and left out.
    """
    starts: list[tuple[list[str], list[list[str]]]] = []
    for line in text.splitlines():
        row = line.split("|", 9)
        if len(row) < 10:
            continue
        if "." not in row[0]:
            starts.append((row, []))
        elif starts:
            starts[-1][1].append(row)
    jobs, names = {}, {}
    for row, steps in starts:
        job, name = _start(row, steps), row[9]
        earlier = jobs.get(job.job_id)
        same = earlier is not None and names[job.job_id] == name
        jobs[job.job_id], names[job.job_id] = _together(earlier, job) if same else job, name
    return jobs


def _start(row: list[str], steps: list[list[str]]) -> Job:
    job_id, state, elapsed, cpus, nodes, cpu, _, _, asked, _ = row
    state = state.split(" ")[0]
    sizes = [(size, parse_count(step[6]) or 1) for step in steps if (size := parse_mb(step[7])) is not None]
    size, tasks = max(sizes, default=(None, 1))
    used = parse_seconds(cpu)
    # A job that runs, and one of a site that gathers nothing, says 0 for what it does not know.
    known = _over(state) and (used or sizes)
    return Job(
        job_id,
        state,
        parse_count(elapsed),
        parse_count(cpus),
        cpu_s=used if known else None,
        max_rss_mb=round(size * tasks, 1) if size is not None else None,
        memory_mb=parse_asked(asked, parse_count(cpus) or 0, parse_count(nodes) or 0),
    )


def _together(first: Job, then: Job) -> Job:
    """Two starts of one job: times add up, of memory the larger counts."""

    def add(one, other):
        return None if one is None or other is None else one + other

    sizes = [size for size in (first.max_rss_mb, then.max_rss_mb) if size is not None]
    return replace(
        then,
        elapsed_s=add(first.elapsed_s, then.elapsed_s),
        cpu_s=add(first.cpu_s, then.cpu_s),
        max_rss_mb=max(sizes, default=None),
        starts=first.starts + 1,
    )


def parse_squeue(text: str) -> dict[str, Job]:
    """Job id -> job, of squeue's answer in SQUEUE_FIELDS: elapsed time and CPUs, and no more."""
    jobs = {}
    for line in text.splitlines():
        row = line.split("|")
        if len(row) == 4:
            elapsed = parse_seconds(row[2])
            jobs[row[0]] = Job(row[0], row[1], None if elapsed is None else int(elapsed), parse_count(row[3]))
    return jobs


def chunks(ids: Iterable[str], size: int = CHUNK) -> list[str]:
    """The ids as sacct's ``--jobs`` takes them; asked for an array, sacct answers for each of its tasks."""
    jobs = sorted({job.split("_")[0] for job in ids}, key=lambda job: (len(job), job))
    return [",".join(jobs[start : start + size]) for start in range(0, len(jobs), size)]


# ------------------------------------------------------------ asking: the edge


def ask(ids: set[str], wait_s: float = 30) -> Answer:
    """What Slurm knows of the jobs. sacct learns of a job's end some seconds late: it is asked until all are over, for
    ``wait_s`` seconds at most. The job that this process runs in is not waited for."""
    from snakemake_executor_plugin_submitit.slurm import queue_command

    if not ids:
        return Answer("none", "no record was made in a Slurm job", {})
    own = {(parse_allocation(os.environ) or {}).get("job_id")}
    until = time.monotonic() + wait_s
    while True:
        jobs, reason = _sacct(ids)
        if jobs is None:
            break
        late = [job for job in ids - own if job not in jobs or not jobs[job].over]
        if not late or time.monotonic() >= until:
            return Answer("sacct", None, jobs)
        time.sleep(1)
    said = doctor.ask(*queue_command(SQUEUE_FIELDS), seconds=120)
    if said.output is None:
        return Answer("none", f"{reason}; {said.complaint}", {})
    return Answer("squeue", reason, {job: facts for job, facts in parse_squeue(said.output).items() if job in ids})


def _sacct(ids: set[str]) -> tuple[dict[str, Job] | None, str | None]:
    jobs = {}
    for chunk in chunks(ids):
        command = ["sacct", "--duplicates", "--parsable2", "--noheader", f"--format={SACCT_FIELDS}", "--jobs", chunk]
        said = doctor.ask(*command, seconds=120)
        if said.output is None:
            return None, said.complaint
        jobs |= parse_sacct(said.output)
    return {job: facts for job, facts in jobs.items() if job in ids}, None


# ------------------------------------------------------------ the record


def read_makers(study: Study) -> list[tuple[str, Episode | None, str | None]]:
    """(Rule, episode, Slurm job id) of every record of the study that a Slurm job can have made, as the record says."""
    makers: list[tuple[str, Episode | None, str | None]] = []
    calibrations = {
        path
        for benchmark, section in study.benchmarks.items()
        for instance in section["instances"]
        for path in study.calibrations(benchmark, instance)
    }
    for path in sorted(path for path in calibrations if path.exists()):
        makers.append(("calibrate", None, _id(read_record(path, "calibration")["slurm"])))
    for episode in study.episodes():
        folder = study.episode_folder(episode)
        if (folder / "snapshot.json").exists():
            # Records of before snapshots named their job have no such field.
            makers.append(("episode", episode, _id(read_record(folder / "snapshot.json", "snapshot").get("slurm"))))
        if (folder / "grade.json").exists():
            makers.append(("grade", episode, _id(read_record(folder / "grade.json", "grade")["provenance"]["slurm"])))
    return makers


def _id(slurm: dict | None) -> str | None:
    return slurm["job_id"] if slurm else None


def account(study: Study, makers: list[tuple], answer: Answer, asked: str) -> dict:
    """The accounting record. Pure; ``asked`` is when Slurm was, in UTC."""
    records = Counter(job for _, _, job in makers if job)
    rules_of: dict[str, set[str]] = {}
    for rule, _, job in makers:
        if job:
            rules_of.setdefault(job, set()).add(rule)
    grades = []
    for rule, episode, job in makers:
        if rule == "grade":
            facts = answer.jobs.get(job)
            used = {key: getattr(facts, key, None) for key in ("state", "elapsed_s", "cpu_s", "max_rss_mb", "starts")}
            grades.append({**episode.as_json(), "job_id": job, **used, "records": records[job] if job else None})
    groups: dict[str, list[str]] = {}
    for job, rules in rules_of.items():
        groups.setdefault("+".join(rule for rule in RULES if rule in rules), []).append(job)
    return {
        "schema": "assize.accounting/1",
        "study": study.name,
        "study_digest": study.digest,
        "source": answer.source,
        "reason": answer.reason,
        "asked": asked,
        "grades": grades,
        "rules": [
            {"rule": rule, "records": sum(records[job] for job in jobs), **efficiency(jobs, answer.jobs)}
            for rule, jobs in sorted(groups.items())
        ],
    }


def efficiency(ids: list[str], jobs: dict[str, Job]) -> dict:
    """CPU and memory that jobs used of what they were given, as seff counts it.

    CPU efficiency is the CPU seconds used over elapsed time x CPUs, summed over the jobs of which both are known.
    Memory efficiency is that of the one job that used most of what it asked for: it is what a smaller request would
    have killed first.
    """
    known = [jobs[job] for job in ids if job in jobs]
    timed = [job for job in known if None not in (job.cpu_s, job.elapsed_s, job.cpus)]
    allocated = sum(job.elapsed_s * job.cpus for job in timed)
    used = round(sum(job.cpu_s for job in timed), 3)
    sized = [job for job in known if job.max_rss_mb is not None and job.memory_mb]
    largest = max(sized, key=lambda job: job.max_rss_mb / job.memory_mb, default=None)
    return {
        "jobs": len(ids),
        "jobs_measured": len(timed),
        "cpu_used_s": used if timed else None,
        "cpu_allocated_s": allocated if timed else None,
        "cpu_efficiency": round(used / allocated, 4) if allocated else None,
        "memory_used_mb": largest.max_rss_mb if largest else None,
        "memory_asked_mb": largest.memory_mb if largest else None,
        "memory_efficiency": round(largest.max_rss_mb / largest.memory_mb, 4) if largest else None,
    }


def print_table(record: dict) -> None:
    """Print the efficiency of each rule's Slurm jobs; nothing where no record was made in one."""
    from rich.console import Console
    from rich.table import Table

    if not record["rules"]:
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 110
    table = Table(title=f"Slurm jobs, by what they made (source: {record['source']})", title_justify="left")
    table.add_column("rule")
    for name in ("records", "Slurm jobs", "CPU s\nused / given", "CPU", "fullest job, MiB\nused / asked", "memory"):
        table.add_column(name, justify="right")
    for line in record["rules"]:
        table.add_row(
            line["rule"],
            str(line["records"]),
            str(line["jobs"]),
            _pair(line["cpu_used_s"], line["cpu_allocated_s"]),
            _share(line["cpu_efficiency"]),
            _pair(line["memory_used_mb"], line["memory_asked_mb"]),
            _share(line["memory_efficiency"]),
        )
    console.print(table)
    if record["reason"]:
        console.print(f"Not from sacct: {record['reason']}", soft_wrap=True, markup=False)
    unmeasured = sum(line["jobs"] - line["jobs_measured"] for line in record["rules"])
    if record["source"] == "sacct" and unmeasured:
        console.print(
            f"CPU time of {unmeasured} job(s) was not known at {record['asked']}: scripts/accounting.py asks again"
        )


def _pair(used: float | None, given: float | None) -> str:
    return "-" if used is None else f"{used:,.1f} / {given:,.0f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
