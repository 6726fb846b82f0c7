"""The audit of a finished study: one flipped byte is found in every kind of file, and so is a forgery that fits."""

import json
import os
import random
import shutil

import pytest
import yaml

from assize import audit, seal
from assize.records import ROOT, digest, sha256_file
from assize.study import Study
from conftest import Project, copy_project
from generated_study import count, frozen, generate

STARTER = ROOT / "config" / "suites" / "starter.json"
CONFIG = {
    "name": "audited",
    "datasets": {
        "starter": {
            "filename": "starter.json",
            "sha256": sha256_file(STARTER),
            "size": STARTER.stat().st_size,
            "sources": [{"file": "config/suites/starter.json"}],
        }
    },
    "benchmarks": {
        "command": {
            "suite": {"dataset": "starter"},
            "instances": ["interval-merge-python", "longest-line-bash"],
            "calibration": {"repetitions": 1},
        }
    },
    "conditions": {"reference": {"solver": "reference"}, "noop": {"solver": "noop"}},
}
EPISODE = "audited/episodes/command/noop/longest-line-bash/1"
KINDS = {
    "study": "audited/study.json",
    "staged data": "staged/*/starter.json",
    "receipt": "staged/*/starter.json.json",
    "calibration": "audited/calibration/command/longest-line-bash/1.json",
    "admission": "audited/admission/command/longest-line-bash.json",
    "prepared": f"{EPISODE}/prepared.json",
    "solved": f"{EPISODE}/solved.json",
    "snapshot": f"{EPISODE}/snapshot.json",
    "archive": f"{EPISODE}/submission.tar.gz",
    "grade": f"{EPISODE}/grade.json",
    "evidence": f"{EPISODE}/evidence/reward.json",
    "census": "audited/census/census.json",
    "rows": "audited/census/grades.csv",
    "seal": "audited/census/SHA256SUMS",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A whole run of a small study, staged data included."""
    project = Project(copy_project(tmp_path_factory.mktemp("audit") / "project"))
    (project.root / "audited.yaml").write_text(yaml.safe_dump(CONFIG))
    project.snakemake("--configfile", "audited.yaml")
    return project


@pytest.fixture
def results(finished, tmp_path):
    """A copy of that run's results, to spoil."""
    return shutil.copytree(finished.root / "results", tmp_path / "results")


def broken(results, **options) -> list[str]:
    """The files that an audit finds at fault, below results/."""
    found = audit.verify(results / "audited", **options)["broken"]
    return sorted({item["file"].removeprefix(f"{results}/") for item in found})


def reseal(results) -> None:
    seal.write_seal(Study.read(results / "audited" / "study.json"))


def rewrite(path, change) -> None:
    """Change a record as a forger would: well-formed afterwards."""
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record, sort_keys=True, indent=1) + "\n")


def test_an_untouched_study_holds_and_its_seal_is_what_the_census_printed(finished):
    done = finished.script("audit.py", "verify", "results/audited")
    found = json.loads(done.stdout)
    assert (found["ok"], found["broken"]) == (True, [])
    assert found["checked"] == {
        "admission": 2,
        "calibration": 2,
        "census": 1,
        "evidence": found["checked"]["evidence"],
        "files": found["checked"]["files"],
        "grade": 4,
        "pins": 1,
        "prepared": 4,
        "receipt": 1,
        "snapshot": 4,
        "snapshots": 4,
        "solved": 4,
        "staged": 1,
    }
    table = finished.script("census.py", "--table", "--study", "results/audited/study.json").stdout
    assert f"Seal of this study, to publish with its numbers: {found['seal']}" in table
    assert "logs/" in found["exempt"]
    finished.script("audit.py", "verify", "results/audited", "--seal", found["seal"])
    # The list can be checked without this project.
    finished.run("sh", "-c", "cd results/audited && sha256sum --check --strict --quiet census/SHA256SUMS")


@pytest.mark.parametrize("where", ["first", "middle", "last"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_flipped_byte_is_found(results, kind, where):
    (path,) = results.glob(KINDS[kind])
    data = bytearray(path.read_bytes())
    data[{"first": 0, "middle": len(data) // 2, "last": -1}[where]] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    found = broken(results)
    assert found != []
    assert kind == "seal" or str(path.relative_to(results)) in found


def test_no_flipped_byte_of_a_record_goes_unseen_or_ends_the_audit(tmp_path):
    """Anywhere in it: in a name that other records refer to, too."""
    study = generate(tmp_path / "made", frozen("made", instances=1, conditions=1))
    names = ["study.json", "census/census.json", "census/SHA256SUMS", "admission/command/task-00000.json"]
    names += [f"episodes/command/condition-0/task-00000/1/{kind}.json" for kind in audit.EPISODE_RECORDS]
    places = random.Random(1)
    for name in names:
        path = study.root / name
        data = path.read_bytes()
        # The references of a study's parts to one another: each byte of them.
        start = data.find(b'"conditions": {\n  "condition-0"') if name == "study.json" else 0
        for place in {*range(start, start + 90), *places.sample(range(len(data)), min(len(data), 30))}:
            if place < len(data):
                path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
                assert audit.verify(study.root)["broken"] != [], (name, place)
        path.write_bytes(data)
    assert audit.verify(study.root)["broken"] == []


def test_a_condition_that_was_taken_out_leaves_grades_that_are_no_fault_and_are_named(tmp_path):
    study = generate(tmp_path / "made", frozen("made", instances=1, conditions=2))

    def take_out(record):
        del record["conditions"]["condition-1"], record["config"]["conditions"]["condition-1"]

    rewrite(study.root / "study.json", take_out)
    study = Study.read(study.root / "study.json")
    count(study)
    found = audit.verify(study.root)
    assert (found["broken"], found["unplanned"]) == ([], ["episodes/command/condition-1/task-00000/1/grade.json"])


def test_the_command_prints_each_broken_link_and_exits_4(finished, results):
    path = results / EPISODE / "evidence" / "grader.log"
    path.write_bytes(path.read_bytes() + b"x")
    done = finished.script("audit.py", "verify", results / "audited", check=False)
    assert done.returncode == 4
    record = json.loads(done.stdout)
    assert (record["ok"], record["error"]["code"]) == (False, "broken")
    assert {(item["file"], item["link"]) for item in record["broken"]} == {(str(path), "seal"), (str(path), "evidence")}
    assert done.stderr.count(str(path)) == 2


def test_a_log_is_not_sealed_and_the_audit_says_so(results):
    log = next((results / "audited" / "logs").rglob("*.log"))
    log.write_text("other words")
    found = audit.verify(results / "audited")
    assert found["broken"] == []
    assert "logs/" in found["exempt"]


def test_a_file_that_was_added_or_removed_is_found(results):
    (results / EPISODE / "extra.json").write_text("{}")
    (results / EPISODE / "prepared.json").unlink()
    assert broken(results) == [f"{EPISODE}/extra.json", f"{EPISODE}/prepared.json"]


def test_a_file_that_is_none_of_the_study_s_is_not_opened_for_its_seal(results):
    (results / "other").write_text("x")
    with open(results / "audited/census/SHA256SUMS", "a") as sums:
        sums.write(f"{sha256_file(results / 'other')}  ../other\n")
    assert "audited/../other" in broken(results)


def test_a_pipe_in_the_place_of_a_file_ends_the_audit_soon(results):
    for name in ("grade.json", "submission.tar.gz"):
        (results / EPISODE / name).unlink()
        os.mkfifo(results / EPISODE / name)
    found = broken(results)
    assert {f"{EPISODE}/grade.json", f"{EPISODE}/submission.tar.gz"} <= set(found)


def spoil_archive(results):
    shutil.copy(results / "audited/episodes/command/reference/longest-line-bash/1/submission.tar.gz", results / EPISODE)
    archive = results / EPISODE / "submission.tar.gz"
    change = {"sha256": sha256_file(archive), "size": archive.stat().st_size}
    rewrite(results / EPISODE / "snapshot.json", lambda record: record.update(change))


def open_gate(results):
    gate = results / "audited/admission/command/longest-line-bash.json"
    rewrite(gate, lambda record: record.update(flags=["oracle_exposed"]))


def soften_calibration(results):
    path = results / "audited/calibration/command/longest-line-bash/1.json"
    rewrite(path, lambda record: record.update(seconds=0.1))


def move_grade(results):
    other = results / "audited/episodes/command/reference/longest-line-bash/1/grade.json"
    shutil.copy(other, results / EPISODE / "grade.json")


def loosen_terms(results):
    def change(study):
        section = study["benchmarks"]["command"]
        section["terms"]["allocation"] = {"cpus": 1, "memory": "1g"}
        section["terms_digest"] = digest(section["terms"])

    rewrite(results / "audited/study.json", change)


def plant_evidence(results):
    (results / EPISODE / "evidence" / "planted.log").write_text("all passed")


def swap_evidence(results):
    (results / EPISODE / "evidence" / "grader.log").write_text("all passed")


def raise_headline(results):
    def change(census):
        next(line for line in census["conditions"] if line["condition"] == "noop").update(passed=1, failed=1)

    rewrite(results / "audited/census/census.json", change)


def change_a_row(results):
    path = results / "audited/census/grades.csv"
    path.write_text(path.read_text().replace(",fail,", ",pass,", 1))


NOOP, REFERENCE = EPISODE, "audited/episodes/command/reference/longest-line-bash/1"


def change_grade(episode, **keys):
    """A forger of one grade: what stands in ``provenance`` is added to what is there."""

    def forge(results):
        def change(grade):
            grade["provenance"] |= keys.get("provenance", {})
            grade |= {key: value for key, value in keys.items() if key != "provenance"}

        rewrite(results / episode / "grade.json", change)

    return forge


def bar_gate(results):
    """Calibration barred the instance, and its grades stand."""
    for path in (results / "audited/calibration/command/longest-line-bash").glob("*.json"):
        rewrite(path, lambda record: record.update(passed=False, reasons=["the reference fails"]))
        hashes = [sha256_file(path)]
    gate = {"calibrations": hashes, "status": "barred", "reasons": ["the reference fails"]}
    rewrite(results / "audited/admission/command/longest-line-bash.json", lambda record: record.update(gate))
    for episode in (NOOP, REFERENCE):
        change_grade(episode, provenance={"calibration": digest(hashes)})(results)


def borrow_evidence(results):
    """Another file with the right hash, where the grader's own was."""
    shutil.rmtree(results / REFERENCE / "evidence")
    name = "evidence/../snapshot.json"
    change_grade(REFERENCE, evidence={name: sha256_file(results / REFERENCE / "snapshot.json")})(results)


def disown_work(status):
    def forge(results):
        rewrite(results / REFERENCE / "snapshot.json", lambda record: record.update(status=status, reason="why"))

    return forge


def drop_an_episode(what):
    """Plan less than the config beside it says, as if the rest had never been meant."""

    def forge(results):
        def change(study):
            if what == "instance":
                study["benchmarks"]["command"]["instances"].remove("longest-line-bash")
            elif what == "condition":
                del study["conditions"]["noop"]
            else:
                study["config"]["repeats"] = 2

        rewrite(results / "audited/study.json", change)
        count(Study.read(results / "audited/study.json"))

    return forge


@pytest.mark.parametrize(
    ("forge", "names"),
    [
        (bar_gate, f"{REFERENCE}/grade.json"),
        (borrow_evidence, f"{REFERENCE}/grade.json"),
        (disown_work("missing"), f"{REFERENCE}/grade.json"),
        (disown_work("rejected"), f"{REFERENCE}/grade.json"),
        (disown_work("void"), f"{REFERENCE}/grade.json"),
        (change_grade(REFERENCE, provenance={"suite": "0" * 64}), f"{REFERENCE}/grade.json"),
        (change_grade(REFERENCE, provenance={"resource_mode": "container"}), f"{REFERENCE}/grade.json"),
        (change_grade(REFERENCE, provenance={"protocol_version": "9"}), f"{REFERENCE}/grade.json"),
        (change_grade(REFERENCE, provenance={"sandbox": {"lane": "subprocess"}}), f"{REFERENCE}/grade.json"),
        (change_grade(NOOP, verdict="pass"), f"{NOOP}/grade.json"),
        (drop_an_episode("instance"), "audited/study.json"),
        (drop_an_episode("condition"), "audited/study.json"),
        (drop_an_episode("repeat"), "audited/study.json"),
        (spoil_archive, f"{EPISODE}/grade.json"),
        (open_gate, "audited/admission/command/longest-line-bash.json"),
        (soften_calibration, "audited/admission/command/longest-line-bash.json"),
        (move_grade, f"{EPISODE}/grade.json"),
        (loosen_terms, f"{EPISODE}/grade.json"),
        (plant_evidence, f"{EPISODE}/evidence/planted.log"),
        (swap_evidence, f"{EPISODE}/evidence/grader.log"),
        (raise_headline, "audited/census/census.json"),
        (change_a_row, "audited/census/grades.csv"),
    ],
)
def test_a_forgery_that_was_sealed_again_breaks_the_chain(results, forge, names):
    before = seal.seal_of(Study.read(results / "audited" / "study.json"))
    forge(results)
    reseal(results)
    assert names in broken(results)
    assert "audited/census/SHA256SUMS" in broken(results, expected_seal=before)


def test_a_forgery_that_fits_everywhere_is_told_by_the_published_seal_alone(tmp_path):
    """A verdict changed, counted and sealed again: no record can know. What was published does."""
    study = generate(tmp_path / "made", frozen("made", instances=3, conditions=2))
    published = audit.verify(study.root)["seal"]
    path = study.episode_folder(study.episodes()[0]) / "grade.json"
    rewrite(path, lambda grade: grade.update(verdict="fail", score=0.0, analysis_score=0.0, scoring_status="failed"))
    count(study)
    assert audit.verify(study.root)["broken"] == []
    (link,) = audit.verify(study.root, published)["broken"]
    assert link["link"] == "seal"


def test_an_unfinished_study_is_no_sealed_one(tmp_path):
    study = generate(tmp_path / "made", frozen("made", instances=2, conditions=1))
    (study.root / "census" / "SHA256SUMS").unlink()
    (study.episode_folder(study.episodes()[0]) / "grade.json").unlink()
    links = {(item["link"], item["message"].split(":")[-1].strip()) for item in audit.verify(study.root)["broken"]}
    assert ("seal", "the study is not sealed") in links
    assert ("schema", "no such grade record") in links
