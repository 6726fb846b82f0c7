"""What agents have solved is not thrown away by a run that nobody meant to do that."""

from collections import Counter
from pathlib import Path

from assize.differences import differences
from assize.errors import UsageError
from assize.records import read_record
from assize.study import Study


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
