"""An agent that is a command: told its task in every lane, at work in its workspace, ended like any candidate."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from assize.agent import run_agent
from assize.benchmarks import load_benchmark
from assize.benchmarks.scicode import benchmark as scicode
from assize.records import sha256_file
from assize.sandbox import Limits, Phase
from assize.study import Episode
from conftest import ROOT, lane_or_skip
from scicode_support import needs_data, problem, step

# Answers with what it was told, and leaves no other trace of it.
READER = """
cp "$ASSIZE_TASK_DIR/instruction.txt" said
cat "$ASSIZE_TASK_DIR/instance.txt"
ls "$ASSIZE_TASK_DIR"
(echo x > "$ASSIZE_TASK_DIR/instruction.txt") 2>/dev/null && echo changed
(echo x > "$ASSIZE_TASK_DIR/more") 2>/dev/null && echo added
true
"""


@pytest.fixture(params=["bubblewrap", "container", "subprocess"])
def any_lane(request):
    return lane_or_skip(request.param)


def context_of(lane, benchmark: str, command: str, **terms):
    """As much of a verb's context as an agent's episode needs."""
    frozen = {"conditions": {"agent": {"solver": "command", "command": command, "timeout_s": 60}}}
    terms = {"sandbox": {"lane": lane.name, "limits": {}}} | terms
    return SimpleNamespace(study=SimpleNamespace(frozen=frozen), terms=terms, lane=lambda image=None: lane), Episode(
        benchmark, "agent", terms.get("instance", "0"), 1
    )


def test_an_agent_reads_its_task_and_cannot_change_it(any_lane, tmp_path):
    condition = {"command": READER, "timeout_s": 60}
    body = run_agent(any_lane, condition, tmp_path, {}, "some-task", "print 42,\nand no more")
    told = body["detail"]["agent"]
    assert (body["status"], told["exit"], told["limit"]) == ("done", 0, None)
    assert told["output_tail"].split()[:3] == ["some-task", "instance.txt", "instruction.txt"]
    # Without isolation an agent can do what its user can.
    assert any_lane.name == "subprocess" or len(told["output_tail"].split()) == 3
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"said": "print 42,\nand no more\n"}


def test_no_other_phase_is_told_a_task(lane, tmp_path):
    command = 'echo "[$ASSIZE_TASK_DIR]"; ls -d /task /case/task 2>/dev/null; true'
    assert lane.run_candidate(Phase(command, tmp_path, Limits())).output == b"[]\n"
    assert lane.run_grader(Phase(command, tmp_path, Limits(), {"spec": "1"})).output == b"[]\n"


@pytest.mark.parametrize("name", ["bubblewrap", "container"])
def test_an_agent_of_the_command_benchmark_solves_by_its_instruction(name, tmp_path):
    """The suite's instruction says what to write; nothing of the reference or the grader is shown beside it."""
    benchmark, suite = load_benchmark("command"), ROOT / "config/suites/starter.json"
    terms = {"suite": {"path": str(suite), "sha256": sha256_file(suite)}, "instance": "longest-line-bash"}
    context, episode = context_of(lane_or_skip(name), "command", READER, **terms)
    prepared = benchmark.prepare(context, episode, tmp_path)
    body = benchmark.solve(context, episode, tmp_path)
    assert body["detail"]["agent"]["output_tail"].split() == [episode.instance, "instance.txt", "instruction.txt"]
    assert Path(tmp_path, "said").read_text().strip() == prepared["task"]["instruction"].strip()


@needs_data
def test_an_agent_of_scicode_answers_the_prompts_by_its_instruction(monkeypatch, tmp_path):
    small = problem(step("0.1", "def a(x):", ("assert a(1) == 1",)), step("0.2", "def b(x):", ("assert b(1) == 1",)))
    monkeypatch.setattr(scicode, "_problem", lambda context, instance: small)
    command = """
grep -q 'responses/<step>.py' "$ASSIZE_TASK_DIR/instruction.txt" || exit 9
for prompt in prompts/without_background/*.txt; do
    cp "$prompt" "responses/$(basename "$prompt" .txt).py"
done
"""
    context, episode = context_of(lane_or_skip("bubblewrap"), "scicode", command, prompts={}, given=None)
    benchmark = load_benchmark("scicode")
    benchmark.prepare(context, episode, tmp_path)
    assert benchmark.solve(context, episode, tmp_path)["detail"]["agent"]["exit"] == 0
    assert sorted(path.name for path in (tmp_path / "responses").iterdir()) == ["0.1.py", "0.2.py"]
    assert "def b(x):" in (tmp_path / "responses/0.2.py").read_text()


def test_what_an_agent_leaves_that_cannot_be_brought_out_is_its_own_failure(tmp_path, monkeypatch):
    """A container hands its files out as an archive, which is checked: in every benchmark the work is rejected."""
    small = problem(step("0.1", "def a(x):", ("assert a(1) == 1",)))
    monkeypatch.setattr(scicode, "_problem", lambda context, instance: small)
    context, episode = context_of(
        lane_or_skip("container"), "scicode", "mkfifo responses/0.1.py", prompts={}, given=None
    )
    benchmark = load_benchmark("scicode")
    benchmark.prepare(context, episode, tmp_path)
    body = benchmark.solve(context, episode, tmp_path)
    assert body["status"] == "rejected"
    assert "FIFO" in body["reason"]
    assert os.listdir(tmp_path) == []
