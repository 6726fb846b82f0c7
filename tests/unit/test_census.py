"""The census: one row an episode, and no headline over what was not judged."""

import csv
import io

import pytest

from assize.census import Records, aggregate, as_csv, check_one_study, row
from assize.census_table import comparison_lines, print_census
from assize.errors import UsageError
from assize.indictment import Rule, table_provenance
from assize.officialness import reservations
from assize.records import ROOT, write_record
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
            "versions": {"assize": "a" * 64},
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
    # Another node is no other allocation.
    grades[episodes[4]] = grade(study, episodes[4], slurm=SLURM | {"node": "n2", "job_id": "8"})
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


RULE = Rule.of({"name": "no_target", "reads": "check", "where": {"pattern": "target"}, "remedy": "stage the targets"})


def with_checks(study, episode, *signatures):
    checks = [{"id": str(n), "verdict": "fail", "signature": text} for n, text in enumerate(signatures)]
    return grade(study, episode, "fail", checks=checks)


def test_an_indictment_withholds_every_number_of_its_benchmark(study):
    """One harness judges all conditions: what it did to one makes a comparison with the others worthless."""
    grades = {episode: grade(study, episode) for episode in study.episodes()}
    first = study.episodes()[0]
    grades[first] = with_checks(study, first, "NameError: name 'target' is not defined", "AssertionError")
    record = count(study, grades, rules=(RULE,), allow_void=True)
    assert record["indicted"] is True
    one, two = record["conditions"]
    for line in (one, two):
        assert (line["over_scored"], line["estimates"], line["summary"]) == (None, [], {})
        assert line["withheld"] == "harness indicted in one: no_target (1 of 2)"
    (fault,) = one["faults"]
    assert (fault["rule"], fault["count"], fault["of"], fault["remedy"]) == ("no_target", 1, 2, "stage the targets")
    assert (fault["episodes"], two["faults"]) == ([str(first)], [])
    assert record["comparisons"] == []
    assert {line["signature"]: line["rule"] for line in record["signatures"]} == {
        "NameError: name 'target' is not defined": "no_target",
        "AssertionError": None,
    }
    assert count(study, grades)["indicted"] is False


def test_the_terminal_leads_with_the_indictment_and_says_what_to_mend(study, tmp_path, capsys):
    grades = {episode: with_checks(study, episode, "NameError: target") for episode in study.episodes()}
    print_census(count(study, grades, rules=(RULE,)), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("HARNESS INDICTED: no number of command is a model's score")
    assert lines[1].strip() == "command/one: no_target: 6 of 6 failures"
    assert lines[3].strip() == "mend first: stage the targets"
    assert "%" not in "\n".join(lines)


def test_a_candidates_words_are_no_command_to_the_terminal(study, tmp_path, capsys):
    hostile = "TypeError: target \x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp.[red]x[/red]"
    grades = {episode: with_checks(study, episode, hostile) for episode in study.episodes()}
    first = study.episodes()[0]
    grades[first] = grade(study, first, "void", reason=hostile)
    print_census(count(study, grades, rules=(RULE,)), tmp_path)
    out = capsys.readouterr().out
    assert "[red]x[/red]" in out
    assert [c for c in out if not c.isprintable() and c != "\n"] == []


def test_estimates_and_comparisons_are_over_instances(study):
    episodes = study.episodes()
    grades = {episode: grade(study, episode, "pass" if episode.condition == "one" else "fail") for episode in episodes}
    record = count(study, grades)
    shown = {
        (item["measure"], item["over"]): (item["value"], item["method"], item["units"])
        for item in record["conditions"][0]["estimates"]
    }
    assert shown["pass_rate", "scored"] == shown["pass_rate", "planned"] == (1.0, "wilson", 6)
    assert shown["mean_score", "scored"] == (1.0, "none", 6)
    (compared,) = [item for item in record["comparisons"] if item["measure"] == "pass_rate"]
    assert (compared["first"], compared["second"], compared["discordant"], compared["p_value"]) == (
        "one",
        "two",
        6,
        0.03125,
    )


def test_a_void_counts_as_nothing_over_planned_and_not_at_all_over_scored(study):
    grades = {episode: grade(study, episode) for episode in study.episodes()}
    first = study.episodes()[0]
    grades[first] = grade(study, first, "void")
    one, _ = count(study, grades, allow_void=True)["conditions"]
    values = {(item["measure"], item["over"]): item["value"] for item in one["estimates"]}
    assert values["mean_score", "scored"] == 1.0
    assert values["mean_score", "planned"] == values["pass_rate", "planned"] == pytest.approx(5 / 6, abs=1e-6)


def test_flags_claims_and_sensitive_checks_are_counted(study):
    grades = {episode: grade(study, episode) for episode in study.episodes()}
    first, second = study.episodes()[:2]
    check = {"id": "1.1", "verdict": "pass", "protocol_sensitive": True, "other_verdict": "fail"}
    grades[first] = grade(study, first, tamper=["early_exit:1.1", "early_exit:1.2"], checks=[check])
    provenance = grades[second]["provenance"] | {"official_targets": False}
    grades[second] = grade(study, second, provenance=provenance)
    record = count(study, grades)
    assert record["tamper"] == [{"flag": "early_exit", "count": 2, "episodes": [str(first)]}]
    assert record["conditions"][0]["tampered"] == 1
    assert record["official"]["command"]["claims"] == {"targets": {"true": 0, "false": 1}}
    assert record["official"]["command"]["lanes"] == {"bubblewrap": 12}
    assert record["protocol_sensitive"] == [
        {"episode": str(first), "check": "1.1", "verdict": "pass", "other_verdict": "fail"}
    ]
    assert reservations(record["official"]) == [
        "command: targets not official in 1 of 12 grades",
        "command: no allocation in force in 12 of 12 grades",
    ]


def test_a_study_that_was_judged_by_two_states_of_the_code_says_so(study):
    grades = {episode: grade(study, episode) for episode in study.episodes()}
    for number, record in enumerate(grades.values()):
        record["provenance"] = record["provenance"] | {"versions": {"assize": ("b" if number == 3 else "a") * 64}}
    record = count(study, grades)
    assert record["official"]["command"]["code"] == {"a" * 64: 11, "b" * 64: 1}
    expected = f"command: this workflow's code changed between its grades: 11 by {'a' * 12}, 1 by {'b' * 12}"
    assert expected in reservations(record["official"])


def test_the_record_keeps_its_schema(study, tmp_path):
    grades = {episode: with_checks(study, episode, "KeyError: 1") for episode in study.episodes()}
    record = count(study, grades) | {"rules": table_provenance()}
    write_record(tmp_path / "census.json", record)


def test_a_terminal_shows_comparisons_of_pass_rates_and_says_how_many_it_leaves_out():
    common = {"benchmark": "b", "first": "x", "second": "y", "difference": 0.5, "low": 0.1, "high": 0.9}
    line = common | {"discordant": 30, "instances": 40}
    other = [line | {"measure": "mean_score", "p_value": None}] * 11
    rates = [line | {"measure": "pass_rate", "p_value": p} for p in (1.9e-9, 0.031, *[None] * 10)]
    first, second, *more, last = comparison_lines({"comparisons": other + rates})
    assert first == "b: x minus y: +50.0% [+10.0%, +90.0%], 30 of 40 pairs discordant, McNemar p < 0.0001"
    assert second.endswith("McNemar p = 0.031")
    assert (len(more), last) == (8, "Comparisons that are not shown: 2")
