"""The census: one row an episode, and no headline over what was not judged."""

import csv
import io

import pytest

from assize.census import Records, aggregate, as_csv, check_one_study, row
from assize.errors import UsageError
from assize.records import ROOT
from assize.study import Study, load_config, resolve

SLURM = {"job_id": "7", "node": "n1", "cpus": 16, "memory_mb": 30720, "partition": "main", "account": None}


@pytest.fixture
def study():
    config = load_config(ROOT / "config" / "study.yaml")
    config["conditions"] = {"one": {"solver": "noop"}, "two": {"solver": "noop"}}
    return Study(resolve(config, "x"))


def grade(study, episode, verdict="pass", slurm=None, **changes):
    """A grade of an episode, with the fields that a census reads."""
    return {
        "episode": episode.as_json(),
        "terms_digest": study.terms_digest("command"),
        "verdict": verdict,
        "valid": verdict != "void",
        "score": None if verdict == "void" else float(verdict == "pass"),
        "analysis_score": None if verdict == "void" else float(verdict == "pass"),
        "scoring_status": "infra" if verdict == "void" else verdict,
        "reason": "why",
        "checks": [],
        "tamper": [],
        "flags": [],
        "oracle_exposed": False,
        "provenance": {
            "resource_mode": "slurm" if slurm else "none",
            "sandbox": {"lane": "bubblewrap"},
            "slurm": slurm,
            "attempt": 1,
            "snapshot": "0" * 64,
        },
        "timing": {"seconds": 1.0},
    } | changes


def count(study, grades, **options):
    return aggregate(study, Records(grades), **options)


def test_rates_are_over_scored_and_over_planned(study):
    episodes = study.episodes()
    grades = {
        episode: grade(study, episode, "pass" if number % 2 else "fail") for number, episode in enumerate(episodes)
    }
    one, two = count(study, grades)["conditions"]
    assert (one["count"], one["passed"], one["failed"], one["void"]) == (6, 3, 3, 0)
    assert (one["over_scored"], one["over_planned"], one["withheld"]) == (0.5, 0.5, None)
    assert two["condition"] == "two"


def test_a_void_withholds_its_conditions_headline_and_no_other(study):
    grades = {episode: grade(study, episode) for episode in study.episodes()}
    first = study.episodes()[0]
    grades[first] = grade(study, first, "void")
    record = count(study, grades)
    one, two = record["conditions"]
    assert (one["over_scored"], one["over_planned"], one["withheld"]) == (None, None, "1 of 6 void")
    assert two["over_scored"] == 1.0
    assert record["void_reasons"] == {"infra": [f"{first}: why"]}
    one, _ = count(study, grades, allow_void=True)["conditions"]
    assert (one["over_scored"], one["withheld"]) == (1.0, "1 of 6 void")
    assert one["over_planned"] == pytest.approx(5 / 6)


def test_an_episode_without_a_grade_is_a_row_and_void(study):
    grades = dict.fromkeys(study.episodes())
    record = count(study, grades)
    assert record["planned"] == 12
    assert [line["void"] for line in record["conditions"]] == [6, 6]
    assert set(record["void_reasons"]) == {"not_graded"}
    assert all(line["over_scored"] is None for line in count(study, grades, allow_void=True)["conditions"])


def test_the_csv_has_one_row_an_episode(study):
    grades = {episode: grade(study, episode, slurm=SLURM) for episode in study.episodes()}
    rows = [row(study, episode, value) for episode, value in grades.items()]
    lines = list(csv.DictReader(io.StringIO(as_csv(rows).decode())))
    assert len(lines) == 12
    assert (lines[0]["slurm_job"], lines[0]["node"], lines[0]["cpus"], lines[0]["memory_mb"]) == (
        "7",
        "n1",
        "16",
        "30720",
    )


def test_grades_that_do_not_belong_together_are_refused_with_the_list(study):
    episodes = study.episodes()
    grades = {episode: grade(study, episode, slurm=SLURM) for episode in episodes}
    check_one_study(study, grades)
    grades[episodes[0]] = grade(study, episodes[0], slurm=SLURM | {"cpus": 8})
    grades[episodes[1]] = grade(study, episodes[2], slurm=SLURM)
    grades[episodes[3]] = grade(study, episodes[3], slurm=SLURM, terms_digest="0" * 64)
    with pytest.raises(UsageError) as caught:
        check_one_study(study, grades)
    message = str(caught.value)
    assert "3 fault(s)" in message
    assert f"{episodes[0]}/grade.json: graded in an allocation of (8, 30720)" in message
    assert f"{episodes[1]}/grade.json: it is the grade of another episode" in message
    assert f"{episodes[3]}/grade.json: graded under terms 000000000000" in message
