"""Studies: what a config may say, how faults are named, and what a change of it binds."""

import copy

import pytest
import yaml

from assize.benchmarks import known_benchmarks, load_benchmark
from assize.errors import UsageError
from assize.records import ROOT, schema_faults
from assize.study import Episode, Study, load_config, memory_mb, resolve, solver_of
from assize.workflow import check_attempts

DEFAULT = load_config(ROOT / "config" / "study.yaml")
# The local ProgramBench study's tasks are built first: tests/workflow/test_programbench.py runs it.
STUDIES = [
    ROOT / "config" / "study.yaml",
    *(path for path in sorted((ROOT / "config" / "studies").glob("*.yaml")) if path.stem != "programbench-local"),
]


def changed(**changes):
    return copy.deepcopy(DEFAULT) | changes


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_study_in_config_resolves(path):
    frozen = resolve(load_config(path), path)
    assert schema_faults(frozen, "study") == []
    assert len(Study(frozen).episodes()) > 0


def test_every_benchmark_has_a_schema_and_an_adapter():
    for name in known_benchmarks():
        assert load_benchmark(name).name == name
        assert (ROOT / "config" / "schemas" / f"benchmark-{name}.schema.json").exists()
        assert (ROOT / "scripts" / f"{name}_adapter.py").exists()


def test_all_faults_of_a_config_are_named_at_once():
    config = changed(name="a b", repeats=0, extra=1, allocation={"memory": "30"})
    config["conditions"]["reference"] = {"solver": "magic"}
    with pytest.raises(UsageError) as caught:
        resolve(config, "x.yaml")
    message = str(caught.value)
    assert message.startswith("x.yaml: 5 fault(s):")
    for expected in (
        'name: "a b" is not allowed',
        "repeats: 0 is not allowed; allowed: minimum 1",
        "unknown key extra",
        'allocation.memory: "30" is not allowed',
        'conditions.reference.solver: "magic" is not allowed; allowed: reference, noop, replay, command',
    ):
        assert expected in message, message


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"benchmarks": {"chess": {}}}, "benchmarks.chess: there is no such benchmark; allowed: command"),
        ({"benchmarks": {"command": {"suite": {"path": "none.json"}}}}, "benchmarks.command.suite.path"),
        ({"benchmarks": {"command": {"suite": {"dataset": "x"}}}}, "suite.dataset: 'x' is no dataset"),
        (
            {"benchmarks": {"command": {"suite": {"path": "config/suites/starter.json"}, "instances": ["x"]}}},
            "instances: no task x; allowed: interval-merge-python",
        ),
        (
            {"benchmarks": {"command": DEFAULT["benchmarks"]["command"] | {"sandbox": {"lane": "container"}}}},
            "sandbox.image: the container lane needs one",
        ),
        (
            {"conditions": {"a": {"solver": "replay", "submissions": {"x": "y"}}}},
            "conditions.a.submissions: missing command",
        ),
        (
            {"conditions": {"a": {"solver": "replay", "submissions": {"command": "none.json"}}}},
            "conditions.a.submissions: none.json: no such file",
        ),
        (
            {"conditions": {"a": {"solver": "noop", "benchmarks": ["x"]}}},
            "conditions.a.benchmarks: 'x' is not in the study",
        ),
        ({"conditions": {"a/b": {"solver": "noop"}}}, "conditions"),
        ({"name": "staged"}, "name"),
        ({"resource_mode": "container"}, "resource_mode: container has no engine to enforce it in benchmarks.command"),
    ],
)
def test_a_name_that_refers_to_nothing_is_a_fault(change, expected):
    with pytest.raises(UsageError) as caught:
        resolve(changed(**change), "x.yaml")
    assert expected in str(caught.value)


def test_a_profile_cannot_change_a_mode_that_the_study_pins():
    assert resolve(DEFAULT, "x")["benchmarks"]["command"]["terms"]["resource_mode"] == "none"
    assert resolve(DEFAULT, "x", "slurm")["benchmarks"]["command"]["terms"]["resource_mode"] == "slurm"
    with pytest.raises(UsageError, match="the study pins 'slurm' and the profile asks for 'none'"):
        resolve(changed(resource_mode="slurm"), "x", "none")


@pytest.mark.parametrize("text", ["a: 1\na: 2\n", "- 1\n", "a: [\n", "x: {a: 1, a: 2}\n"])
def test_a_file_that_is_no_mapping_or_gives_a_key_twice_is_refused(tmp_path, text):
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=str(path)):
        load_config(path)


def terms(config) -> str:
    return Study(resolve(config, "x")).terms_digest("command")


def test_conditions_instances_and_repeats_are_no_terms():
    more = changed(repeats=3)
    more["conditions"]["again"] = {"solver": "noop"}
    more["benchmarks"]["command"]["instances"] = ["run-length-c"]
    assert terms(more) == terms(DEFAULT)


@pytest.mark.parametrize(
    "change",
    [
        {"allocation": {"cpus": 8}},
        {"resource_mode": "slurm"},
        {"benchmarks": {"command": DEFAULT["benchmarks"]["command"] | {"sandbox": {"lane": "subprocess"}}}},
        {"benchmarks": {"command": DEFAULT["benchmarks"]["command"] | {"sandbox": {"limits": {"wall_s": 9}}}}},
    ],
)
def test_lane_limits_mode_and_allocation_are_terms(change):
    assert terms(changed(**change)) != terms(DEFAULT)


def test_a_suite_is_bound_by_its_bytes(tmp_path):
    suite = tmp_path / "suite.json"
    text = (ROOT / "config" / "suites" / "starter.json").read_text()
    digests = set()
    for content in (text, text + "\n"):
        suite.write_text(content)
        config = changed(benchmarks={"command": {"suite": {"path": str(suite)}}})
        digests.add(terms(config))
    assert len(digests) == 2


def test_a_changed_submission_changes_only_its_own_episode(tmp_path):
    path = tmp_path / "work.json"
    config = changed(conditions={"mine": {"solver": "replay", "submissions": {"command": str(path)}}})
    digests = []
    for content in ('{"run-length-c": {"rle.c": "1"}}', '{"run-length-c": {"rle.c": "2"}}'):
        path.write_text(content)
        digests.append(resolve(config, "x")["conditions"]["mine"]["work"]["command"])
    assert [name for name in digests[0] if digests[0][name] != digests[1][name]] == ["run-length-c"]


def test_an_episode_is_its_path():
    episode = Episode.parse("command/reference/run-length-c/1")
    assert episode == Episode("command", "reference", "run-length-c", 1)
    assert str(episode) == "command/reference/run-length-c/1"
    for text in ("a/b/c", "a/b/c/d", "a/b/c/1/2"):
        with pytest.raises(UsageError):
            Episode.parse(text)


def test_memory_is_read_in_mib():
    assert (memory_mb("30g"), memory_mb("512M")) == (30720, 512)


def test_profiles_try_as_often_as_they_say():
    """After the last attempt a grade is void: where the two disagree, it never would be, or too soon."""
    paths = list((ROOT / "profiles").glob("*/config.yaml"))
    assert len(paths) == 3
    for path in paths:
        profile = yaml.safe_load(path.read_text())
        assert f"attempts={profile['retries'] + 1}" in profile["config"], path


def test_a_run_that_would_record_a_void_too_soon_is_refused_and_one_that_tries_less_is_not():
    for attempts, retries in ((1, 0), (3, 2), (3, 0)):
        check_attempts(attempts, retries)
    with pytest.raises(UsageError, match="--config attempts=3 and --retries 5: attempt 3 of 6 would record") as refused:
        check_attempts(3, 5)
    assert "--config attempts=6" in refused.value.hint
    assert "--retries 2" in refused.value.hint


def test_a_frozen_condition_is_of_the_solver_that_made_its_work():
    assert solver_of({"solver": "reference"}) == solver_of({"solver": "frozen", "of": "reference"}) == "reference"
    config = load_config(ROOT / "config" / "study.yaml")
    config["conditions"] = {"theirs": {"solver": "frozen"}}
    with pytest.raises(UsageError, match="theirs: missing of"):
        resolve(config, "study.yaml")


def test_a_benchmark_whose_jobs_are_alone_has_groups_and_allocations_of_its_own():
    config = load_config(ROOT / "config" / "studies" / "programbench-pilot.yaml")
    config["benchmarks"]["command"] = {"suite": {"path": "config/suites/starter.json"}}
    del config["resource_mode"]
    config["conditions"]["agent"] = {"solver": "command", "command": "true", "timeout_s": 7200}
    study = Study(resolve(config, "study.yaml"))
    assert [study.group(stage, "command") for stage in ("calibrate", "episode", "grade")] == [
        "calibrate",
        "episode",
        "grade",
    ]
    assert study.group("grade", "programbench") == "grade-programbench"
    assert (study.episode_cpus("programbench"), study.episode_memory_mb("programbench")) == (16, 30720)
    assert (study.episode_cpus("command"), study.episode_memory_mb("command")) == (1, 1024)
    assert (study.solve_minutes("agent"), study.solve_minutes("noop")) == (125, 5)
