"""What the executor asks Slurm for, and how it reads the answers: literal output of Slurm 22.05."""

import os
import subprocess
from types import SimpleNamespace

import pytest
from snakemake_executor_plugin_submitit import (
    Executor,
    ExecutorSettings,
    clear_allocation,
    journal,
    node,
    queues,
    slurm,
)
from snakemake_executor_plugin_submitit.groups import Groups, unfinished
from snakemake_executor_plugin_submitit.slurm import Outcome, Shape

SETTINGS = SimpleNamespace(partition=None, account=None, qos=None, constraint=None, extra=None)

# sacct -X --parsable2 --noheader --format=JobID,State,ExitCode,NodeList,JobName
ACCOUNTING = """\
33|COMPLETED|0:0|vm|grade-1
35|CANCELLED by 0|0:0|vm|grade-1
36|CANCELLED by 1000|0:15|None assigned|grade-1
38_0|COMPLETED|0:0|vm|grade-1
38_1|RUNNING|0:0|vm|grade-1
38_[2-4,7%2]|PENDING|0:0|None assigned|grade-1
41|TIMEOUT|0:0|vm|grade-1
42|OUT_OF_MEMORY|0:125|vm|grade-1
43|NODE_FAIL|1:0|vm|grade-1
44|PREEMPTED|0:15|vm|a|b
45.batch|COMPLETED|0:0|vm|batch
"""

# squeue --me --array --states=all --noheader --format=%i|%T|%r|%j
QUEUE = """\
38_2|PENDING|Resources|grade-0bc067b3-1
38_1|RUNNING|None|grade-0bc067b3-1
44|PENDING|Priority|a|b
113|SPECIAL_EXIT|job requeued in special exit state|grade-3fd59daa-1
114|REQUEUE_HOLD|job requeued in held state|grade-3fd59daa-1
115|PENDING|QOSMaxWallDurationPerJobLimit|grade-3fd59daa-2
116|PENDING|QOSMaxWallDurationPerJobLimit|grade-3fd59daa-2
117|PENDING|AssocMaxJobsLimit|grade-3fd59daa-2
112|PENDING|launch failed requeued held|grade-3fd59daa-1
"""


def test_accounting_is_read_with_arrays_expanded_and_steps_left_out():
    states = slurm.parse_accounting(ACCOUNTING)
    assert set(states) == {"33", "35", "36", "41", "42", "43", "44"} | {f"38_{index}" for index in (0, 1, 2, 3, 4, 7)}
    assert states["38_7"] == "PENDING|0:0|None assigned"
    assert slurm.word_of(states["36"]) == "CANCELLED"
    assert states["43"] == "NODE_FAIL|1:0|vm"


def test_a_row_of_another_name_is_of_an_old_job():
    assert set(slurm.parse_accounting(ACCOUNTING, {"a|b", "grade-2"})) == {"44"}


@pytest.mark.parametrize("text", ["", "sacct: error: problem\n", "38_[0-9,...]|PENDING|0:0|\n", "||\n"])
def test_what_is_no_answer_names_no_job(text):
    assert set(slurm.parse_accounting(text)) <= {""}


def test_tasks_cancelled_before_their_start_share_a_row():
    states = slurm.parse_accounting("75_0|CANCELLED by 0|0:15|vm|a\n75|CANCELLED by 0|0:0|None assigned|a\n")
    assert slurm.state_of("75_0", states) == "CANCELLED by 0|0:15|vm"
    assert slurm.state_of("75_42", states) == "CANCELLED by 0|0:0|None assigned"
    assert slurm.state_of("76_0", states) is None


def test_the_queue_is_read_with_any_job_name():
    assert slurm.parse_queue(QUEUE)[1:3] == [("38_1", "RUNNING", "grade-0bc067b3-1"), ("44", "PENDING", "a|b")]
    assert slurm.parse_queue("slurm_load_jobs error: Unable to contact slurm controller\n") == []


@pytest.mark.parametrize("job", ["112", "113", "114"])
def test_a_job_that_slurm_holds_for_ever_has_failed(job):
    state = {id: state for id, state, _ in slurm.parse_queue(QUEUE)}[job]
    assert state in slurm.HELD
    assert slurm.outcome("PENDING|0:0|None assigned", state, asked_queue=True) is Outcome.FAILURE


def test_what_a_job_pends_for_in_vain_is_found_with_its_remedy():
    assert slurm.parse_hopeless(QUEUE) == dict.fromkeys(["115", "116"], "QOSMaxWallDurationPerJobLimit")
    assert "ask for less time" in slurm.remedy("QOSMaxWallDurationPerJobLimit")


@pytest.mark.parametrize(
    "reason",
    ["AssocMaxWallDurationPerJobLimit", "PartitionTimeLimit", "BadConstraints", "QOSMaxCpuPerJobLimit", "JobHeldUser"]
    + ["QOSMaxMemoryPerJob", "InvalidAccount", "AssocMaxNodePerJobLimit"],
)
def test_some_reasons_do_not_pass(reason):
    assert slurm.remedy(reason)


@pytest.mark.parametrize(
    "reason", ["Priority", "Resources", "None", "BeginTime", "QOSGrpCpuLimit", "QOSMaxJobsPerUserLimit", "Licenses"]
)
def test_other_reasons_pass(reason):
    assert slurm.remedy(reason) is None


FAILURES = ["BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"]


@pytest.mark.parametrize("state", [*FAILURES, "CANCELLED by 1000", "CANCELLED+"])
def test_every_end_ends_a_job(state):
    assert slurm.outcome(f"{state}|0:15|vm", None, asked_queue=True) is Outcome.FAILURE
    # Without accounting, the queue's word is the last.
    assert slurm.outcome(None, state, asked_queue=True) is Outcome.FAILURE


@pytest.mark.parametrize(
    ("accounted", "queued", "asked", "expected"),
    [
        ("COMPLETED|0:0|vm", None, False, Outcome.SUCCESS),
        (None, "COMPLETED", True, Outcome.SUCCESS),
        ("RUNNING|0:0|vm", None, False, Outcome.ACTIVE),
        (None, "PENDING", True, Outcome.ACTIVE),
        # Preempted, or its node lost, and requeued.
        ("PREEMPTED|0:15|vm", "PENDING", True, Outcome.ACTIVE),
        ("NODE_FAIL|1:0|vm", "RUNNING", True, Outcome.ACTIVE),
        ("NODE_FAIL|1:0|vm", "NODE_FAIL", True, Outcome.FAILURE),
        # Its end is not over yet.
        ("CANCELLED by 0|0:0|vm", "COMPLETING", True, Outcome.ACTIVE),
        # Accounting never heard of its end, or has not heard of it yet.
        ("RUNNING|0:0|vm", None, True, Outcome.UNKNOWN),
        ("RUNNING|0:0|vm", "COMPLETED", True, Outcome.SUCCESS),
        (None, None, True, Outcome.UNKNOWN),
        # squeue was asked and did not answer: it may be that Slurm starts them again.
        (None, None, False, Outcome.ACTIVE),
        ("NODE_FAIL|1:0|vm", None, False, Outcome.ACTIVE),
        ("PREEMPTED|0:15|vm", None, False, Outcome.ACTIVE),
        ("BOOT_FAIL|0:0|vm", None, False, Outcome.ACTIVE),
        ("REQUEUED|0:0|vm", None, False, Outcome.ACTIVE),
        ("FAILED|1:0|vm", None, False, Outcome.ACTIVE),
        ("REQUEUED|0:0|vm", "PENDING", True, Outcome.ACTIVE),
        # A state that no Slurm of today has.
        ("POWERING_UP|0:0|vm", "POWERING_UP", True, Outcome.ACTIVE),
    ],
)
def test_what_became_of_a_job(accounted, queued, asked, expected):
    assert slurm.outcome(accounted, queued, asked) is expected


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("1-00:00:00", 1440), ("2-03:30:00", 3090), ("1:30:00", 90), ("30:00", 30), ("infinite", None), ("n/a", None)],
)
def test_time_limits(text, minutes):
    assert slurm.parse_minutes(text) == minutes


def test_the_default_partitions_limit_is_found_by_no_name():
    limits = slurm.parse_limits("short*|4:00:00\nlong|7-00:00:00\nany|infinite\n")
    assert limits == {"short": 240, None: 240, "long": 10080, "any": None}


def test_a_job_goes_before_the_settings():
    settings = SimpleNamespace(partition="main", account="lab", qos="low", constraint=None, extra="--nice=5")
    resources = {"mem_mb": 30720, "runtime": 600, "slurm_partition": "short", "slurm_extra": "--exclusive"}
    shape = slurm.shape_of(resources, 16, settings, limit=240)
    assert shape == Shape(16, 30720, 240, "short", "lab", "low", None, "--exclusive")
    parameters = shape.parameters()
    assert (parameters["mem"], parameters["time"], parameters["cpus_per_task"]) == ("30720M", 240, 16)
    assert parameters["additional_parameters"] == {"requeue": True, "exclusive": True}


def test_nothing_is_asked_for_that_nobody_said():
    shape = slurm.shape_of({}, 0, SETTINGS)
    assert shape == Shape(1, None, None)
    asked = {name for name, value in shape.parameters().items() if value is not None}
    assert asked == {"cpus_per_task", "additional_parameters", "use_srun", "stderr_to_stdout"}


def test_flags_are_taken_in_both_spellings():
    text = "--nice=10 --exclusive --gres gpu:1 --comment='two words'"
    flags = {"nice": "10", "exclusive": True, "gres": "gpu:1", "comment": "two words"}
    assert slurm.parse_flags(text) == flags


@pytest.mark.parametrize("text", ["-p short", "nice", "--nice=1 2"])
def test_other_flags_are_refused(text):
    with pytest.raises(ValueError, match="only --name"):
        slurm.parse_flags(text)


def test_the_jobs_name_is_not_the_users_to_give():
    with pytest.raises(ValueError, match="--job-name"):
        slurm.parse_flags("--nice=1 --job-name=mine")


@pytest.mark.parametrize(
    "error",
    ["Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"]
    + ["Batch job submission failed: Socket timed out on send/recv operation", "Slurm temporarily unable to accept job"]
    + ["Batch job submission failed: Invalid job array specification", "Invalid authentication credential"]
    + ["Unable to contact slurm controller (connect failure)", "Required partition not available (inactive or drain)"],
)
def test_some_refusals_pass(error):
    assert not slurm.REFUSED_FOR_GOOD.search(error)


@pytest.mark.parametrize(
    "error",
    ["Invalid account or account/partition combination specified", "invalid partition specified: gpu"]
    + ["Invalid qos specification", "Requested node configuration is not available", "Invalid feature specification"]
    + ["Memory specification can not be satisfied", "Requested time limit is invalid (missing or exceeds some limit)"]
    + ["CPU count per node can not be satisfied", "User's group not permitted to use this partition"]
    + ["sbatch: unrecognized option '--nicce'"],
)
def test_other_refusals_are_for_good(error):
    assert slurm.REFUSED_FOR_GOOD.search(error)


def test_a_refused_batch_is_tried_in_halves_and_ever_later_but_not_for_ever():
    patience, now, waits = queues.Patience(500), 1000.0, []
    while patience.refused(min(100, patience.largest), now, busy=False):
        waits.append(patience.until - now)
        now = patience.until
    assert waits[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert patience.largest == 1
    assert now - 1000 >= patience.most
    # The next attempt of the same jobs has as little hope; a submission that goes well gives it back.
    assert not patience.refused(1, now + 60, busy=False)
    patience.accepted()
    assert patience.refused(1, now + 120, busy=False)


def test_what_waits_for_the_end_of_our_own_jobs_is_not_given_up():
    patience = queues.Patience(500)
    assert all(patience.refused(10, now, busy=True) for now in range(0, 100_000, 60))


@pytest.mark.parametrize(("config", "largest"), [("1001", 500), ("51", 51), ("0", 1), (None, 500)])
def test_an_array_is_no_larger_than_this_slurm_takes(monkeypatch, config, largest):
    text = config and f"MaxArrayTasks           = 7\nMaxArraySize            = {config}\nMaxDBDMsgs = 20016\n"
    monkeypatch.setattr(slurm, "run", lambda command: text if command == ["scontrol", "show", "config"] else None)
    assert queues.SlurmQueue().largest_batch == largest


def test_other_clusters_are_asked_where_jobs_go_there(monkeypatch):
    monkeypatch.delenv("SLURM_CLUSTERS", raising=False)
    assert "--clusters" not in slurm.accounting_command(["7_1", "7_2"])
    monkeypatch.setenv("SLURM_CLUSTERS", "north,south")
    command = slurm.accounting_command(["7_1", "7_2"])
    assert command[command.index("--clusters") + 1] == "north,south"
    assert command[-2:] == ["--jobs", "7"]


def test_the_controllers_own_allocation_is_forgotten():
    environment = {
        "SLURM_CLUSTERS": "north",
        "SLURM_JOB_ID": "7",
        "SLURM_CONF": "c",
        "SBATCH_TIMELIMIT": "1",
        "SRUN_CPUS_PER_TASK": "1",
        "HOME": "/",
    }
    clear_allocation(environment)
    assert environment == {"SLURM_CONF": "c", "HOME": "/", "SLURM_CLUSTERS": "north"}


def test_what_hangs_together_with_unfinished_work_is_made_again():
    needs = {"p1": [], "s1": ["p1"], "p2": ["other"], "s2": ["p2"], "p3": [], "s3": ["p3"]}
    assert unfinished(needs, {"p1", "s1", "p2"}, needs.get) == {"p2", "s2", "p3", "s3"}
    assert unfinished(needs, set(needs), needs.get) == set()


def test_a_task_makes_otherwise_what_has_another_content():
    task = journal.Task("7", 0, None, {"a": "1", "b": "2"}, "grade-run-1")
    assert not task.makes_otherwise({"a": "1", "c": "3"})
    assert task.makes_otherwise({"a": "1", "b": "3"})


class Workflow:
    """As much of Snakemake's as ``Groups`` and a look at a dead controller's jobs need."""

    def __init__(self):
        self.dag = None
        self.marked = set()
        self.persistence = SimpleNamespace(incomplete=lambda job: self.marked & set(job.output))
        self.execution_settings = SimpleNamespace(latency_wait=60)

    def async_run(self, found):
        return found


class Job(SimpleNamespace):
    __hash__ = object.__hash__

    def is_group(self):
        return False


def test_what_a_finished_task_made_is_waited_for_until_it_is_seen(tmp_path):
    """As on a file system that shows a new file late, and late that a mark is gone."""
    late = tmp_path / "late"
    job, workflow = Job(output=[str(late)]), Workflow()
    executor = SimpleNamespace(workflow=workflow, groups=Groups(workflow))
    info = SimpleNamespace(job=job, aux={"made": {str(late)}})
    assert not Executor.is_seen(executor, info)
    late.touch()
    workflow.marked = {str(late)}
    assert not Executor.is_seen(executor, info)
    workflow.marked = set()
    assert Executor.is_seen(executor, info)
    # Not for ever, and not for what no task has made.
    late.unlink()
    assert Executor.is_seen(executor, SimpleNamespace(job=job, aux={"made": set()}))
    assert Executor.is_seen(executor, SimpleNamespace(job=job, aux={"made": {str(late)}, "until": 0.0}))


def make_batch(folder, ids):
    folder.mkdir(parents=True)
    journal.write_batch(folder, "grade-run-1", "slurm", [{"a": "1"}, {"b": "2"}], ids)
    for index, id in enumerate(ids or ["7_0", "7_1"]):
        for name in (f"{index}.sh", f"{id}_submitted.pkl", f"{id}_0_log.out"):
            (folder / name).write_text("")
    (folder / "7_submission.sh").write_text("")
    (folder / ".submission_file_0.sh").symlink_to(folder / "7_submission.sh")


@pytest.mark.parametrize("ids", [["7_0", "7_1"], None])
def test_a_later_controller_finds_the_tasks_even_by_their_name(tmp_path, ids):
    make_batch(tmp_path / "run" / "1", ids)
    named = {"grade-run-1": ["7_1"]}
    found = {task.id: (task.index, task.outputs) for task in journal.read_batches(tmp_path, "slurm", named)}
    assert {task.name for task in journal.read_batches(tmp_path, "slurm", named)} == {"grade-run-1"}
    both = {"7_0": (0, {"a"}), "7_1": (1, {"b"})}
    assert found == (both if ids else {"7_1": both["7_1"]})
    assert list(journal.read_batches(tmp_path, "local", named)) == []


def test_files_of_a_success_go_those_of_a_failure_and_others_stay(tmp_path):
    root = tmp_path / "submitit"
    make_batch(root / "run" / "1", ["7_0", "7_1"])
    (root / "run" / "1" / "mine").write_text("")
    first, second = journal.read_batches(root, "slurm", {})
    journal.forget(first, keep_log=False)
    assert (root / "run" / "1" / "batch.json").exists()
    journal.forget(second, keep_log=True)
    assert {path.name for path in (root / "run" / "1").iterdir()} == {"mine", "1.sh", "7_1_0_log.out"}


def test_nothing_is_left_of_a_run_without_failures(tmp_path):
    root = tmp_path / "submitit"
    make_batch(root / "run" / "1", ["7_0", "7_1"])
    for task in list(journal.read_batches(root, "slurm", {})):
        journal.forget(task, keep_log=False)
    assert not root.exists()


def test_a_cluster_that_is_none_is_refused():
    from snakemake_interface_common.exceptions import WorkflowError

    with pytest.raises(WorkflowError, match="one of slurm, local and auto"):
        ExecutorSettings(cluster="pbs")


def in_bash(preamble, then='echo "$TMPDIR"', **environment):
    """Status, output and errors of a task that begins with the preamble."""
    environment = {"PATH": os.environ["PATH"], "TMPDIR": "/tmp"} | environment
    done = subprocess.run(["bash", "-c", preamble + then], env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def test_without_settings_nothing_comes_before_the_command():
    assert node.preamble(None, None) == node.preamble("", "") == ""


@pytest.mark.parametrize(
    ("variables", "id"),
    [
        ({"SLURM_JOB_ID": "8", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}, "7_1"),
        ({"SLURM_JOB_ID": "7"}, "7"),
    ],
)
def test_a_task_forgets_the_end_of_an_earlier_start_of_its_own(tmp_path, variables, id):
    folder = tmp_path / "with space"
    folder.mkdir()
    names = ["7_0_result.pkl", "7_1_0_result.pkl", "7_10_0_result.pkl"]
    for name in names:
        (folder / name).touch()
    script = node.script(str(folder), None, None, str(tmp_path), "pwd")
    status, output, errors = in_bash("", script, HOME=str(tmp_path), **variables)
    assert (status, output, errors) == (0, str(tmp_path), "")
    assert sorted(path.name for path in folder.iterdir()) == sorted({*names} - {f"{id}_0_result.pkl"})


@pytest.mark.parametrize(
    ("variables", "cache"),
    [({}, None), ({"HOME": "/proc/none"}, ".snakemake/cache"), ({"XDG_CACHE_HOME": "/proc/none"}, ".snakemake/cache")],
)
def test_snakemakes_cache_is_in_the_home_where_there_is_one(tmp_path, variables, cache):
    """Commands look there for theirs."""
    (tmp_path / "home").mkdir()
    script = node.script(str(tmp_path), None, None, str(tmp_path), "echo ${XDG_CACHE_HOME:-none}")
    status, output, errors = in_bash("", script, **{"HOME": str(tmp_path / "home")} | variables)
    assert (status, output, errors) == (0, str(tmp_path / cache) if cache else "none", "")


def test_a_scratch_directory_is_expanded_where_the_task_runs(tmp_path):
    (tmp_path / "with space").mkdir()
    status, output, _ = in_bash(node.preamble(None, "$PLACE/with space"), PLACE=str(tmp_path))
    assert (status, output) == (0, f"{tmp_path}/with space")


@pytest.mark.parametrize("scratch", ["/missing/$USER", "relative", "/tmp/$NOT_SET", "/etc/passwd"])
def test_a_scratch_directory_that_is_none_ends_the_task(scratch):
    status, output, errors = in_bash(node.preamble(None, scratch), USER="ada")
    assert (status, output) == (1, "")
    assert f"submitit-scratch: {scratch}" in errors.replace("'", "")
    assert "no directory that" in errors


@pytest.mark.parametrize("scratch", ['/x"; rm -rf /"', "/`id`", "/x\ny"])
def test_a_scratch_directory_with_a_script_in_it_is_refused(scratch):
    from snakemake_interface_common.exceptions import WorkflowError

    with pytest.raises(WorkflowError, match="submitit-scratch"):
        ExecutorSettings(scratch=scratch)


def test_modules_are_loaded_before_the_command():
    """As from a login shell that exports its functions; what a module sets is there for the command."""
    function = {"BASH_FUNC_module%%": '() { [ "$2" != absent ] && export LOADED="$LOADED $2"; }'}
    status, output, _ = in_bash(
        node.preamble("module load gcc/12\nmodule load podman", None), "echo $LOADED", **function
    )
    assert (status, output) == (0, "gcc/12 podman")
    status, output, errors = in_bash(node.preamble("module load absent\nmodule load podman", None), **function)
    assert (status, output) == (1, "")
    assert "submitit-modules: module load absent failed on" in errors.replace("'", "")


def test_where_module_is_no_function_its_definition_is_looked_for(tmp_path):
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "bash").write_text("module() { export LOADED=$2; }\n")
    status, output, _ = in_bash(node.preamble("module load podman", None), "echo $LOADED", MODULESHOME=str(tmp_path))
    assert (status, output) == (0, "podman")


@pytest.mark.skipif(any(map(os.path.exists, node.INIT_FILES)), reason="this machine has environment modules")
def test_where_there_is_no_module_at_all_that_is_said():
    status, output, errors = in_bash(node.preamble("module load podman", None))
    assert (status, output) == (1, "")
    assert "submitit-modules: no function module" in errors
    # Lines that need none do not miss it.
    assert in_bash(node.preamble("export TOOLS=/opt/modules", None), "echo $TOOLS")[:2] == (0, "/opt/modules")
