"""Where Snakemake meets the study: what the Snakefile calls."""

import os
import sys

from assize import holder
from assize.errors import AssizeError, UsageError
from assize.kept_work import keep_work
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
        check_attempts(study.attempts, workflow.execution_settings.retries)
        keep_work(study, workflow)
        holder.take(study.root)
    except UsageError as error:
        raise WorkflowError(error.message, error.hint) from None
    freeze(study)


def check_attempts(attempts: int, retries: int) -> None:
    """Refuse a run that would record a void before it has tried as often as it was told to.

    A run that tries less often loses nothing: what failed has no record, and the next run makes it.

    Raises
    ------
    UsageError : ``attempts``, of which the last records an infrastructure failure, are not all that are made.
    """
    if attempts < retries + 1:
        raise UsageError(
            "bad_usage",
            f"--config attempts={attempts} and --retries {retries}: attempt {attempts} of {retries + 1} would record "
            "an infrastructure failure as void, and no other would follow",
            f"say --retries {attempts - 1}, or --config attempts={retries + 1} with what else the profile has there",
        )


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
