"""What Slurm says of the jobs of a study, read from literal output of Slurm 22.05, and what is made of it."""

import io
import os
from contextlib import redirect_stdout

import pytest

from assize import accounting
from assize.accounting import Answer, Job, parse_sacct
from assize.records import schema_faults
from assize.study import Study, resolve

# sacct --duplicates --parsable2 --noheader --format=SACCT_FIELDS
SACCT = """\
3|COMPLETED|5|2|1|00:03.139|||1000M|wrap
3.batch|COMPLETED|5|2|1|00:03.139|1|165321K||batch
4_0|COMPLETED|1|1|1|00:00.003|||300M|wrap
4_0.batch|COMPLETED|1|1|1|00:00.003|1|348K||batch
4_1|FAILED|1|1|1|00:00.003|||300M|wrap
4_1.batch|FAILED|1|1|1|00:00.003|1|348K||batch
5|CANCELLED by 0|5|1|1|00:01.070|||200M|wrap
5.batch|CANCELLED|5|1|1|00:00.010|1|4515K||batch
5.0|COMPLETED|1|1|1|00:01.060|1|9245K||python3
6_[0-5%1]|CANCELLED by 0|0|16|1|00:00:00|||100M|wrap
12|COMPLETED|2|3|1|00:00.014|||300M|wrap
12.batch|COMPLETED|2|3|1|00:00.012|1|534K||batch
12.0|COMPLETED|0|3|1|00:00.001|1|||true
13|REQUEUED|1|1|1|00:01.116|||100M|again
13.batch|CANCELLED|1|1|1|00:01.116|1|11704K||batch
13|COMPLETED|2|1|1|00:00.929|||100M|again
13.batch|COMPLETED|2|1|1|00:00.929|1|8308K||batch
"""

# As SACCT, while the jobs ran.
RUNNING = """\
3|RUNNING|4|2|1|00:00:00|||1000M|wrap
3.batch|RUNNING|4|2|1|00:00:00|1|||batch
6_[0-5%1]|PENDING|0|16|1|00:00:00|||100M|wrap
"""

# squeue --me --array --states=all --noheader --format=%i|%T|%M|%C
SQUEUE = """\
5|CANCELLED|0:05|1
6_5|CANCELLED|0:00|16
3|COMPLETED|0:05|2
4_1|FAILED|0:01|1
7|RUNNING|1-02:03:04|16
"""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:03.139", 3.139), ("0:05", 5), ("01:02:03", 3723), ("1-02:03:04", 93784), ("INVALID", None), ("", None)],
)
def test_times(text, seconds):
    assert accounting.parse_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "mb"), [("165321K", 161.446), ("0.34M", 0.34), ("30G", 30720), ("0", 0), ("1T", 1 << 20), ("", None)]
)
def test_sizes(text, mb):
    assert accounting.parse_mb(text) == (mb if mb is None else pytest.approx(mb, abs=0.001))


@pytest.mark.parametrize(("text", "mb"), [("300M", 300), ("100Mc", 400), ("100Mn", 200), ("?", None), ("", None)])
def test_what_was_asked_for_in_old_and_new_spelling(text, mb):
    assert accounting.parse_asked(text, cpus=4, nodes=2) == mb


def test_a_job_has_its_own_times_and_its_largest_steps_memory():
    jobs = parse_sacct(SACCT)
    assert jobs["3"] == Job("3", "COMPLETED", 5, 2, 3.139, 161.4, 1000)
    assert jobs["5"] == Job("5", "CANCELLED", 5, 1, 1.07, 9.0, 200)
    assert jobs["4_1"].state == "FAILED"
    assert all(job.over for job in jobs.values())


def test_all_starts_of_a_requeued_job_count():
    assert parse_sacct(SACCT)["13"] == Job("13", "COMPLETED", 3, 1, pytest.approx(2.045), 11.4, 100, starts=2)


def test_an_older_job_under_the_same_id_does_not_count():
    older = "3|COMPLETED|900|2|1|10:00.000|||1000M|of-another-year\n3.batch|COMPLETED|900|2|1|10:00|1|900M||batch\n"
    assert parse_sacct(older + SACCT) == parse_sacct(SACCT)


def test_the_tasks_of_a_step_count_each_as_the_largest():
    row = "3|COMPLETED|5|8|2|00:03.139|||1000M|wrap\n3.0|COMPLETED|5|8|2|00:03.139|4|100M||solver\n"
    assert parse_sacct(row)["3"].max_rss_mb == 400


def test_a_running_job_claims_no_cpu_time():
    job = parse_sacct(RUNNING)["3"]
    assert (job.over, job.elapsed_s, job.cpu_s, job.max_rss_mb) == (False, 4, None, None)


def test_where_a_site_gathers_nothing_nothing_is_claimed():
    row = "9|COMPLETED|60|16|1|00:00:00|||30G|grade\n9.batch|COMPLETED|60|16|1|00:00:00|1|||batch\n"
    job = parse_sacct(row)["9"]
    assert (job.elapsed_s, job.cpu_s, job.max_rss_mb, job.memory_mb) == (60, None, None, 30720)


@pytest.mark.parametrize("text", ["", "sacct: error: Problem talking to the database\n", "||\n"])
def test_what_is_no_answer_names_no_job(text):
    assert parse_sacct(text) == {}
    assert accounting.parse_squeue(text) == {}


def test_squeue_tells_times_and_no_more():
    jobs = accounting.parse_squeue(SQUEUE)
    assert jobs["3"] == Job("3", "COMPLETED", 5, 2)
    assert jobs["7"] == Job("7", "RUNNING", 93784, 16)
    assert len(jobs) == 5


def test_arrays_are_asked_for_whole_and_long_lists_in_parts():
    assert accounting.chunks({"12_3", "12_4", "7", "100"}) == ["7,12,100"]
    many = accounting.chunks(str(number) for number in range(2500))
    assert [chunk.count(",") + 1 for chunk in many] == [1000, 1000, 500]


def test_efficiency_of_one_job_is_what_seff_defines():
    """CPU: TotalCPU of Elapsed x AllocCPUS, the core-walltime. Memory: MaxRSS of ReqMem."""
    line = accounting.efficiency(["3"], parse_sacct(SACCT))
    assert (line["cpu_used_s"], line["cpu_allocated_s"], line["cpu_efficiency"]) == (3.139, 10, 0.3139)
    assert (line["memory_used_mb"], line["memory_asked_mb"], line["memory_efficiency"]) == (161.4, 1000, 0.1614)


def test_a_job_that_is_not_known_is_neither_used_nor_given():
    jobs = parse_sacct(SACCT)
    both = accounting.efficiency(["3", "99"], jobs)
    assert both == accounting.efficiency(["3"], jobs) | {"jobs": 2}
    none = accounting.efficiency(["99"], jobs)
    assert (none["jobs_measured"], none["cpu_used_s"], none["cpu_efficiency"], none["memory_efficiency"]) == (
        0,
        *[None] * 3,
    )


# ------------------------------------------------------------ the record


@pytest.fixture(scope="module")
def study():
    config = {
        "name": "accounted",
        "benchmarks": {"command": {"suite": {"path": "config/suites/starter.json"}}},
        "conditions": {"noop": {"solver": "noop"}},
    }
    return Study(resolve(config, "test"))


def record_of(study, jobs, answer):
    """The record where calibrations, episodes and grades were made in these jobs."""
    episodes = study.episodes()
    makers = [(rule, episode, jobs[rule]) for rule in ("episode", "grade") for episode in episodes]
    makers += [("calibrate", None, jobs["calibrate"])] * 12
    record = accounting.account(study, makers, answer, "2026-11-30T12:00:00Z")
    assert schema_faults(record, "accounting") == []
    return record


def test_a_grade_says_how_many_records_share_its_job(study):
    jobs = {"calibrate": "5", "episode": "4_0", "grade": "3"}
    record = record_of(study, jobs, Answer("sacct", None, parse_sacct(SACCT)))
    assert len(record["grades"]) == len(study.episodes()) == 6
    assert {
        (row["job_id"], row["elapsed_s"], row["cpu_s"], row["max_rss_mb"], row["records"]) for row in record["grades"]
    } == {("3", 5, 3.139, 161.4, 6)}
    rules = {line["rule"]: (line["records"], line["jobs"], line["cpu_efficiency"]) for line in record["rules"]}
    assert rules == {"calibrate": (12, 1, 0.214), "episode": (6, 1, 0.003), "grade": (6, 1, 0.3139)}


def test_one_job_for_a_whole_study_is_not_counted_for_each_rule(study):
    jobs = dict.fromkeys(("calibrate", "episode", "grade"), "3")
    record = record_of(study, jobs, Answer("sacct", None, parse_sacct(SACCT)))
    assert [(line["rule"], line["records"], line["jobs"]) for line in record["rules"]] == [
        ("calibrate+episode+grade", 24, 1)
    ]
    assert {row["records"] for row in record["grades"]} == {24}


def test_what_slurm_has_forgotten_is_unknown_not_zero(study):
    jobs = {"calibrate": "5", "episode": "4_0", "grade": "99"}
    record = record_of(study, jobs, Answer("squeue", "sacct: not found", accounting.parse_squeue(SQUEUE)))
    assert {(row["job_id"], row["state"], row["elapsed_s"]) for row in record["grades"]} == {("99", None, None)}
    assert {line["cpu_efficiency"] for line in record["rules"]} == {None}


def test_without_slurm_there_is_nothing_to_tell(study):
    record = record_of(study, dict.fromkeys(("calibrate", "episode", "grade")), accounting.ask(set()))
    assert (record["source"], record["reason"]) == ("none", "no record was made in a Slurm job")
    assert record["rules"] == []
    shown = io.StringIO()
    with redirect_stdout(shown):
        accounting.print_table(record)
    assert shown.getvalue() == ""


def test_the_table_says_where_its_numbers_are_from(study, capsys):
    jobs = {"calibrate": "5", "episode": "4_0", "grade": "3"}
    accounting.print_table(record_of(study, jobs, Answer("sacct", None, parse_sacct(SACCT))))
    shown = capsys.readouterr().out
    assert "source: sacct" in shown
    assert "3.1 / 10" in shown
    assert "31.4%" in shown
    accounting.print_table(record_of(study, jobs, Answer("squeue", "sacct: not found", {})))
    assert "Not from sacct: sacct: not found" in capsys.readouterr().out


# ------------------------------------------------------------ asking


def programs(folder, monkeypatch, **scripts):
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin" if scripts else str(folder))


def test_the_end_of_a_job_is_waited_for(tmp_path, monkeypatch):
    (tmp_path / "late").write_text(RUNNING)
    (tmp_path / "then").write_text(SACCT)
    script = f"cd {tmp_path}; if [ -e asked ]; then cat then; else touch asked; cat late; fi"
    programs(tmp_path, monkeypatch, sacct=script)
    assert accounting.ask({"3"}, wait_s=10).jobs["3"].cpu_s == 3.139


def test_the_wait_has_an_end_and_ones_own_job_is_not_waited_for(tmp_path, monkeypatch):
    (tmp_path / "late").write_text(RUNNING)
    programs(tmp_path, monkeypatch, sacct=f"echo >> {tmp_path}/asked; cat {tmp_path}/late")
    assert accounting.ask({"3"}, wait_s=1.5).jobs["3"].state == "RUNNING"
    assert len((tmp_path / "asked").read_text()) > 1
    (tmp_path / "asked").unlink()
    monkeypatch.setenv("SLURM_JOB_ID", "3")
    accounting.ask({"3"}, wait_s=60)
    assert len((tmp_path / "asked").read_text()) == 1


def test_where_accounting_is_off_squeue_is_asked(tmp_path, monkeypatch):
    (tmp_path / "queue").write_text(SQUEUE)
    off = "echo 'Slurm accounting storage is disabled' >&2; exit 1"
    programs(tmp_path, monkeypatch, sacct=off, squeue=f"cat {tmp_path}/queue")
    answer = accounting.ask({"3", "99"})
    assert (answer.source, answer.reason) == ("squeue", "sacct: Slurm accounting storage is disabled")
    assert set(answer.jobs) == {"3"}


def test_where_nobody_answers_that_is_said(tmp_path, monkeypatch):
    programs(tmp_path, monkeypatch)
    assert os.listdir(tmp_path) == []
    assert accounting.ask({"3"}) == Answer("none", "sacct: not found; squeue: not found", {})
