"""The grades of a study as the audit page carries them: columns of small numbers into one table of strings. Pure."""

import shlex

from assize.chain import BROKEN, STATES, Link
from assize.report.text import visible
from assize.study import Study

VERDICTS = ("pass", "fail", "void")
# A grade with more checks keeps those that did not pass first; all of them are in its grade.json.
CHECKS_SHOWN = 60
EVIDENCE_SHOWN = 40


class Strings:
    """A table of strings, each kept once: ``strings(text)`` is its place."""

    def __init__(self):
        self.places: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.places.setdefault(text, len(self.places))

    def table(self) -> list[str]:
        return list(self.places)


def pack(study: Study, cases: list[dict], workflow: str) -> dict:
    """What the page's script reads.

    Parameters
    ----------
    cases : one an episode: ``episode``, ``grade`` (or None), ``row`` of the census, ``signatures``, ``faults`` (flags
        that name harness faults), ``links``.
    workflow : the options of snakemake that name the profile and the study's config, for the commands to paste.

    Returns
    -------
    ``strings``; ``rows``: [benchmark, condition, instance, repeat, verdict, status, reason, score, seconds,
    [signatures], [flags], snapshot]; ``details``: [facts, checks, number of checks, links, evidence, command].
    Names and texts are places in ``strings``; verdicts and states are places in VERDICTS and STATES.
    """
    strings = Strings()
    rows = [_row(strings, case) for case in cases]
    details = [_detail(strings, case) for case in cases]
    root = str(study.root)
    return {"root": root, "workflow": workflow, "rows": rows, "details": details, "strings": strings.table()}


def _row(strings: Strings, case: dict) -> list:
    episode, row = case["episode"], case["row"]
    return [
        strings(episode.benchmark),
        strings(episode.condition),
        strings(episode.instance),
        episode.repeat,
        VERDICTS.index(row["verdict"]),
        strings(visible(row["scoring_status"], 80)),
        strings(visible(row["reason"] or "")),
        row["score"],
        row["seconds"],
        [strings(visible(signature)) for signature in case["signatures"]],
        [strings(flag) for flag in flags(case)],
        strings(row["snapshot"] or ""),
    ]


def flags(case: dict) -> list[str]:
    """What an auditor may want to see first, whatever the verdict is."""
    grade = case["grade"]
    if grade is None:
        return ["not graded"]
    # What follows a colon says where in the grade: to the census too, it is no other flag.
    found = [f"tamper: {visible(name.partition(':')[0], 60)}" for name in grade["tamper"]]
    found += [f"reward: {visible(name.partition(':')[0], 60)}" for name in grade["flags"]]
    found += ["oracle exposed"] if grade["oracle_exposed"] else []
    found += ["protocol-sensitive"] if any(check.get("protocol_sensitive") for check in grade["checks"]) else []
    found += case["faults"]
    found += ["chain broken"] if any(link.state == BROKEN for link in case["links"]) else []
    return sorted(set(found))


def _detail(strings: Strings, case: dict) -> list:
    grade = case["grade"]
    if grade is None:
        return [[], [], 0, [], [], strings("")]
    checks = grade["checks"]
    if len(checks) > CHECKS_SHOWN:
        checks = sorted(checks, key=lambda check: check["verdict"] == "pass")[:CHECKS_SHOWN]
    return [
        [[strings(name), strings(visible(value, 600))] for name, value in facts(grade)],
        [_check(strings, check) for check in checks],
        len(grade["checks"]),
        [_link(strings, link) for link in case["links"]],
        [strings(name) for name in list(grade["evidence"])[:EVIDENCE_SHOWN]],
        strings(visible(grade["provenance"]["command"], 2000)),
    ]


def _check(strings: Strings, check: dict) -> list:
    return [
        strings(visible(check["id"], 160)),
        VERDICTS.index(check["verdict"]),
        strings(visible(str(check.get("signature") or ""))),
        strings(visible(_told({key: value for key, value in check.items() if key not in _CHECK_KEYS}))),
    ]


_CHECK_KEYS = ("id", "verdict", "signature")


def _link(strings: Strings, link: Link) -> list:
    return [
        strings(visible(link.name, 80)),
        STATES.index(link.state),
        strings(visible(link.value, 100)),
        strings(visible(link.note)),
    ]


def facts(grade: dict) -> list[tuple[str, str]]:
    """How and where a grade was made: (name, value), in words."""
    provenance, slurm, timing = grade["provenance"], grade["provenance"]["slurm"], grade["timing"]
    sandbox = provenance["sandbox"]
    lane = sandbox.get("lane", "none")
    if sandbox.get("image"):
        lane += f", image {sandbox['image']}"
    lane += {True: ", isolated", False: ", NOT isolated", None: ""}[sandbox.get("isolated")]
    where = "no Slurm job"
    if slurm:
        memory = "memory not accounted" if slurm["memory_mb"] is None else f"{slurm['memory_mb']} MiB"
        where = f"job {slurm['job_id']} on {slurm['node']}: {slurm['cpus']} CPUs, {memory}"
    found = [
        ("valid", "yes" if grade["valid"] else "no: it was not judged, and counts in no rate"),
        ("official score", "none" if grade["score"] is None else f"{grade['score']:.4g}"),
        ("sandbox", lane),
        ("resource mode", provenance["resource_mode"]),
        ("Slurm", where),
        ("started", f"{timing['started']}, took {timing['seconds']:.4g} s, attempt {provenance['attempt']}"),
        ("protocol version", provenance["protocol_version"]),
        *((key.replace("_", " "), "yes" if it else "NO") for key, it in provenance.items() if isinstance(it, bool)),
        ("versions", _told(provenance["versions"])),
    ]
    if grade["tamper"]:
        found.append(("tamper flags", ", ".join(grade["tamper"])))
    if grade["detail"]:
        found.append(("detail", _told(grade["detail"])))
    return found


def _told(values: dict) -> str:
    """``key value; key value``: what is empty is left out, what is nested stands in brackets."""
    words = []
    for key, value in values.items():
        if value is None or value is False or value == [] or value == {} or value == "":
            continue
        shown = f"({_told(value)})" if isinstance(value, dict) else _listed(value)
        words.append(f"{key.replace('_', ' ')} {shown}")
    return "; ".join(words)


def _listed(value) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def workflow_options(study: Study, config: str) -> str:
    """The options with which snakemake makes a grade of this study again."""
    mode = next(iter(study.benchmarks.values()))["terms"]["resource_mode"]
    profile = "profiles/slurm" if mode == "slurm" else "profiles/local"
    options = ["--profile", profile, "--configfile", config]
    if mode == "container":
        # No profile of the project asks for it: the study pins it, and the command line says it too.
        options += ["--config", "resource_mode=container", "attempts=3"]
    return shlex.join(options)
