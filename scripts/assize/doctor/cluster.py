"""What a login node can tell of Slurm: whether it answers, and whether it would take and could start a study's jobs."""

import re
import shlex

from snakemake_executor_plugin_submitit.slurm import parse_array_size, parse_minutes

from assize.doctor import Answer, Finding, Needs, absent, ask, missing, ok

# Compact states (sinfo %t) of a node on which nothing starts until somebody acts; suffixes follow.
UNUSABLE = ("down", "drain", "drng", "fail", "maint", "unk", "inval")


def check_cluster(needs: Needs) -> list[Finding]:
    """All that holds for the whole cluster."""
    alive = decide_slurm(ask("scontrol", "ping"))
    if alive.status != "ok":
        return [alive]
    settings = needs.settings
    partitions = parse_partitions(ask("sinfo", "--noheader", "--format=%P|%a|%l").output or "")
    nodes = parse_nodes(ask("sinfo", "--noheader", "--Node", "--format=%P|%N|%t|%c|%m").output or "")
    findings = [
        alive,
        decide_partition(settings.get("partition"), partitions, needs.minutes),
        decide_allocation(settings.get("partition"), partitions, nodes, needs),
    ]
    user = ask("id", "-un").output.strip()
    shown = ask("sacctmgr", "-nP", "show", "assoc", f"user={user}", "format=Account,QOS,MaxSubmitJobs")
    for name in ("account", "qos"):
        if settings.get(name):
            findings.append(decide_association(name, str(settings[name]), shown))
    single = ask(*submission(needs, needs.minutes))
    minutes = group_minutes(needs, partitions)
    group = ask(*submission(needs, minutes)) if minutes > needs.minutes and single.output is not None else None
    findings.append(decide_submission(single, group, minutes, needs.profile))
    findings.append(decide_queue(needs, ask("scontrol", "show", "config"), shown))
    findings.append(decide_accounting(ask("sacct", "-X", "-n", "--starttime=now-1minutes", "--format=JobID")))
    return findings


def decide_slurm(ping: Answer) -> Finding:
    if ping.output is None or " UP" not in ping.output:
        said = (ping.output or ping.complaint).strip().splitlines()
        remedy = "load the site's Slurm (a module, or SLURM_CONF), or run with profiles/local"
        return missing("slurm", said[0] if said else "scontrol ping: no answer", remedy)
    return ok("slurm", ping.output.strip().splitlines()[0])


def parse_partitions(text: str) -> dict[str, tuple[bool, bool, int | None]]:
    """Partition -> (is the default, takes jobs, longest time in minutes or None), of ``sinfo --format=%P|%a|%l``."""
    found = {}
    for line in text.splitlines():
        row = line.split("|")
        if len(row) == 3:
            found[row[0].rstrip("*")] = (row[0].endswith("*"), row[1] == "up", parse_minutes(row[2]))
    return found


def chosen(setting, partitions: dict) -> list[str]:
    """The partitions that jobs go to: those of the setting, which may name several, or the default one."""
    if setting:
        return str(setting).split(",")
    return [name for name, (default, _, _) in partitions.items() if default]


def decide_partition(setting, partitions: dict, minutes: int) -> Finding:
    """The partition is there, takes jobs, and lets them run for as long as one grade may take."""
    names = chosen(setting, partitions)
    there = ", ".join(partitions) or "none"
    if not names:
        return missing("partition", f"this Slurm has no default; there are {there}", "set submitit-partition")
    for name in names:
        if name not in partitions:
            return missing("partition", f"there is no {name}; there are {there}", "correct submitit-partition")
        _, up, limit = partitions[name]
        if not up:
            return missing("partition", f"{name} takes no jobs now", "wait, or set submitit-partition to another one")
        if limit is not None and limit < minutes:
            said = f"{name} ends jobs after {limit} minutes, a grade may take {minutes}"
            return missing("partition", said, "set submitit-partition to one with longer jobs")
    limits = [partitions[name][2] for name in names]
    told = [
        f"{name} ({'no limit' if limit is None else f'{limit} minutes'})"
        for name, limit in zip(names, limits, strict=True)
    ]
    return ok("partition", ", ".join(told))


def parse_nodes(text: str) -> list[tuple[str, str, str, int, int]]:
    """(Partition, node, state, CPUs, MiB), of ``sinfo --Node --format=%P|%N|%t|%c|%m``."""
    rows = (line.split("|") for line in text.splitlines() if line.count("|") == 4)
    return [
        (row[0].rstrip("*"), row[1], row[2], *(int(re.sub(r"\D", "", cell) or 0) for cell in row[3:])) for row in rows
    ]


def decide_allocation(setting, partitions: dict, nodes: list, needs: Needs) -> Finding:
    """Some node of the partition can hold the allocation of an evaluator, and is in service."""
    names = chosen(setting, partitions)
    within = [node for node in nodes if node[0] in names]
    asked = f"{needs.cpus} CPUs and {needs.memory_mb} MiB"
    large = {node[1]: node[2] for node in within if node[3] >= needs.cpus and node[4] >= needs.memory_mb}
    if not large:
        most = max(((node[3], node[4]) for node in within), default=(0, 0))
        said = f"no node of {', '.join(names) or 'any partition'} has {asked}; the largest has {most[0]} and {most[1]}"
        return missing("allocation", said, "another partition, or a smaller `allocation` in the study (other terms)")
    ready = [name for name, state in large.items() if not state.startswith(UNUSABLE)]
    if not ready:
        said = f"the {len(large)} node(s) with {asked} are out of service ({', '.join(sorted(set(large.values())))})"
        return missing("allocation", said, "sinfo -R says why; wait, or set submitit-partition to another one")
    count = len({node[1] for node in within})
    return ok("allocation", f"{len(ready)} of {count} node(s) can hold {asked}")


def decide_association(name: str, value: str, shown: Answer) -> Finding:
    """The account, or quality of service, is one of the user's: sites without limits would take any word."""
    if not (shown.output or "").strip():
        why = shown.complaint or "sacctmgr lists nothing for this user"
        return absent(name, f"{value} could not be looked up ({why})", "Slurm says when it refuses a job")
    rows = [line.split("|") for line in shown.output.splitlines() if line.count("|") >= 1]
    known = {word for row in rows for word in row[0 if name == "account" else 1].split(",") if word}
    if value not in known:
        return missing(
            name, f"{value} is none of yours: {', '.join(sorted(known)) or 'none'}", f"correct submitit-{name}"
        )
    return ok(name, value)


def group_minutes(needs: Needs, partitions: dict) -> int:
    """What a group of grades asks for: the sum of its members' times, to the partition's limit at most."""
    limits = [partitions[name][2] for name in chosen(needs.settings.get("partition"), partitions) if name in partitions]
    return min([needs.group_minutes, *(limit for limit in limits if limit is not None)])


def submission(needs: Needs, minutes: int) -> list[str]:
    """The command that has Slurm check the job of a grade, or of a group of them, and start nothing."""
    settings = needs.settings
    flags = [f"--cpus-per-task={needs.cpus}", f"--mem={needs.memory_mb}M", f"--time={minutes}"]
    flags += [
        f"--{name}={settings[name]}" for name in ("partition", "account", "qos", "constraint") if settings.get(name)
    ]
    return ["sbatch", "--test-only", *flags, *shlex.split(str(settings.get("extra") or "")), "--wrap", "true"]


def decide_submission(single: Answer, group: Answer | None, minutes: int, profile: str) -> Finding:
    """Slurm would take a grade's job, and the longer one of a group of grades; ``group`` is None if there are none."""
    if single.output is None:
        remedy = f"correct the submitit settings of {profile}, or the study's allocation"
        return missing("submission", f"Slurm would refuse a grade's job: {single.complaint}", remedy)
    when = re.search(r"to start at (\S+)", single.output)
    told = f"Slurm would take a grade's job{f', and start it about {when[1]}' if when else ''}"
    if group is None:
        return ok("submission", told)
    if group.output is None:
        said = f"Slurm would take a grade's job, and refuse a group's of {minutes} minutes: {group.complaint}"
        return missing("submission", said, f"fewer grades in a group (group-components in {profile})")
    return ok("submission", f"{told}; a group's of {minutes} minutes too")


def decide_queue(needs: Needs, config: Answer, shown: Answer) -> Finding:
    """Whether Slurm takes as many jobs, and as large arrays of them, as the profile lets be in flight."""
    if needs.jobs is None:
        return ok("queue", f"jobs in {needs.profile} sets no limit")
    array = parse_array_size(config.output or "")
    rows = [line.split("|") for line in (shown.output or "").splitlines()]
    account = needs.settings.get("account")
    limits = {
        "MaxArraySize": [array] if array else [],
        "MaxSubmitJobs": [
            int(row[2]) for row in rows if len(row) == 3 and row[2].isdecimal() and account in (None, row[0])
        ],
    }
    small = [f"{name} is {min(found)}" for name, found in limits.items() if min(found, default=needs.jobs) < needs.jobs]
    if small:
        said = f"{' and '.join(small)}, and {needs.profile} lets {needs.jobs} jobs be in flight"
        return absent("queue", said, "fewer at a time take longer")
    return ok("queue", f"takes {needs.jobs} jobs at once")


def decide_accounting(answer: Answer) -> Finding:
    if answer.output is None:
        instead = "the executor and accounting.json ask squeue, which knows no CPU time and no memory"
        return absent("accounting", answer.complaint, instead)
    return ok("accounting", "sacct answers")
