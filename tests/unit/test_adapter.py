"""What the court's procedure writes where a benchmark cannot do its part, and when."""

import errno
from types import SimpleNamespace

import pytest

from assize import adapter, admission
from assize.archive import Rejected
from assize.errors import GateClosed, InfrastructureError, UsageError
from assize.records import read_record
from assize.study import Episode, Study

DIGEST = "0" * 64
TERMS = {"resource_mode": "none", "allocation": {"cpus": 1, "memory": "1g"}, "sandbox": {"lane": "bubblewrap"}}
FAILURES = [
    InfrastructureError("missing_image", "no image x"),
    OSError(errno.ENOENT, "no file y"),
    ValueError("no number"),
    RecursionError("too deep"),
    KeyError("branch"),
    Rejected("not ours to say"),
]


@pytest.fixture
def context(tmp_path):
    """A context whose benchmark fails at every verb with what it is made with."""

    def make(error: Exception, attempt=1, attempts=None) -> adapter.Context:
        def fail(*arguments):
            raise error

        benchmark = SimpleNamespace(name="command", protocol_version="1", calibrate=fail, grade=fail, solve=fail)
        section = {"terms": TERMS, "terms_digest": DIGEST, "alone": False}
        conditions = {"agent": {"solver": "command"}}
        study = Study({"name": "small", "benchmarks": {"command": section}, "conditions": conditions, "repeats": 1})
        study.root = tmp_path / "results" / "small"
        return adapter.Context(benchmark, study, attempt=attempt, attempts=attempts)

    return make


def name_of(error: Exception) -> str:
    return type(error).__name__


@pytest.mark.parametrize("error", FAILURES, ids=name_of)
def test_a_reference_that_cannot_be_graded_at_the_last_attempt_has_a_record_that_bars(context, tmp_path, error):
    output = tmp_path / "calibration" / "1.json"
    for earlier in (context(error), context(error, 2, 3)):
        with pytest.raises(type(error)):
            adapter.calibrate(earlier, "i", 1, output)
        assert not output.exists()
    adapter.calibrate(context(error, 3, 3), "i", 1, output)
    record = read_record(output, "calibration")
    (reason,) = record["reasons"]
    assert (record["passed"], reason.startswith("infra: ")) == (False, True)
    assert str(error) in reason
    assert f"for another try delete {output} and rerun" in reason
    gate = admission.decide({"i": [record]})
    assert (gate["status"], gate["reasons"]) == ("barred", [reason])


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), UsageError("small_allocation", "1 CPU")], ids=name_of)
def test_a_full_disk_and_what_no_retry_can_help_leave_no_calibration(context, tmp_path, error):
    with pytest.raises(type(error)):
        adapter.calibrate(context(error, 3, 3), "i", 1, tmp_path / "1.json")
    assert not (tmp_path / "1.json").exists()


@pytest.mark.parametrize("error", FAILURES, ids=name_of)
def test_whatever_keeps_a_solver_from_its_work_is_retried_and_at_last_void(context, error):
    episode = Episode("command", "agent", "i", 1)
    prepared = {"status": "prepared", "reason": None, "task": {}}

    def solve(given: adapter.Context) -> dict:
        adapter.write_record(
            given.study.episode_folder(episode) / "prepared.json",
            {**adapter._header(given, "prepared", episode), **prepared},
        )
        return adapter.solve(given, episode)

    for earlier in (context(error), context(error, 1, 3)):
        with pytest.raises(type(error)):
            solve(earlier)
    record = solve(context(error, 1, 1))
    assert (record["status"], record["reason"].startswith("infra: ")) == ("void", True)
    assert str(error) in record["reason"]
    unexpected = not isinstance(error, (InfrastructureError, OSError))
    assert (f"unexpected {type(error).__name__}" in record["reason"]) == unexpected


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)], ids=name_of)
def test_who_ends_a_verb_from_outside_has_nothing_recorded(context, tmp_path, error):
    with pytest.raises(type(error)):
        adapter.calibrate(context(error, 3, 3), "i", 1, tmp_path / "1.json")
    assert not (tmp_path / "1.json").exists()


def test_a_closed_gate_is_void_at_once_and_by_hand_an_error(context):
    def closed():
        raise GateClosed("barred", "calibration barred it")

    assert adapter._or_void(context(ValueError(), 1, 3), closed) == {
        "status": "void",
        "reason": "calibration barred it",
    }
    with pytest.raises(GateClosed):
        adapter._or_void(context(ValueError()), closed)


@pytest.mark.parametrize(("alone", "mode", "turns"), [(True, "slurm", 1), (False, "slurm", 0), (True, "none", 0)])
def test_who_has_an_allocation_to_itself_solves_beside_no_evaluator_in_it(context, monkeypatch, alone, mode, turns):
    from contextlib import contextmanager

    held, seen = [], []

    @contextmanager
    def one_evaluator():
        held.append(1)
        yield
        held.pop()

    monkeypatch.setattr(adapter.resources, "one_evaluator", one_evaluator)
    given = context(ValueError())
    section = given.study.benchmarks["command"]
    section["alone"], section["terms"] = alone, TERMS | {"resource_mode": mode}
    given.benchmark.solve = lambda *arguments: seen.append(len(held)) or {"status": "done"}
    episode = Episode("command", "agent", "i", 1)
    prepared = {**adapter._header(given, "prepared", episode), "status": "prepared", "reason": None, "task": {}}
    adapter.write_record(given.study.episode_folder(episode) / "prepared.json", prepared)
    assert adapter.solve(given, episode)["status"] == "done"
    assert (seen, held) == ([turns], [])


def test_a_grade_of_work_that_was_not_run_states_what_it_would_have_been_judged_by(context):
    """A build that failed is a zero that counts: it is no less bound to the suite than one whose tests ran."""
    episode = Episode("command", "agent", "i", 1)
    given = context(AssertionError("nothing is run"))
    given.benchmark.facts = lambda *arguments: {"provenance": {"suite": "5" * 64}, "detail": {"passed": 0}}
    folder = given.study.episode_folder(episode)
    gate = {"schema": "assize.admission/1", "benchmark": "command", "instance": "i", "terms_digest": DIGEST}
    gate |= {"calibrations": ["1" * 64], "status": "open", "reasons": [], "flags": []}
    adapter.write_record(given.study.admission("command", "i"), gate)
    frozen = {"status": "failed", "scoring_status": "build_failed", "reason": "the build exited 1", "survivors": 0}
    frozen |= {"detail": {}, "slurm": None, "sha256": "2" * 64, "size": 10}
    adapter.write_record(folder / "snapshot.json", {**adapter._header(given, "snapshot", episode), **frozen})
    grade = adapter.grade(given, episode)
    assert (grade["valid"], grade["scoring_status"], grade["detail"]) == (True, "build_failed", {"passed": 0})
    assert (grade["provenance"]["suite"], grade["provenance"]["snapshot"]) == ("5" * 64, "2" * 64)
    assert len(grade["provenance"]["versions"]["assize"]) == 64
