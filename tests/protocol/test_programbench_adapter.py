"""ProgramBench's adapter by the protocol's command lines, on a real engine with the local tasks of tests/images/.

PROGRAMBENCH_TEST_ROOT names a checkout of the official package to test with; else it is the installed wheel.
"""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import psutil
import pytest

from assize.benchmarks.programbench.engine import EVALUATOR, KIND, NODE, OWNER, Owner
from assize.benchmarks.programbench.verdicts import WHEELHOUSE_MODULES
from assize.records import ROOT, read_record, sha256_file
from conftest import wait_for
from programbench_support import BARE, LINES, OLDER, ORG, REPAIRED, SHIPPED, engine_or_skip, submission, tasks

__all__ = ["tasks"]

CHECKOUT = os.environ.get("PROGRAMBENCH_TEST_ROOT")
SECONDS = {"compile": 15, "run_tests": 60}


class Adapter:
    """``programbench_adapter.py`` for a manifest of local tasks."""

    def __init__(self, folder: Path, local: Path, *instances: str, wheelhouse: Path | None = None, **seconds: int):
        self.folder, self.tasks, self.engine = folder, local, engine_or_skip()
        self.wheelhouse, self.seconds = wheelhouse, SECONDS | seconds
        folder.mkdir(parents=True, exist_ok=True)
        self.manifest = folder / "manifest.json"
        made = ["manifest", "--images", ORG, "--pin-images", "--output", self.manifest, "--instances", *instances]
        assert self.run(*made)[0] == 0

    def command(self, *arguments) -> list[str]:
        options = ["--engine", self.engine, "--resource-mode", "none", "--cpus", 16]
        options += ["--tasks", self.tasks / "tasks", "--blobs", self.tasks / "blobs", "--manifest", self.manifest]
        for name, value in self.seconds.items():
            options += ["--seconds", f"{name}={value}"]
        if self.wheelhouse:
            options += ["--evaluator-wheelhouse", self.wheelhouse]
        if CHECKOUT:
            options += ["--programbench-root", CHECKOUT]
        return [str(part) for part in (sys.executable, "scripts/programbench_adapter.py", *options, *arguments)]

    def run(self, *arguments) -> tuple[int, dict]:
        """(exit status, the one JSON object on stdout)."""
        done = subprocess.run(self.command(*arguments), cwd=ROOT, capture_output=True, text=True)
        assert done.stdout.count("\n") == 1, done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)

    def calibrate(self) -> tuple[int, dict]:
        return self.run("calibrate", "--output-dir", self.folder / "calibration", "--repetitions", 1)

    @property
    def report(self) -> dict:
        return read_record(self.folder / "calibration" / "calibration.json", "calibration-report")

    def grading(self, instance: str, archive: Path, output: str) -> list:
        return [
            *("grade", "--instance-id", instance, "--submission", archive),
            *("--calibration", self.folder / "calibration" / "calibration.json", "--output-dir", self.folder / output),
        ]

    def grade(self, instance: str, files: dict[str, str] | bytes, output="grade") -> tuple[int, dict, dict]:
        """(exit status, what was printed, the record)."""
        archive = pack(self.folder / "submission.tar.gz", files)
        status, said = self.run(*self.grading(instance, archive, output))
        return status, said, read_record(self.folder / output / "grade.json", "grade")

    def left(self, kind="container") -> list[str]:
        """Ids of what this test's evaluators, or dead ones, left in the engine's store: others may be at work too."""
        listing = ("ps", "--all", "--quiet") if kind == "container" else ("images", "--quiet")
        found = []
        for id in self._engine(*listing, "--filter", f"label={KIND}={EVALUATOR}").split():
            # Empty where its owner has removed it meanwhile.
            inspected = self._engine(*(("inspect",) if kind == "container" else ("image", "inspect")), id)
            for facts in json.loads(inspected or "[]"):
                labels = facts["Config"]["Labels"]
                owner = Owner.parse(labels[NODE], labels[OWNER])
                ours = owner.pid in [child.pid for child in psutil.Process().children(recursive=True)]
                found += [id] if ours or owner.is_dead() else []
        return found

    def _engine(self, *arguments: str) -> str:
        return subprocess.run([self.engine, *arguments], capture_output=True, text=True).stdout


def pack(path: Path, files: dict[str, str] | bytes) -> Path:
    """A submission's archive of some files; bytes are written as they are."""
    if isinstance(files, bytes):
        path.write_bytes(files)
        return path
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member, data = tarfile.TarInfo(name), content.encode()
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture(scope="module")
def adapter(tasks, tmp_path_factory):
    """The adapter with both tasks calibrated."""
    house = tasks / "runtime" / "evaluator-wheelhouse"
    made = Adapter(tmp_path_factory.mktemp("adapter"), tasks, LINES, REPAIRED, wheelhouse=house)
    status, said = made.calibrate()
    assert (status, said["status"], said["tasks"]) == (0, "passed", [LINES, REPAIRED])
    return made


def summary(grade: dict) -> tuple:
    return grade["verdict"], grade["valid"], grade["analysis_score"], grade["scoring_status"]


def test_calibration_reports_every_reference_and_claims_no_limit(adapter):
    report = adapter.report
    assert set(report["tasks"]) == {LINES, REPAIRED}
    record = report["tasks"][LINES][0]
    assert record["reference"]["score"] == 1.0
    assert (record["sandbox"]["engine_limits"], record["sandbox"]["network"]) == (None, "none")
    assert record["sandbox"]["image_pinned"] is True
    assert len(record["detail"]["clean"]) == 2
    assert report["resource_mode"] == "none"
    # Official branches run the candidate beside the tests.
    assert "oracle_exposed" in record["flags"]
    assert adapter.left() == adapter.left("image") == []


SIXTEEN = pytest.approx(16 / 39)


@pytest.mark.parametrize(
    ("instance", "condition", "expected"),
    [
        (LINES, "correct", ("pass", True, 1.0, "resolved")),
        (LINES, "half-right", ("fail", True, SIXTEEN, "not_resolved")),
        (REPAIRED, "incorrect", ("fail", True, 0.0, "not_resolved")),
        (REPAIRED, "compile-failure", ("fail", True, 0.0, "build_failed")),
        (REPAIRED, "compile-hang", ("fail", True, 0.0, "build_timed_out")),
        (REPAIRED, "executable-directory", ("fail", True, 0.0, "no_executable")),
    ],
)
def test_each_condition_ends_in_its_status(adapter, instance, condition, expected):
    status, said, grade = adapter.grade(instance, submission(adapter.tasks, condition, instance))
    assert (status, summary(grade)) == (0, expected)
    assert said == {"ok": True, "record": grade}
    assert grade["provenance"]["submission"] == sha256_file(adapter.folder / "submission.tar.gz")
    assert grade["provenance"]["wheelhouse"] == adapter.report["wheelhouse"]
    assert grade["provenance"]["image_digest"].startswith("sha256:")
    assert "evidence/eval.json" in grade["evidence"]
    assert grade["oracle_exposed"] is True
    assert adapter.left() == adapter.left("image") == []


def test_a_conftest_at_the_root_is_flagged_and_the_official_score_kept(adapter):
    _, _, grade = adapter.grade(LINES, submission(adapter.tasks, "root-conftest", LINES))
    assert "root_file:conftest.py" in grade["tamper"]
    assert grade["score"] == grade["analysis_score"] == 1.0


# ------------------------------------------------------------ against the official evaluator

OFFICIAL = """
import json, os, sys
from pathlib import Path
tasks, instance_id, archive, out = sys.argv[1:]
from programbench.eval.eval_batch import _evaluate_instance
from programbench.submission import score_instance
from programbench.utils.load_data import load_all_instances
instance = next(one for one in load_all_instances(Path(tasks, "tasks")) if one["instance_id"] == instance_id)
source = Path(out, "source", instance_id)
source.mkdir(parents=True)
(source / "submission.tar.gz").write_bytes(Path(archive).read_bytes())
places = {"source_dir": source.parent, "target_dir": Path(out)}
_evaluate_instance(instance_id=instance_id, instance=instance, force=True, **places)
result = Path(out, instance_id, f"{instance_id}.eval.json")
print(json.dumps({"score": score_instance(result, instance), "result": json.loads(result.read_text())}))
"""


def officially(adapter, instance: str, archive: Path, out: Path) -> dict:
    """The official evaluator's own result on the same engine, without the adapter."""
    pinned = {
        "PROGRAMBENCH_DOCKER_EXECUTABLE": adapter.engine,
        "PROGRAMBENCH_DOCKER_ORG": ORG,
        "PROGRAMBENCH_DOCKER_CPUS": "16",
        "PROGRAMBENCH_BLOB_DIR": str(adapter.tasks / "blobs"),
    }
    command = [sys.executable, "-c", OFFICIAL, adapter.tasks, instance, archive, out]
    done = subprocess.run(command, env=os.environ | pinned, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def statuses(result: dict) -> dict[str, list[str]]:
    found = {}
    for test in result["test_results"]:
        found.setdefault(f"{test['branch']}/{test['name']}", []).append(test["status"])
    return found


@pytest.mark.parametrize(
    ("instance", "condition"), [(REPAIRED, "correct"), (REPAIRED, "incorrect"), (LINES, "half-right")]
)
def test_the_grade_is_the_official_evaluators_test_by_test(adapter, tmp_path, instance, condition):
    _, _, grade = adapter.grade(instance, submission(adapter.tasks, condition, instance))
    official = officially(adapter, instance, adapter.folder / "submission.tar.gz", tmp_path)
    ours = json.loads((adapter.folder / "grade" / "evidence" / "eval.json").read_text())
    assert statuses(ours) == statuses(official["result"])
    assert grade["score"] == grade["analysis_score"] == official["score"]
    assert ours["executable_hash"] == official["result"]["executable_hash"]
    # Every check of the grade is an official test that counts.
    passed = {name for name, found in statuses(official["result"]).items() if found == ["passed"]}
    assert {check["id"] for check in grade["checks"] if check["verdict"] == "pass"} <= passed


# ------------------------------------------------------------ harness faults are no scores


def test_an_image_without_plugins_is_never_a_zero_and_with_the_wheelhouse_all_pass(tasks, tmp_path):
    house = tasks / "runtime" / "evaluator-wheelhouse"
    correct = submission(tasks, "correct", BARE)
    bare = Adapter(tmp_path / "bare", tasks, BARE)
    status, said = bare.calibrate()
    assert (status, said["error"]["code"]) == (4, "calibration_failed")
    assert "pytest-rerunfailures cannot be installed" in bare.report["reasons"][0]

    full = Adapter(tmp_path / "full", tasks, BARE, wheelhouse=house)
    assert full.calibrate()[0] == 0
    _, _, grade = full.grade(BARE, correct)
    assert (summary(grade), grade["detail"]["passed"]) == (("pass", True, 1.0, "resolved"), 3)

    # The gate of a calibration with the wheelhouse is not open without it.
    full.wheelhouse = None
    archive = pack(full.folder / "submission.tar.gz", correct)
    status, said = full.run(*full.grading(BARE, archive, "refused"))
    assert (status, said["error"]["code"]) == (4, "other_calibration")
    assert "wheelhouse" in said["error"]["message"]

    # Past every gate, the missing plugins are still no score.
    report = full.report
    report["wheelhouse"] = None
    report["tasks"][BARE][0]["detail"]["wheelhouse"] = None
    (full.folder / "calibration" / "calibration.json").write_text(json.dumps(report))
    status, said, grade = full.grade(BARE, correct, "void")
    assert (status, said["error"]["code"]) == (3, "plugins_missing")
    assert summary(grade) == ("void", False, None, "infra")
    assert "evidence/interrupted.json" in grade["evidence"]
    assert full.left() == full.left("image") == []


def test_an_images_own_pytest_is_kept_and_binds_the_grade(tasks, tmp_path):
    older = Adapter(tmp_path, tasks, OLDER, wheelhouse=tasks / "runtime" / "evaluator-wheelhouse")
    assert older.calibrate()[0] == 0
    files = submission(tasks, "correct", OLDER)
    _, _, grade = older.grade(OLDER, files)
    assert summary(grade) == ("pass", True, 1.0, "resolved")
    assert grade["provenance"]["packages"]["pytest"] == "8.3.5"
    ours = json.loads((tmp_path / "grade" / "evidence" / "eval.json").read_text())
    said = next(entry["output"] for entry in ours["log"] if entry["step"] == "run_tests")
    assert "pytest-8.3.5" in said
    assert "rerunfailures-16.4" in said

    # A calibration with another pytest is none of this image.
    report = older.report
    report["tasks"][OLDER][0]["detail"]["packages"]["pytest"] = "9.2.0"
    (tmp_path / "calibration" / "calibration.json").write_text(json.dumps(report))
    status, said = older.run(*older.grading(OLDER, tmp_path / "submission.tar.gz", "refused"))
    assert (status, said["error"]["code"]) == (4, "other_calibration")
    assert "packages" in said["error"]["message"]


def test_the_modules_that_are_flagged_are_those_of_the_wheelhouse(tasks):
    found = set()
    for path in (tasks / "runtime" / "evaluator-wheelhouse").glob("*.whl"):
        with zipfile.ZipFile(path) as wheel:
            tops = {name.split("/")[0] for name in wheel.namelist()}
        found |= {name.removesuffix(".py") for name in tops if "." not in name.removesuffix(".py")}
    assert found - {"docs", "distutils-precedence"} <= WHEELHOUSE_MODULES


def test_names_as_the_package_ships_them_are_a_naming_artefact(tasks, tmp_path):
    shipped = Adapter(tmp_path, tasks, SHIPPED, wheelhouse=tasks / "runtime" / "evaluator-wheelhouse")
    status, said = shipped.calibrate()
    assert (status, said["error"]["code"]) == (4, "calibration_failed")
    record = shipped.report["tasks"][SHIPPED][0]
    # Officially this reference scores one half.
    assert (record["reference"]["score"], record["reference"]["scoring_status"]) == (0.5, "naming_artefact")
    archive = pack(tmp_path / "submission.tar.gz", submission(tasks, "correct", SHIPPED))
    assert shipped.run(*shipped.grading(SHIPPED, archive, "grade"))[0] == 4


def test_a_branch_that_is_ended_for_its_time_counts_as_zero(tasks, tmp_path):
    house = tasks / "runtime" / "evaluator-wheelhouse"
    short = Adapter(tmp_path, tasks, REPAIRED, wheelhouse=house, run_tests=25)
    assert short.calibrate()[0] == 0
    # One test hangs, and is tried three times.
    _, _, grade = short.grade(REPAIRED, submission(tasks, "hanging-test", REPAIRED))
    assert summary(grade) == ("fail", True, 0.0, "branch_failed")
    assert "ended for their time" in grade["reason"]
    assert grade["provenance"]["seconds"]["run_tests"] == 25
    assert short.left() == short.left("image") == []


def test_a_corrupt_submission_is_a_valid_zero(adapter):
    status, _, grade = adapter.grade(REPAIRED, b"\x1f\x8b no archive")
    assert (status, summary(grade)) == (0, ("fail", True, 0.0, "submission_rejected"))


def test_a_build_that_ends_its_container_is_a_valid_zero(adapter):
    files = {"compile.sh": "#!/bin/sh\nkill -KILL -1\nsleep 60\n"}
    _, _, grade = adapter.grade(REPAIRED, files)
    assert summary(grade) == ("fail", True, 0.0, "build_failed")
    assert len(grade["detail"]["compile_runs"]) == 2
    assert adapter.left() == []


SITE = "/usr/local/lib/python3.11/dist-packages"


@pytest.mark.parametrize(
    ("script", "replaced"),
    [
        # Whatever it is asked to do, it has done.
        ("rm /usr/bin/python3; ln -s /bin/true /usr/bin/python3", "/usr/bin/python3"),
        ("cp /bin/true /usr/local/bin/bash", "/usr/local/bin/bash"),
        # The engine tells only that the folder changed.
        (f"cp -a {SITE}/pytest /opt/own; rm -r {SITE}/pytest; ln -s /opt/own {SITE}/pytest", f"{SITE}/pytest"),
        ("rm -rf /bin /usr/bin", "/usr/bin"),
    ],
)
def test_a_build_that_replaces_what_its_tests_run_with_is_a_valid_zero(adapter, script, replaced):
    files = submission(adapter.tasks, "correct", REPAIRED)
    files["compile.sh"] += f"\n{script}\n"
    status, _, grade = adapter.grade(REPAIRED, files)
    assert (status, summary(grade)) == (0, ("fail", True, 0.0, "tools_replaced"))
    assert f"replaced:{replaced}" in grade["tamper"]
    assert adapter.left() == adapter.left("image") == []


HOP = """#!/bin/sh
set -- /opt/assize-wheelhouse-*
[ ! -e "$1" ] || : >/opt/planted
/workspace/hop.sh >/dev/null 2>&1 </dev/null &
"""
# Right only where something of the build lived on, after all that it changed had been looked at.
PLANTED = "#!/bin/bash\n[ -e /opt/planted ] || exit 1\necho $(($1 $2 $3))\n"


def test_a_build_that_forks_from_process_to_process_does_not_outlive_compile_sh(adapter):
    build = "#!/bin/sh\nchmod +x hop.sh\ncp own.sh executable\nchmod +x executable\n"
    # Several: to end the processes that are seen ends some of them at least.
    build += "./hop.sh\n" * 6
    _, _, grade = adapter.grade(REPAIRED, {"compile.sh": build, "hop.sh": HOP, "own.sh": PLANTED})
    assert summary(grade) == ("fail", True, 0.0, "not_resolved")
    assert any(flag.startswith("survivors:") for flag in grade["tamper"])
    observed = json.loads((adapter.folder / "grade" / "evidence" / "observed.json").read_text())
    assert observed["survivors"] >= 1


ROUTES = "{ tail -n +2 /proc/net/route; grep -v ' lo$' /proc/net/ipv6_route; } 2>/dev/null | grep . && exit 9"


def test_a_container_that_a_build_ends_behind_itself_is_judged_by_what_it_left(adapter):
    files = submission(adapter.tasks, "correct", REPAIRED)
    # It has no route to anywhere.
    files["compile.sh"] = files["compile.sh"].replace("\n", f"\n{ROUTES}\n", 1)
    files["compile.sh"] += "\nsetsid sh -c 'sleep 0.1; kill -KILL -1' >/dev/null 2>&1 &\n"
    _, _, grade = adapter.grade(REPAIRED, files)
    assert summary(grade) == ("pass", True, 1.0, "resolved")


def test_a_grade_under_other_limits_than_its_references_is_refused(adapter):
    archive = pack(adapter.folder / "other.tar.gz", submission(adapter.tasks, "correct", REPAIRED))
    for option, value, name in (("--cpus", "1", "the CPUs"), ("--resource-mode", "container", "the resource mode")):
        command = adapter.command(*adapter.grading(REPAIRED, archive, "refused"))
        command[command.index(option) + 1] = value
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        error = json.loads(done.stdout)["error"]
        assert (done.returncode, error["code"]) == (4, "other_calibration")
        assert name in error["message"]


def test_what_a_build_changes_in_the_image_is_flagged(adapter):
    files = submission(adapter.tasks, "correct", REPAIRED)
    files["compile.sh"] += "\ncp /bin/true /usr/local/bin/unzip\necho : >> /etc/profile\n"
    files["compile.sh"] += (
        "mkdir -p /root/.config/pip; printf '[install]\\ntarget = /x\\n' >/root/.config/pip/pip.conf\n"
    )
    files["compile.sh"] += "setsid sh -c 'while :; do sleep 1; done' >/dev/null 2>&1 &\n"
    # A file that comes and goes changes its folder, and nothing else.
    files["compile.sh"] += "touch /usr/bin/passing; rm /usr/bin/passing\n"
    _, _, grade = adapter.grade(REPAIRED, files)
    changed = {f"changed:{path}" for path in ("/usr/local/bin/unzip", "/etc/profile", "/root/.config/pip/pip.conf")}
    assert changed < set(grade["tamper"])
    assert any(flag.startswith("survivors:") for flag in grade["tamper"])
    # The plugins are there all the same, and the score is the official one.
    assert summary(grade) == ("pass", True, 1.0, "resolved")


def test_a_missing_blob_and_a_missing_image_are_infrastructure(adapter, tmp_path):
    manifest = json.loads(adapter.manifest.read_text())
    for entry in manifest["tasks"].values():
        entry["image"], entry["image_digest"] = "localhost/never-built:1", None
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    command = adapter.command("images")
    command[command.index(str(adapter.manifest))] = str(tmp_path / "manifest.json")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 3
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["message"].count("localhost/never-built:1: missing")) == ("missing_image", 2)

    command = adapter.command("probe", "--instance-id", REPAIRED, "--output-dir", tmp_path)
    command[command.index(str(adapter.tasks / "blobs"))] = str(tmp_path / "nothing")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "missing" in json.loads(done.stdout)["reasons"][0]


def test_bad_usage_is_one_json_object_and_exit_status_2(adapter):
    for arguments in (["grade"], ["nothing"], ["calibrate", "--output-dir", "x", "--repetitions", "0"]):
        status, said = adapter.run(*arguments)
        assert (status, said["ok"], said["error"]["code"]) == (2, False, "bad_usage")


def test_a_probe_looks_at_the_first_branch_alone_and_opens_no_gate(adapter, tmp_path):
    status, said = adapter.run("probe", "--instance-id", LINES, "--output-dir", tmp_path)
    assert (status, said["status"], said["diagnostic"]) == (0, "passed", True)
    probe = read_record(tmp_path / "probe.json", "probe")
    assert len(probe["tasks"][LINES][0]["detail"]["branches"]) == 1
    archive = pack(tmp_path / "submission.tar.gz", submission(adapter.tasks, "correct", LINES))
    command = adapter.grading(LINES, archive, "refused")
    command[command.index("--calibration") + 1] = tmp_path / "probe.json"
    status, said = adapter.run(*command)
    assert (status, said["ok"]) == (2, False)


# ------------------------------------------------------------ leftovers


def start_hanging_grade(adapter, condition="compile-hang") -> subprocess.Popen:
    """A grade whose build, or whose tests, hang; once its container runs."""
    archive = pack(adapter.folder / "submission.tar.gz", submission(adapter.tasks, condition, REPAIRED))
    command = adapter.command(*adapter.grading(REPAIRED, archive, "killed"))
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: adapter.left() if condition == "compile-hang" else adapter.left("image") and adapter.left())
    return process


def live_limits(adapter) -> dict:
    """What the engine says of the network and the limits of the one evaluator that runs."""
    (container,) = adapter.left()
    (facts,) = json.loads(adapter._engine("inspect", container))
    return {key: facts["HostConfig"][key] for key in ("NetworkMode", "NanoCpus", "CpuQuota", "Memory")}


@pytest.mark.parametrize(
    ("condition", "left"), [("compile-hang", ["container"]), ("hanging-test", ["container", "image"])]
)
def test_what_a_killed_grade_left_is_swept_and_what_runs_is_not(adapter, condition, left):
    process = start_hanging_grade(adapter, condition)
    limits = live_limits(adapter)
    assert limits == {"NetworkMode": "none", "NanoCpus": 0, "CpuQuota": 0, "Memory": 0}
    assert adapter.run("sweep") == (0, {"ok": True, "removed": []})
    assert len(adapter.left()) == 1
    process.kill()
    process.wait()
    assert len(adapter.left()) == 1
    status, said = adapter.run("sweep")
    assert status == 0
    assert [what.split()[0] for what in said["removed"]] == [*left, "folder"]
    assert adapter.left() == adapter.left("image") == []


def test_a_grade_that_is_asked_to_end_cleans_up(adapter):
    process = start_hanging_grade(adapter)
    process.send_signal(signal.SIGTERM)
    started = time.time()
    assert process.wait(60) == 143
    assert time.time() - started < 30
    assert adapter.left() == adapter.left("image") == []
    assert adapter.run("sweep") == (0, {"ok": True, "removed": []})


# ------------------------------------------------------------ the solver's side


def test_a_solvers_commit_is_frozen_and_graded(adapter, tmp_path, monkeypatch):
    prepare = ["prepare", "--instance-id", REPAIRED, "--episode-id", "by-hand-1", "--output-dir", tmp_path / "episode"]
    # The solver's side opens no task.
    with monkeypatch.context() as nowhere:
        nowhere.setattr(adapter, "tasks", tmp_path / "no-tasks")
        status, said = adapter.run(*prepare, "--lifetime", 600)
    assert status == 0
    prepared = read_record(tmp_path / "episode" / "prepared.json", "prepared")
    assert prepared["task"]["container"] == said["container"]
    assert "/reference/executable" in prepared["task"]["prompt"]
    checkout = prepared["task"]["layout"]["agents"]["solver"]
    files = submission(adapter.tasks, "correct", REPAIRED)
    script = "".join(f"printf %s {shlex.quote(content)} >{name}\n" for name, content in files.items())
    hand_in = f"{script}git add . && git commit -qm x && git push -q origin HEAD:main"
    inside = ["exec", "--user", "agent", "--workdir", checkout, said["container"], "bash", "-c", hand_in]
    subprocess.run([adapter.engine, *inside], check=True)

    freeze = ["snapshot", "--instance-id", REPAIRED, "--container", said["container"], "--output-dir"]
    with monkeypatch.context() as nowhere:
        nowhere.setattr(adapter, "tasks", tmp_path / "no-tasks")
        status, between = adapter.run(*freeze, tmp_path / "0001")
    assert (status, between["submission"]) == (0, str(tmp_path / "0001" / REPAIRED / "submission.tar.gz"))
    # The solver is still at work; one commit gives the same bytes at the end.
    status, last = adapter.run(*freeze, tmp_path / "0002", "--end")
    assert last["record"]["sha256"] == between["record"]["sha256"] == sha256_file(between["submission"])
    assert len(last["record"]["detail"]["commit"]) == 40
    status, said = adapter.run(*freeze, tmp_path / "0003")
    assert (status, said["error"]["code"]) == (3, "container_gone")

    status, said = adapter.run(*adapter.grading(REPAIRED, Path(between["submission"]), "solved"))
    assert (status, summary(said["record"])) == (0, ("pass", True, 1.0, "resolved"))
