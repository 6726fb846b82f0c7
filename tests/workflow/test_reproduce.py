"""A study bundled, and graded again from its bundle in a checkout that never saw it; bundles that lie are not run."""

import gzip
import hashlib
import io
import json
import shutil
import tarfile

import pytest
import yaml

from assize.archive import pack
from assize.benchmarks.scicode import court
from assize.records import digest, sha256_file
from conftest import Project, copy_project
from generated_study import frozen, generate
from scicode_support import DATA, ROOT, needs_data, needs_runtime

COMMAND = {
    "suite": {"path": "config/suites/starter.json"},
    "instances": ["interval-merge-python", "longest-line-bash"],
    "calibration": {"repetitions": 1},
}
CONDITIONS = {
    "reference": {"solver": "reference"},
    "noop": {"solver": "noop"},
    "wrong": {"solver": "replay", "submissions": {"command": "config/suites/starter-wrong.json"}},
}


def checkout(place) -> Project:
    """A checkout of its own that shares this one's SciCode data and runtime."""
    project = Project(copy_project(place / "project"))
    if DATA.exists():
        (place / "shared").symlink_to(DATA.parents[1])
    if (ROOT / court.VENV).exists():
        (project.root / court.VENV).symlink_to((ROOT / court.VENV).resolve())
    return project


def study_of(project, config: dict):
    """Run a study; its bundle."""
    (project.root / "study.yaml").write_text(yaml.safe_dump(config))
    project.snakemake("--configfile", "study.yaml")
    done = project.script("reproduce.py", "bundle", f"results/{config['name']}")
    return project.root / json.loads(done.stdout)["output"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The bundle of a small command study, and the project that made it."""
    project = checkout(tmp_path_factory.mktemp("original"))
    return study_of(project, {"name": "small", "benchmarks": {"command": COMMAND}, "conditions": CONDITIONS})


@pytest.fixture
def elsewhere(tmp_path):
    """A checkout with no results in it."""
    return checkout(tmp_path)


@needs_data
@needs_runtime
def test_two_benchmarks_and_three_conditions_are_graded_again_with_the_same_verdicts(tmp_path_factory, elsewhere):
    project = checkout(tmp_path_factory.mktemp("two"))
    dev = yaml.safe_load((project.root / "config" / "studies" / "scicode-dev.yaml").read_text())
    wrong = CONDITIONS["wrong"]["submissions"] | {"scicode": "mutated-reference"}
    config = {
        "name": "two",
        "datasets": dev["datasets"],
        "benchmarks": {"command": COMMAND, "scicode": dev["benchmarks"]["scicode"] | {"instances": ["29", "38"]}},
        "conditions": CONDITIONS | {"wrong": {"solver": "replay", "submissions": wrong}},
    }
    bundle = study_of(project, config)
    with tarfile.open(bundle) as tar:
        names = tar.getnames()
    # The benchmark's data is not in it, neither staged nor derived; its receipt is.
    assert [name for name in names if name.endswith((".jsonl", ".h5"))] == []
    assert [name for name in names if name.startswith("results/staged/")] != []
    # No solver works again: what a condition once handed in need not be there.
    (elsewhere.root / "config/suites/starter-wrong.json").unlink()
    done = elsewhere.script("reproduce.py", "rerun", bundle)
    comparison = json.loads(done.stdout)["comparison"]
    assert (comparison["identical"], comparison["planned"]) == (12, 12)
    assert (comparison["changed"], comparison["not_comparable"], comparison["pins"]) == ([], [], [])
    assert "rule solve" not in done.stderr
    again = json.loads((elsewhere.root / "results/two-rerun/census/census.json").read_text())
    verdicts = {(row["benchmark"], row["condition"]): (row["passed"], row["failed"]) for row in again["conditions"]}
    assert verdicts["command", "reference"] == verdicts["scicode", "reference"] == (2, 0)
    assert verdicts["command", "wrong"] == verdicts["command", "noop"] == verdicts["scicode", "noop"] == (0, 2)
    elsewhere.script("audit.py", "verify", "results/two-rerun")


def test_a_bundle_is_the_same_bytes_for_the_same_study_and_says_what_is_in_it(bundle, tmp_path):
    project = Project(bundle.parents[1])
    again = json.loads(project.script("reproduce.py", "bundle", "results/small", "--output", tmp_path / "b").stdout)
    assert again["sha256"] == sha256_file(bundle)
    with tarfile.open(bundle) as tar:
        names = set(tar.getnames())
        crate = json.load(tar.extractfile("ro-crate-metadata.json"))
        manifest = json.load(tar.extractfile("bundle.json"))
    entities = {entity["@id"]: entity for entity in crate["@graph"]}
    files = {name for name, entity in entities.items() if "File" in entity["@type"]}
    assert files <= names
    assert {"Snakefile", "envs/requirements.lock", "inputs/config/suites/starter.json", "README.md"} <= files
    assert entities["./"]["mainEntity"] == {"@id": "Snakefile"}
    profiles = {item["@id"] for item in entities["./"]["conformsTo"]}
    assert "https://w3id.org/ro/wfrun/workflow/0.5" in profiles
    assert profiles <= set(entities)
    action = entities["#grading-small"]
    assert action["instrument"] == {"@id": "Snakefile"}
    assert {"@id": "results/small/census/grades.csv"} in action["result"]
    assert manifest["seal"] == sha256_file(bundle.parent / "small" / "census" / "SHA256SUMS")
    assert not [name for name in names if "/logs/" in name]


def test_a_rerun_that_was_cut_off_goes_on_and_a_folder_of_another_is_left_alone(bundle, elsewhere):
    elsewhere.script("reproduce.py", "rerun", bundle)
    grades = sorted((elsewhere.root / "results/small-rerun/episodes").rglob("grade.json"))
    stamps = {path: path.stat().st_mtime_ns for path in grades[1:]}
    grades[0].unlink()
    elsewhere.script("reproduce.py", "rerun", bundle)
    assert {path: path.stat().st_mtime_ns for path in grades[1:]} == stamps
    assert grades[0].exists()
    (elsewhere.root / "results/small-rerun/config.yaml").write_text("name: mine\n")
    done = elsewhere.script("reproduce.py", "rerun", bundle, check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "exists")


def test_a_verdict_that_the_grader_does_not_give_again_is_shown_with_both_records(bundle, elsewhere, tmp_path):
    """Its author changed one verdict and sealed the study again: only grading tells."""
    original = tmp_path / "forger"
    shutil.copytree(bundle.parents[1], original / "project", symlinks=True)
    forger = Project(original / "project")
    path = forger.root / "results/small/episodes/command/noop/longest-line-bash/1/grade.json"
    grade = json.loads(path.read_text())
    grade |= {"verdict": "pass", "score": 1.0, "analysis_score": 1.0, "scoring_status": "passed"}
    path.write_text(json.dumps(grade))
    forger.script("census.py", "--study", "results/small/study.json")
    forger.script("reproduce.py", "bundle", "results/small", "--output", "forged.tar.gz")
    done = elsewhere.script("reproduce.py", "rerun", forger.root / "forged.tar.gz", check=False)
    assert done.returncode == 4
    comparison = json.loads(done.stdout)["comparison"]
    assert (comparison["identical"], comparison["not_comparable"]) == (5, [])
    (changed,) = comparison["changed"]
    assert changed["episode"] == "command/noop/longest-line-bash/1"
    assert {"what": "verdict", "bundle": "pass", "here": "fail"} in changed["differences"]
    for place, verdict in (("original", "pass"), ("rerun", "fail")):
        assert json.loads((elsewhere.root / changed[place]).read_text())["verdict"] == verdict
    assert "changed: command/noop/longest-line-bash/1" in done.stderr


def test_other_terms_are_named_and_graded_only_on_demand(bundle, elsewhere):
    benchmark = elsewhere.root / "scripts/assize/benchmarks/command/benchmark.py"
    text = benchmark.read_text()
    benchmark.write_text(text.replace('protocol_version = "1"', 'protocol_version = "2"'))
    assert benchmark.read_text() != text
    done = elsewhere.script("reproduce.py", "rerun", bundle, check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (4, "other_terms")
    assert "command: protocol_version: '1' in the bundle, '2' here" in done.stderr
    assert not (elsewhere.root / "results/small-rerun").exists()
    comparison = json.loads(elsewhere.script("reproduce.py", "rerun", bundle, "--other-terms").stdout)["comparison"]
    assert comparison["identical"] == comparison["planned"] == 6
    assert comparison["terms"]["command"] == [{"what": "protocol_version", "bundle": "1", "here": "2"}]
    assert [line["what"] for line in comparison["pins"]] == ["project.code"]


def test_a_suite_that_is_not_here_is_named_and_is_in_the_bundle(bundle, elsewhere):
    suite = elsewhere.root / "config/suites/starter.json"
    suite.unlink()
    done = elsewhere.script("reproduce.py", "rerun", bundle, check=False)
    assert done.returncode == 2
    assert "suite.path: " in done.stderr
    assert "below inputs/" in done.stderr
    with tarfile.open(bundle) as tar:
        suite.write_bytes(tar.extractfile("inputs/config/suites/starter.json").read())
    elsewhere.script("reproduce.py", "rerun", bundle)


def test_what_cannot_be_graded_here_is_not_comparable_and_says_why(bundle, elsewhere):
    """A calibration that fails here bars the instance: that is no changed verdict."""
    calibration = elsewhere.root / "scripts/assize/benchmarks/command/calibration.py"
    text = calibration.read_text()
    calibration.write_text(text.replace("reasons, flags = [], []", 'reasons, flags = ["not on this machine"], []'))
    done = elsewhere.script("reproduce.py", "rerun", bundle, check=False)
    comparison = json.loads(done.stdout)["comparison"]
    assert (done.returncode, comparison["identical"], comparison["changed"]) == (4, 0, [])
    assert {item["why"] for item in comparison["not_comparable"]} == {
        "the rerun is void: calibration barred the instance: not on this machine"
    }


def repacked(bundle, target, change) -> None:
    """The bundle with ``change`` made to its members (name -> content)."""
    with tarfile.open(bundle) as tar:
        members = {member.name: tar.extractfile(member).read() for member in tar}
    change(members)
    with open(target, "wb") as file:
        pack(members, file)


def test_one_flipped_byte_of_a_bundle_is_found_before_anything_runs(bundle, elsewhere, tmp_path):
    name = "results/small/episodes/command/noop/longest-line-bash/1/grade.json"

    def flip(members):
        members[name] = members[name].replace(b'"fail"', b'"pass"', 1)

    repacked(bundle, tmp_path / "flipped.tar.gz", flip)
    done = elsewhere.script("reproduce.py", "rerun", tmp_path / "flipped.tar.gz", check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (4, "broken")
    assert name in done.stderr
    assert list((elsewhere.root / "results").iterdir()) == []


def hostile(entry: tarfile.TarInfo, content: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(buffer.getvalue())


def link(name: str, target: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    return entry


@pytest.mark.parametrize(
    "data",
    [
        hostile(tarfile.TarInfo("../../escaped"), b"x"),
        hostile(tarfile.TarInfo("/tmp/escaped"), b"x"),
        hostile(link("bundle.json", "/etc/passwd")),
        hostile(link("bundle.json", "elsewhere.json")),
        b"no archive",
        b"",
    ],
)
def test_a_hostile_archive_is_refused_and_nothing_is_left(elsewhere, tmp_path, data):
    (tmp_path / "hostile.tar.gz").write_bytes(data)
    done = elsewhere.script("reproduce.py", "rerun", tmp_path / "hostile.tar.gz", check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "bad_bundle")
    assert list((elsewhere.root / "results").iterdir()) == []
    assert not (tmp_path / "escaped").exists()


def resealed(members) -> None:
    """Seal a bundle's study again, whatever was changed in it."""
    sums, inside = "results/small/census/SHA256SUMS", "results/small/"
    lines = [line.split("  ", 1) for line in members[sums].decode().splitlines()]
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    members[sums] = "".join(f"{hashes.get(inside + name, old)}  {name}\n" for old, name in lines).encode()
    manifest = json.loads(members["bundle.json"])
    members["bundle.json"] = json.dumps(manifest | {"seal": hashlib.sha256(members[sums]).hexdigest()}).encode()


def study_json(members, change) -> None:
    """Change study.json, count it and seal it again, as whoever makes a bundle can."""
    name, counted = "results/small/study.json", "results/small/census/census.json"
    study, census = json.loads(members[name]), json.loads(members[counted])
    change(study)
    members[name] = json.dumps(study).encode()
    members[counted] = json.dumps(census | {"study_digest": digest(study)}).encode()
    resealed(members)


def sandbox(study: dict, **keys) -> None:
    study["config"]["benchmarks"]["command"]["sandbox"] = keys


def suite(study: dict, path: str) -> None:
    study["config"]["benchmarks"]["command"]["suite"] = {"path": path}


@pytest.mark.parametrize(
    ("change", "status", "word"),
    [
        (lambda study: study["conditions"].update({"../../x": study["conditions"]["noop"]}), 2, "conditions"),
        (lambda study: study["datasets"].update({"x": {"filename": "../../x"}}), 2, "datasets"),
        (lambda study: study["benchmarks"].update({"magic": study["benchmarks"]["command"]}), 2, "magic"),
        (
            lambda study: study["config"]["benchmarks"]["command"].update(instances=["run-length-c"]),
            4,
            "instances of command",
        ),
        (lambda study: study["config"]["benchmarks"]["command"].pop("instances"), 2, "other episodes"),
        (lambda study: study["conditions"]["noop"].update(solver="frozen"), 4, "plan: conditions"),
        (lambda study: sandbox(study, lane="subprocess"), 4, "no isolation"),
        (lambda study: sandbox(study, read_only_paths=["/root"]), 4, "would see /root"),
        (lambda study: suite(study, "results/small-rerun/original/inputs/config/suites/starter.json"), 4, "below res"),
    ],
)
def test_a_sealed_bundle_cannot_lead_out_of_its_place_or_its_sandbox(bundle, elsewhere, tmp_path, change, status, word):
    repacked(bundle, tmp_path / "lead.tar.gz", lambda members: study_json(members, change))
    done = elsewhere.script("reproduce.py", "rerun", tmp_path / "lead.tar.gz", check=False)
    assert done.returncode == status
    assert word in done.stderr
    assert list((elsewhere.root / "results").iterdir()) == []


def test_what_no_seal_covers_is_no_part_of_a_bundle(bundle, elsewhere, tmp_path):
    """A checkout, say, whose git config names a command."""
    planted = {"pb/.git/config": b"[core]\n\tfsmonitor = false\n", "results/small/logs/x": b"", "rules/a/b.smk": b""}
    repacked(bundle, tmp_path / "planted.tar.gz", lambda members: members.update(planted))
    done = elsewhere.script("reproduce.py", "rerun", tmp_path / "planted.tar.gz", "--trust", check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (4, "broken")
    assert all(f"{name}: place: no bundle" in done.stderr for name in planted)
    assert list((elsewhere.root / "results").iterdir()) == []


def change_a_grade(members) -> str:
    name = "episodes/command/noop/longest-line-bash/1/grade.json"
    grade = json.loads(members[f"results/small/{name}"])
    grade |= {"verdict": "pass", "score": 1.0, "analysis_score": 1.0, "scoring_status": "passed"}
    members[f"results/small/{name}"] = json.dumps(grade).encode()
    return name


def test_only_benchmark_data_may_be_missing_from_a_bundle(bundle, elsewhere, tmp_path):
    """The published seal over changed records: each is there, and said to be left out."""
    changed = []

    def forge(members):
        changed.append(change_a_grade(members))
        manifest = json.loads(members["bundle.json"])
        members["bundle.json"] = json.dumps(manifest | {"left_out": manifest["left_out"] + changed}).encode()

    repacked(bundle, tmp_path / "forged.tar.gz", forge)
    seal = sha256_file(bundle.parent / "small" / "census" / "SHA256SUMS")
    done = elsewhere.script("reproduce.py", "rerun", tmp_path / "forged.tar.gz", "--seal", seal, check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (4, "broken")
    assert f"bundle.json: left_out: {changed[0]}: only benchmark data" in done.stderr
    assert f"{changed[0]}: seal: sha256" in done.stderr


def test_a_bundle_s_headline_is_that_of_its_grades(bundle, elsewhere, tmp_path):
    def raise_headline(members):
        census = json.loads(members["results/small/census/census.json"])
        line = next(line for line in census["conditions"] if line["condition"] == "noop")
        line |= {"passed": 2, "failed": 0, "over_scored": 1.0, "over_planned": 1.0}
        members["results/small/census/census.json"] = json.dumps(census).encode()
        resealed(members)

    repacked(bundle, tmp_path / "raised.tar.gz", raise_headline)
    done = elsewhere.script("reproduce.py", "rerun", tmp_path / "raised.tar.gz", check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (4, "broken")
    for key in ("passed", "failed", "over_scored", "over_planned"):
        assert f"census.json: census: conditions.0.{key}: " in done.stderr


def test_a_bundle_of_another_seal_than_was_published_is_not_run(bundle, elsewhere):
    done = elsewhere.script("reproduce.py", "rerun", bundle, "--seal", "0" * 64, check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (4, "broken")
    assert "SHA256SUMS: seal: the seal: it says 000000000000" in done.stderr
    assert list((elsewhere.root / "results").iterdir()) == []


def test_a_study_whose_links_are_broken_is_not_bundled(elsewhere):
    study = generate(elsewhere.root / "results" / "made", frozen("made", instances=2, conditions=1))
    (study.episode_folder(study.episodes()[0]) / "evidence" / "grader.log").write_text("other")
    done = elsewhere.script("reproduce.py", "bundle", "results/made", check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (4, "broken")
    assert list((elsewhere.root / "results").glob("*.tar.gz")) == []
