"""Two grades of the same work: the same, changed, or not to be compared."""

import errno

import pytest
import reproduce

from assize import rerun
from assize.differences import differences
from assize.errors import InfrastructureError, UsageError
from assize.profile import read_profile
from assize.records import ROOT
from assize.rerun import incomparable, judged, wishes
from assize.study import load_config, resolve


def grade(verdict="fail", snapshot="a", **fields) -> dict:
    score = {"pass": 1.0, "fail": 0.0, "void": None}[verdict]
    return {
        "verdict": verdict,
        "valid": verdict != "void",
        "score": score,
        "analysis_score": score,
        "scoring_status": "infra" if verdict == "void" else verdict,
        "reason": "why",
        "tamper": [],
        "flags": [],
        "checks": [{"id": "1", "verdict": verdict, "signature": "KeyError: 0x7f01", "seconds": 0.1}],
        "provenance": {"snapshot": snapshot},
    } | fields


def test_times_nodes_and_wordings_are_no_judgement():
    other = grade(reason="in other words", checks=[{"id": "1", "verdict": "fail", "signature": None, "seconds": 9}])
    assert judged(grade()) == judged(other)


@pytest.mark.parametrize(
    ("other", "place"),
    [
        (grade("pass"), "verdict"),
        (grade(tamper=["early_exit"]), "tamper"),
        (grade(scoring_status="grader_timed_out"), "scoring_status"),
        (grade(checks=[{"id": "1", "verdict": "pass"}]), "checks.1"),
        (grade(checks=[]), "checks.1"),
    ],
)
def test_another_judgement_is_a_change_and_is_named(other, place):
    assert place in [path for path, _, _ in differences(judged(grade()), judged(other))]


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (grade(), grade(), None),
        (grade(), grade("pass"), None),
        (grade("void", scoring_status="no_submission"), grade("void", scoring_status="no_submission"), None),
        (grade(), None, "it was not graded again: see the log"),
        (grade(), grade(snapshot="b"), "another snapshot was graded"),
        (grade("void"), grade(), "the original is void: why"),
        (grade(), grade("void"), "the rerun is void: why"),
    ],
)
def test_what_was_not_judged_twice_cannot_be_compared(first, second, why):
    assert incomparable(first, second) == why


SUITE = {"suite": {"path": "config/suites/starter.json"}}
PROGRAMBENCH = {"manifest": "config/programbench/manifest.json"}
BROUGHT = "results/theirs-rerun/original/pb"


def source(**source) -> dict:
    return {"data": {"filename": "data", "sha256": "0" * 64, "size": 1, "sources": [source]}}


@pytest.mark.parametrize(
    ("benchmarks", "datasets", "wish"),
    [
        ({"command": SUITE | {"sandbox": {"lane": "subprocess"}}}, {}, "no isolation at all"),
        ({"command": SUITE | {"sandbox": {"read_only_paths": ["/root"]}}}, {}, "would see /root"),
        ({"command": {"suite": {"path": f"config/../{BROUGHT}"}}}, {}, "benchmarks.command.suite.path: "),
        ({"programbench": PROGRAMBENCH | {"programbench_root": "/opt/pb"}}, {}, "programbench_root: it would use"),
        ({"programbench": PROGRAMBENCH | {"tasks": "/opt/tasks"}}, {}, "tasks: it would use"),
        ({"programbench": PROGRAMBENCH | {"blobs": "/opt/blobs"}}, {}, "blobs: it would use"),
        ({"command": SUITE}, source(ssh="host", path="data"), "by ssh, as you, from host"),
        ({"command": SUITE}, source(file=BROUGHT), "datasets.data.sources.0.file: "),
    ],
)
def test_what_a_bundle_asks_for_beyond_data_and_a_sandbox_is_named(benchmarks, datasets, wish):
    config = {"name": "theirs-rerun", "benchmarks": benchmarks, "datasets": datasets, "conditions": {}}
    (found,) = wishes(config)
    assert wish in found


def test_a_file_of_the_bundle_in_the_place_of_a_folder_is_named_twice():
    config = {"benchmarks": {"programbench": PROGRAMBENCH | {"programbench_root": BROUGHT}}, "conditions": {}}
    assert [wish.split(":")[1] for wish in wishes(config)] == [" programbench_root", f" {BROUGHT}"]


def test_data_by_hash_and_files_of_the_project_need_no_trust():
    datasets = source(url="https://example.org/data") | {"more": source(file="../shared/data")["data"]}
    config = {"benchmarks": {"command": SUITE, "programbench": PROGRAMBENCH}, "datasets": datasets}
    assert list(wishes(config | {"conditions": {"x\0": {}}, "name": "a\0b"})) == []


def test_a_disk_that_a_bundle_does_not_fit_on_is_no_fault_of_the_bundle(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "bundle.tar.gz").write_bytes(b"x")
    monkeypatch.setattr(rerun, "unpack", full)
    with pytest.raises(InfrastructureError, match="No space left on device") as raised:
        rerun.lay_out(tmp_path / "bundle.tar.gz", None)
    assert "make room there" in raised.value.hint
    assert list((tmp_path / "results").iterdir()) == []


def test_the_profile_says_the_resource_mode(tmp_path):
    assert read_profile(ROOT / "profiles" / "local").resource_mode == "none"
    assert read_profile(ROOT / "profiles" / "slurm").resource_mode == "slurm"
    for text, mode in (("config: {resource_mode: container}", "container"), ("cores: 1", None)):
        (tmp_path / "config.yaml").write_text(text)
        assert read_profile(tmp_path).resource_mode == mode
    with pytest.raises(UsageError, match="resource_mode: 'mood' is not allowed"):
        resolve(load_config(ROOT / "config" / "study.yaml"), "study.yaml", "mood")


def test_a_profile_that_is_missing_is_named_as_one(tmp_path):
    with pytest.raises(UsageError, match="no such profile"):
        reproduce.main(["rerun", "bundle.tar.gz", "--profile", str(tmp_path / "none")])
