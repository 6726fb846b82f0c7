"""Where Snakemake meets the study: what the Snakefile calls."""

import os
import sys
from collections import Counter
from pathlib import Path

from assize import holder
from assize.differences import differences
from assize.errors import AssizeError, UsageError
from assize.profile import check_cores
from assize.records import read_record, write_record
from assize.study import RESULTS, Study, load_config, resolve

# What a profile or the command line may say with --config; all else is the study's own.
PROFILE_KEYS = {"resource_mode", "attempts"}


def open_study(workflow, config: dict) -> Study:
    """The study of this run, checked whole; exits with status 2 and every fault named where it is wrong.

    A job that the workflow started, on whatever node, takes the frozen study: a config that is edited meanwhile
    cannot change what is being run. Rules say ``python``, as a person would: that is made the Python of this workflow.
    """
    os.environ["PATH"] = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    try:
        *others, path = workflow.configfiles
        if others:
            raise UsageError("bad_usage", f"one study at a time: {', '.join(map(str, workflow.configfiles))}")
        own = load_config(path)
        unknown = sorted(set(config) - set(own) - PROFILE_KEYS)
        if unknown:
            allowed = ", ".join(sorted(PROFILE_KEYS))
            raise UsageError("bad_usage", f"--config {', '.join(unknown)}: not allowed; allowed: {allowed}")
        if workflow.is_main_process:
            study = Study(resolve(own, path, config.get("resource_mode")))
            if found := holder.clear_if_gone(study.root):
                print(found, file=sys.stderr)
        else:
            study = Study.read(RESULTS / own["name"] / "study.json")
        study.attempts = int(config.get("attempts", 1))
        study.config_file = os.path.relpath(path)
        return study
    except AssizeError as error:
        print(f"error: {error.message}", *([error.hint] if error.hint else []), sep="\n", file=sys.stderr)
        raise SystemExit(error.exit_status) from None


def begin(study: Study, workflow) -> None:
    """Hold the study for this run, and freeze it.

    A study that a live run holds stops this run, and so does work of an agent's that it would throw away, or a profile
    whose jobs would get unlike allocations.
    """
    from snakemake.exceptions import WorkflowError

    try:
        if workflow.non_local_exec:
            check_cores(study.frozen, workflow.resource_settings.cores)
        keep_work(study, workflow)
        holder.take(study.root)
    except UsageError as error:
        raise WorkflowError(error.message, error.hint) from None
    freeze(study)


def keep_work(study: Study, workflow) -> None:
    """Refuse a run that would have agents solve again what they have solved.

    Snakemake deletes the output of a job before it makes it again, and anything above an episode can be the reason: an
    edited limit, one more calibration, a new release of this workflow. What an agent did may have taken a night and
    cannot be had again. Solvers of the other kinds hand in the same each time.

    Raises
    ------
    UsageError : with what would be lost, what has changed, and the ways out.
    """
    settings = workflow.dag_settings
    if settings.forceall or settings.forcerun:
        return
    again = [job for job in workflow.dag.needrun_jobs() if job.rule.name == "solve" and _is_agents(Path(*job.output))]
    # What a run was cut off at is still marked as incomplete, and is no loss.
    again = [job for job in again if not workflow.async_run(workflow.persistence.incomplete(job))]
    lost = Counter(study.root / "episodes" / job.wildcards.benchmark / job.wildcards.condition for job in again)
    if lost:
        folders = ", ".join(f"{folder} ({count})" for folder, count in lost.items())
        raise UsageError(
            "work_lost",
            f"This run would have {lost.total()} episode(s) solved again and throw away what agents have handed in: "
            f"{folders}. {_what_changed(study)}",
            "To keep that work undo the change, or give the study another name. To have it solved again delete those "
            "folders, or say --forcerun prepare.",
        )


def _is_agents(path: Path) -> bool:
    """Whether a record of what a solver did says that an agent ended its work."""
    try:
        record = read_record(path, "solved")
    except UsageError:
        return False
    return record["solver"] == "command" and record["status"] == "done"


def _what_changed(study: Study) -> str:
    """In the words of the config, where it was that; Snakemake's dry-run gives a reason for each job."""
    try:
        before = read_record(study.root / "study.json", "study")
    except UsageError:
        before = study.frozen
    lines = [f"{place} was {one!r} and is {other!r}" for place, one, other in differences(before, study.frozen)]
    own = [line.removeprefix("config.") for line in lines if line.startswith("config.")]
    if not lines:
        return "The config is as it was: for the reasons see --dry-run --quiet host."
    return f"Since the last run: {'; '.join((own or lines)[:5])}."


def end(study: Study) -> None:
    """Give the study free."""
    holder.release(study.root)


def freeze(study: Study) -> None:
    """Write ``results/<study>/study.json``, which every command reads, unless it says the same already.

    No rule makes it: what depends on a file is made again when the file is, and adding a condition, an instance or a
    repeat must rerun nothing. What binds a grade is the digest of its terms, a param of its rule.
    """
    path = RESULTS / study.name / "study.json"
    try:
        same = read_record(path, "study") == study.frozen
    except UsageError:
        same = False
    if not same:
        write_record(path, study.frozen)
