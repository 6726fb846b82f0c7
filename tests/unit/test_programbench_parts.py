"""The parts of ProgramBench's evaluation half that need no engine: package, manifest, archives, owners, output."""

import gzip
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from assize.archive import Rejected
from assize.benchmarks import load_benchmark
from assize.benchmarks.programbench import engine, episodes, manifest, official, replay
from assize.benchmarks.programbench.benchmark import judged_archive
from assize.benchmarks.programbench.court import Court
from assize.benchmarks.programbench.engine import Engine, Owner
from assize.benchmarks.programbench.submission import check_archive
from assize.benchmarks.programbench.tools import Brought, changed_paths, read_diff, replaced
from assize.benchmarks.programbench.wheelhouse import Wheelhouse, texts_for
from assize.errors import InfrastructureError, UsageError
from assize.records import ROOT, read_record
from assize.study import Episode, load_config, resolve

PILOT = ROOT / "config" / "programbench" / "manifest.json"


# ------------------------------------------------------------ the official package


def test_the_installed_wheel_is_the_pinned_one():
    found = official.find_official()
    assert found.source == "wheel"
    assert found.as_json()["revision"] == official.REVISION


def test_a_changed_file_of_the_package_is_refused(monkeypatch):
    monkeypatch.setitem(official.FILES, "eval/eval.py", "0" * 64)
    with pytest.raises(UsageError, match=r"eval/eval\.py"):
        official.find_official()


def test_another_release_is_refused(monkeypatch):
    monkeypatch.setattr(official, "VERSION", "1.2.6")
    with pytest.raises(UsageError, match=r"1\.2\.5 is installed"):
        official.find_official()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A git checkout with the official files, whose revision counts as the pinned one."""
    root = tmp_path / "ProgramBench"
    package = official.find_official().package
    for name in [*official.FILES, "__init__.py"]:
        target = root / "src" / "programbench" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((package / name).read_bytes())

    def git(*arguments):
        command = ["git", "-C", root, "-c", "user.name=x", "-c", "user.email=x@y", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message", "x")
    monkeypatch.setattr(official, "REVISION", git("rev-parse", "HEAD"))
    return root


def test_a_clean_checkout_of_the_pinned_revision_is_taken(checkout):
    found = official.find_official(str(checkout))
    assert (found.source, found.package) == ("checkout", checkout / "src" / "programbench")


def test_what_is_imported_is_the_checkouts(checkout):
    package = official.find_official().package
    shutil.copytree(
        package, checkout / "src" / "programbench", dirs_exist_ok=True, ignore=shutil.ignore_patterns("data")
    )
    script = f"""
import sys
sys.path.insert(0, "scripts")
from assize.benchmarks.programbench import official
package = official.Official(official.Path({str(checkout / "src" / "programbench")!r}), "checkout")
official.open_official(package, "podman", 16, None)
from assize.benchmarks.programbench import evaluator
print(evaluator.upstream.__file__)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(checkout / "src" / "programbench" / "eval" / "eval.py")


def test_a_dirty_checkout_is_refused(checkout):
    (checkout / "src" / "programbench" / "extra.py").write_text("")
    with pytest.raises(UsageError, match="not clean"):
        official.find_official(str(checkout))


def test_no_command_of_a_checkouts_own_config_is_run(checkout, tmp_path):
    hooks = checkout / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("fsmonitor", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (hooks / name).chmod(0o755)
    with open(checkout / ".git" / "config", "a") as config:
        config.write(f"[core]\n\tfsmonitor = {hooks}/fsmonitor\n")
    # Looked at anew, so that git writes its index.
    (checkout / "src" / "programbench" / "constants.py").touch()
    official.find_official(str(checkout))
    assert not (tmp_path / "ran").exists()


def test_another_revision_is_refused(checkout, monkeypatch):
    monkeypatch.setattr(official, "REVISION", "0" * 40)
    with pytest.raises(UsageError, match="revision"):
        official.find_official(str(checkout))


def test_a_folder_that_is_no_checkout_is_refused(tmp_path):
    with pytest.raises(UsageError, match="--programbench-root"):
        official.find_official(str(tmp_path))


def test_upstreams_settings_are_pinned_before_it_is_imported_and_no_token_goes_out():
    script = """
import os, sys
sys.path.insert(0, "scripts")
os.environ |= {"HF_TOKEN": "secret", "PROGRAMBENCH_HF_REVISION": "main", "PROGRAMBENCH_DOCKER_RUN_TIMEOUT": "1"}
from assize.benchmarks.programbench import official
official.open_official(official.find_official(), "podman", 16, None)
from programbench import constants
from programbench.utils import blob_store
print(constants.DOCKER_EXECUTABLE, constants.DOCKER_CPUS, constants.HF_REVISION, constants.DOCKER_RUN_TIMEOUT)
print(repr(blob_store.BLOB_LOCAL_DIR), "HF_TOKEN" in os.environ)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"podman 16 {official.BLOB_REVISION} 300", "'' False"]


def test_importing_the_benchmark_does_not_import_the_package():
    script = (
        "import sys; sys.path.insert(0, 'scripts'); import assize.benchmarks.programbench; print(sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in ("'programbench'", "huggingface_hub", "pydantic", "filelock", "jsonschema"):
        assert name not in done.stdout


# ------------------------------------------------------------ the manifest


def test_the_pilots_manifest_is_what_the_wheel_gives():
    frozen = manifest.read_manifest(PILOT)
    assert frozen == manifest.build(official.find_official().tasks, list(manifest.PILOT), manifest.OFFICIAL_IMAGES)
    counts = {name: (len(entry["branches"]), entry["scored"]) for name, entry in frozen["tasks"].items()}
    # The protocol's own numbers.
    assert counts == {
        "burntsushi__ripgrep.3b7fd44": (13, 1992),
        "ninja-build__ninja.cc60300": (13, 1438),
        "cmatsuoka__figlet.202a0a8": (12, 872),
        "chmln__sd.87d1ba5": (13, 810),
        "mfridman__tparse.2416b4b": (10, 425),
    }
    assert (
        frozen["tasks"]["chmln__sd.87d1ba5"]["image"]
        == "docker.io/programbench/chmln_1776_sd.87d1ba5:task_cleanroom_v6"
    )


def test_every_task_of_the_pilot_opens():
    frozen, tasks = manifest.read_manifest(PILOT), official.find_official().tasks
    for name, entry in frozen["tasks"].items():
        task = manifest.open_task(frozen, tasks, name)
        assert sum(map(len, task.mask.values())) == entry["scored"]
        assert task.branches


def make_task(root: Path, name="org__tool.abc", ignored=()) -> Path:
    folder = root / "tasks" / name
    folder.mkdir(parents=True)
    (folder / "task.yaml").write_text("language: c\neval_clean_hashes: [abc]\n")
    branches = {
        "b1": {"ignored": False, "tests": ["t.x", "t.y"], "ignored_tests": [{"name": "t.y"}]},
        "b2": {"ignored": True, "tests": ["t.z"], "ignored_tests": []},
    }
    (folder / "tests.json").write_text(json.dumps({"branches": branches}))
    blob = root / "blobs" / name / "tests" / "b1.tar.gz"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"blob")
    return folder


def test_ignored_branches_and_tests_are_not_in_the_mask(tmp_path):
    make_task(tmp_path)
    made = manifest.build(tmp_path / "tasks", ["org__tool.abc"], "localhost/x", tmp_path / "blobs")
    task = manifest.open_task(made, tmp_path / "tasks", "org__tool.abc")
    assert task.mask == {"b1": ["t.x"]}
    assert (task.ignored_tests, task.ignored_branches, task.clean_hashes) == ({"b1/t.y"}, {"b2"}, ["abc"])
    assert made["tasks"]["org__tool.abc"]["image"] == "localhost/x/org_1776_tool.abc:task_cleanroom_v6"
    assert set(manifest.check_blobs(task, tmp_path / "blobs")) == {"b1"}


def test_changed_files_and_blobs_are_refused(tmp_path):
    folder = make_task(tmp_path)
    made = manifest.build(tmp_path / "tasks", ["org__tool.abc"], "localhost/x", tmp_path / "blobs")
    task = manifest.open_task(made, tmp_path / "tasks", "org__tool.abc")
    (tmp_path / "blobs" / "org__tool.abc" / "tests" / "b1.tar.gz").write_bytes(b"blub")
    with pytest.raises(InfrastructureError, match="not the bytes"):
        manifest.check_blobs(task, tmp_path / "blobs")
    (tmp_path / "blobs" / "org__tool.abc" / "tests" / "b1.tar.gz").unlink()
    with pytest.raises(InfrastructureError, match="missing"):
        manifest.check_blobs(task, tmp_path / "blobs")
    (folder / "tests.json").write_text((folder / "tests.json").read_text() + " ")
    with pytest.raises(UsageError, match=r"tests\.json: sha256"):
        manifest.open_task(made, tmp_path / "tasks", "org__tool.abc")
    # Whichever task is asked for.
    make_task(tmp_path, "org__more.1")
    both = made["tasks"] | manifest.build(tmp_path / "tasks", ["org__more.1"], "localhost/x")["tasks"]
    with pytest.raises(UsageError, match=r"org__tool.*tests\.json: sha256"):
        manifest.open_task(made | {"tasks": both}, tmp_path / "tasks", "org__more.1")
    with pytest.raises(UsageError, match="no task other"):
        manifest.open_task(made, tmp_path / "tasks", "other")


# ------------------------------------------------------------ images


class Images(Engine):
    """An engine that knows some images."""

    known: ClassVar[dict] = {}

    def image(self, reference):
        return self.known.get(reference)


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("Error: inspecting object: localhost/x: image not known", True),
        ("Error response from daemon: No such image: x", True),
        ("Error: creating tmpdir: permission denied", False),
    ],
)
def test_an_engine_that_fails_is_not_an_image_that_is_missing(monkeypatch, said, missing):
    monkeypatch.setattr(
        Engine, "call", lambda self, *a, **o: subprocess.CompletedProcess(a, 125, stdout="", stderr=said)
    )
    if missing:
        assert Engine("podman").image("x") is None
    else:
        with pytest.raises(InfrastructureError, match="permission denied"):
            Engine("podman").image("x")


def test_one_error_names_every_image_that_is_missing_or_another_one(tmp_path):
    for name in ("a__a.1", "b__b.2", "c__c.3"):
        make_task(tmp_path, name)
    made = manifest.build(tmp_path / "tasks", ["a__a.1", "b__b.2", "c__c.3"], "localhost/x")
    made["tasks"]["b__b.2"]["image_digest"] = "sha256:" + "1" * 64
    tasks = [manifest.open_task(made, tmp_path / "tasks", name) for name in made["tasks"]]
    other = {"id": "sha256:" + "2" * 64, "digest": "sha256:" + "2" * 64, "published": []}
    podman = Images("podman")
    Images.known = {tasks[1].image: other, tasks[2].image: other}
    with pytest.raises(InfrastructureError) as caught:
        engine.find_images(podman, tasks)
    assert "2 of 3 images" in caught.value.message
    assert f"{tasks[0].image}: missing" in caught.value.message
    assert f"{tasks[1].image}: digest sha256:222" in caught.value.message
    Images.known = {task.image: other for task in tasks} | {
        tasks[1].image: other | {"published": ["sha256:" + "1" * 64]}
    }
    found = engine.find_images(podman, tasks)
    assert [image["pinned"] for image in found.values()] == [False, True, False]


# ------------------------------------------------------------ a submission's archive


def pack(path: Path, *members, data=b"x") -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            if member.isreg():
                member.size = len(data)
            tar.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return path


def member(name, kind=tarfile.REGTYPE, link=""):
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def test_what_the_official_evaluator_takes_is_taken(tmp_path):
    members = [
        member("./", tarfile.DIRTYPE),
        member("./compile.sh"),
        member("src/same.c", tarfile.LNKTYPE, "compile.sh"),
        member("fixture", tarfile.SYMTYPE, "../../../etc/bashrc"),
    ]
    names = check_archive(pack(tmp_path / "s.tar.gz", *members))
    assert [name.removeprefix("./") for name in names] == [".", "compile.sh", "src/same.c", "fixture"]


@pytest.mark.parametrize(
    "bad",
    [
        member("../out"),
        member("/etc/passwd"),
        member("null", tarfile.CHRTYPE),
        member("pipe", tarfile.FIFOTYPE),
        member("passwd", tarfile.LNKTYPE, "../../etc/passwd"),
    ],
    ids=lambda bad: bad.name,
)
def test_what_leaves_its_folder_or_is_no_file_is_rejected(tmp_path, bad):
    with pytest.raises(Rejected):
        check_archive(pack(tmp_path / "s.tar.gz", bad))


@pytest.mark.parametrize(
    "members",
    [
        [member("a"), member("a/b")],
        [member("a/b"), member("a")],
        [member("./a/b/c"), member("a")],
        [member("a", tarfile.SYMTYPE, "b"), member("a/b")],
        [member("a"), member("a", tarfile.DIRTYPE)],
        [member("a", tarfile.DIRTYPE), member("a", tarfile.SYMTYPE, "b")],
        [member("./", tarfile.SYMTYPE, "b")],
        [member("a", tarfile.LNKTYPE, "b"), member("b")],
        [member("b", tarfile.DIRTYPE), member("a", tarfile.LNKTYPE, "b")],
    ],
)
def test_what_tar_would_fail_over_is_rejected(tmp_path, members):
    with pytest.raises(Rejected, match=r"both a file or a link and a folder|is a hard link to 'b'"):
        check_archive(pack(tmp_path / "s.tar.gz", *members))


def test_a_file_that_is_given_again_is_none(tmp_path):
    members = [member("a"), member("./a"), member("d", tarfile.DIRTYPE), member("d/b"), member("d/", tarfile.DIRTYPE)]
    assert len(check_archive(pack(tmp_path / "s.tar.gz", *members))) == 5


def test_a_corrupt_or_endless_archive_is_rejected(tmp_path):
    path = pack(tmp_path / "s.tar.gz", member("big"), data=os.urandom(1 << 16))
    whole = path.read_bytes()
    for bytes_ in (b"", b"no archive", whole[: len(whole) // 2]):
        path.write_bytes(bytes_)
        with pytest.raises(Rejected, match="corrupt"):
            check_archive(path)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    path.write_bytes(flipped)
    with pytest.raises(Rejected, match="corrupt"):
        check_archive(path)
    # What the host cannot read is not the candidate's failure.
    with pytest.raises(OSError, match="directory"):
        check_archive(tmp_path)
    huge = tarfile.TarInfo("huge")
    huge.size = 1 << 40
    path.write_bytes(gzip.compress(huge.tobuf()))
    with pytest.raises(Rejected):
        check_archive(path)


def test_submissions_are_a_run_directory_or_a_map(tmp_path):
    (tmp_path / "run" / "i").mkdir(parents=True)
    (tmp_path / "run" / "i" / "submission.tar.gz").write_bytes(b"x")
    (tmp_path / "map.json").write_text('{"i": {"compile.sh": "x"}}')
    directory, mapped = replay.open_submissions(tmp_path / "run"), replay.open_submissions(tmp_path / "map.json")
    assert len(replay.digest_of(directory, "i")) == 64
    assert replay.digest_of(mapped, "i") == {"compile.sh": "x"}
    assert replay.digest_of(directory, "j") is replay.digest_of(mapped, "j") is None
    (tmp_path / "map.json").write_text('{"i": 1}')
    for bad in ("map.json", "nothing"):
        with pytest.raises(UsageError, match="submissions"):
            replay.open_submissions(tmp_path / bad)


def test_a_packed_submission_is_handed_in_as_it_is_and_a_missing_one_is_told(tmp_path):
    run, workspace = tmp_path / "run", tmp_path / "workspace"
    (run / "there").mkdir(parents=True)
    (run / "there" / "submission.tar.gz").write_bytes(b"whatever it is, grading tells")
    workspace.mkdir()
    condition = {"solver": "replay", "submissions": {"programbench": str(run)}}
    context = SimpleNamespace(study=SimpleNamespace(frozen={"conditions": {"c": condition}}))
    there, missing = (Episode("programbench", "c", instance, 1) for instance in ("there", "missing"))
    assert episodes.solve(context, there, workspace)["status"] == "done"
    assert episodes.snapshot(context, there, workspace) == ({"status": "frozen"}, b"whatever it is, grading tells")
    assert episodes.solve(context, missing, workspace)["status"] == "missing"


def test_the_reference_hands_in_nothing(tmp_path):
    context = SimpleNamespace(study=SimpleNamespace(frozen={"conditions": {"c": {"solver": "reference"}}}))
    episode = Episode("programbench", "c", "i", 1)
    assert episodes.solve(context, episode, tmp_path) == {"status": "done"}
    assert episodes.snapshot(context, episode, tmp_path) == ({"status": "frozen", "detail": {"reference": True}}, None)


@pytest.mark.parametrize(
    ("condition", "reference"),
    [
        ({"solver": "reference"}, True),
        ({"solver": "frozen", "of": "reference"}, True),
        ({"solver": "frozen", "of": "replay"}, False),
        ({"solver": "noop"}, False),
    ],
)
def test_the_conditions_say_what_is_judged_also_of_work_that_was_frozen_elsewhere(condition, reference, tmp_path):
    study = SimpleNamespace(frozen={"conditions": {"c": condition}}, episode_folder=lambda episode: tmp_path)
    found = judged_archive(study, Episode("programbench", "c", "i", 1))
    assert found == (None if reference else tmp_path / "submission.tar.gz")


def test_a_solver_has_no_network_to_ask_for():
    with pytest.raises(UsageError, match="network"):
        load_benchmark("programbench").work_digests({"solver": "command", "command": "x", "network": True}, ["i"])


# ------------------------------------------------------------ owners and leftovers


def test_an_owner_is_dead_when_its_process_is_another_or_its_boot_is_over():
    this = Owner.this()
    assert Owner.parse(this.node, str(this)) == Owner.of_folder(this.folder) == this
    assert not this.is_dead()
    assert Owner(this.node, this.boot, this.pid, this.start + 1).is_dead()
    assert Owner(this.node, "0" * 36, this.pid, this.start).is_dead()
    # Another node's processes cannot be seen from here.
    assert not Owner("elsewhere", this.boot, 2**22, 1).is_dead()
    for text in ("", "a.b.c", "x", "a.1", "a.1.2.3"):
        assert Owner.parse(platform.node(), text) is None


def test_an_owner_is_dead_once_its_process_has_ended():
    process = subprocess.Popen(["sleep", "60"])
    owner = Owner(platform.node(), Owner.this().boot, process.pid, engine._start_of(process.pid))
    assert not owner.is_dead()
    process.kill()
    # A zombie is dead too.
    deadline = time.time() + 10
    while not owner.is_dead() and time.time() < deadline:
        time.sleep(0.05)
    assert owner.is_dead()
    process.wait()
    assert owner.is_dead()


def test_temporary_files_of_the_dead_are_swept_and_those_of_the_living_are_not(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    class Nothing(Engine):
        def call(self, *arguments, **options):
            return subprocess.CompletedProcess(arguments, 0, stdout="")

    with engine.scratch() as folder:
        this = Owner.this()
        dead = folder.parent / Owner(this.node, this.boot, 2**22, 7).folder
        dead.mkdir()
        # Where nodes share their temporary directory: of another node's processes nothing is known here.
        foreign = folder.parent / Owner("elsewhere.example.org", "0" * 36, 2**22, 7).folder
        foreign.mkdir()
        (dead / "results.xml").write_text("x")
        (folder.parent / "something-else").mkdir()
        removed = engine.sweep(Nothing("podman"))
        assert removed == [f"folder {dead}"]
        assert folder.is_dir()
    root = folder.parent
    assert sorted(path.name for path in root.iterdir()) == sorted([foreign.name, "something-else"])


# ------------------------------------------------------------ the evaluator's own parts


@pytest.fixture
def evaluator():
    official.open_official(official.find_official(), "podman", 16, None)
    from assize.benchmarks.programbench import evaluator

    return evaluator


def test_output_is_bounded_and_may_be_any_bytes(evaluator):
    kept = evaluator.Kept(100)
    kept.fill(io.BytesIO(b"head" + b"\xff\0" * 10_000 + b"tail"))
    assert kept.text().startswith("head")
    assert kept.text().endswith("tail")
    assert len(kept.text()) < 200
    assert "bytes left out" in kept.text()
    returncode, output = evaluator.run_bounded(["sh", "-c", "printf 'a\\377b'; printf err >&2; exit 3"], 10)
    assert (returncode, output) == (3, "a\ufffdberr")
    started = time.time()
    returncode, output = evaluator.run_bounded(["sh", "-c", "echo first; exec sleep 60"], 0.5)
    assert (returncode, output) == (None, "first\n")
    assert time.time() - started < 10
    returncode, output = evaluator.run_bounded(["sh", "-c", "yes | head -c 100000000"], 60)
    assert returncode == 0
    assert len(output) <= evaluator.MOST_OUTPUT + 100


def test_what_came_out_of_a_container_is_a_regular_file_or_nothing(evaluator, tmp_path):
    (tmp_path / "file").write_bytes(b"<a>\xff</a>")
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    assert evaluator.read_bounded(tmp_path / "file", 100) == ("<a>\ufffd</a>", 0)
    assert evaluator.read_bounded(tmp_path / "file", 3)[1] == 1
    for name in ("link", "pipe", "nothing", "."):
        assert evaluator.read_bounded(tmp_path / name, 100) == ("not a regular file", 1)


def test_a_changed_folder_is_left_out_where_something_in_it_changed():
    text = "C /etc\nC /etc/resolv.conf\nA /workspace/executable\nC /workspace\nD /usr/bin/pip\nC /usr/bin\nodd line\n"
    assert changed_paths(read_diff(text)) == ["/etc/resolv.conf", "/usr/bin/pip", "/workspace/executable"]


BROUGHT = Brought(
    files=("/usr/bin/python3", "/usr/bin/python3.11", "/usr/local/bin/python3", "/usr/bin/bash", "/bin"),
    folders=("/usr/lib/python3/dist-packages/pip", "/usr/lib/python3/dist-packages/_pytest"),
    installed={},
    python="3.11.2",
)


@pytest.mark.parametrize(
    ("change", "hit"),
    [
        ("C /usr/bin/python3", True),
        ("C /usr/bin/python3.11", True),
        ("D /usr/bin/bash", True),
        # Found before the image's own.
        ("A /usr/local/bin/python3", True),
        ("C /bin", True),
        ("D /usr/bin", True),
        ("D /usr", True),
        ("D /usr/lib/python3/dist-packages/pip", True),
        ("D /usr/lib/python3/dist-packages/pip/_internal/x.py", True),
        ("A /usr/lib/python3/dist-packages/pip/__pycache__/x.cpython-311.pyc", False),
        ("D /usr/lib/python3/dist-packages/pip/__pycache__", False),
        ("A /usr/lib/python3/dist-packages/other/x.py", False),
        ("C /usr/bin/perl", False),
        ("A /usr/bin/python3.12", False),
        ("D /usr/games", False),
    ],
)
def test_a_build_replaces_a_tool_only_where_one_is_run_from(change, hit):
    text = f"C /usr\nC /usr/lib\n{change}\n" if change != "D /usr" else change
    path = change[2:]
    # With what lies above it, as an engine lists it.
    above = "".join(f"C {parent}\n" for parent in Path(path).parents if str(parent) != "/")
    hits, doubtful = replaced(read_diff(above + text), BROUGHT)
    assert (hits, [path for path in doubtful if path not in ("/usr", "/usr/lib")]) == ([path] if hit else [], [])


@pytest.mark.parametrize(
    "path",
    ["/usr/bin", "/usr/lib/python3", "/usr/lib/python3/dist-packages/pip", "/usr/lib/python3/dist-packages/pip/x"],
)
def test_what_may_be_a_folder_and_may_be_a_link_in_its_place_is_looked_at(path):
    assert replaced([("C", path)], BROUGHT) == ([], [path])
    # A folder in which something is new is one.
    assert replaced([("C", path), ("A", f"{path}/__pycache__")], BROUGHT) == ([], [])


def test_survivors_are_what_ran_beside_the_containers_own(evaluator):
    own = "1 S 0 1 1\n2 S 1 2 2\n40 S 0 40 40\n"
    assert evaluator.count_survivors(f"40\n{own}{own}") == 0
    assert evaluator.count_survivors("") == 0
    # Some leave their parent; zombies are dead.
    assert evaluator.count_survivors(f"40\n{own}33 S 1 33\n34 Z 1 34\n35 R 33 35\n{own}") == 2
    # What was gone when it was looked at was there before.
    assert evaluator.count_survivors(f"40\n{own}71 \n{own}72 \n") == 2


# ------------------------------------------------------------ what is installed into an image


@pytest.fixture
def house(tmp_path):
    """A wheelhouse of one plugin, what it needs, and what that needs."""
    needs = {"pytest-xdist": ["pytest>=7.0", "odd>=9; python_version < '3.0'"], "pytest": ["pluggy"], "pluggy": []}
    wheels = []
    for name, wanted in needs.items():
        filename = f"{name.replace('-', '_')}-9.0-py3-none-any.whl"
        with zipfile.ZipFile(tmp_path / filename, "w") as wheel:
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.0\n"
            wheel.writestr("x-9.0.dist-info/METADATA", text + "".join(f"Requires-Dist: {one}\n" for one in wanted))
        wheels.append({"name": name, "version": "9.0", "marker": None, "filename": filename, "sha256": "0" * 64})
    return Wheelhouse(tmp_path, {"wheels": wheels}, "f")


def test_an_images_own_packages_stay_and_only_what_it_lacks_is_added(house):
    hashed = f"--hash=sha256:{'0' * 64}"
    install, force = texts_for(house, {"pytest": "8.3.5", "pluggy": "1.5.0", "pytest-xdist": "3.0"}, "3.11.2")
    # A plugin is the lock's, whatever the image has.
    assert install == f"pytest-xdist==9.0 {hashed}\n"
    assert force == "pytest-xdist==9.0\npytest==8.3.5\npluggy==1.5.0\n"
    install, _ = texts_for(house, {}, "3.11.2")
    assert install == "".join(f"{name}==9.0 {hashed}\n" for name in ("pytest-xdist", "pytest", "pluggy"))


def test_an_image_that_is_too_old_for_a_plugin_is_told(house):
    with pytest.raises(InfrastructureError, match=r"pytest-xdist 9\.0 needs pytest>=7\.0, it has 6\.2\.5"):
        texts_for(house, {"pytest": "6.2.5"}, "3.11.2")


def test_a_probe_is_of_the_first_branch_in_which_a_test_counts():
    from assize.benchmarks.programbench.byhand import first_scored

    assert first_scored(SimpleNamespace(id="i", mask={"a": [], "b": ["t"], "c": ["t"]})) == "b"
    with pytest.raises(UsageError, match="no test counts"):
        first_scored(SimpleNamespace(id="i", mask={"a": []}))


def test_only_what_was_in_force_is_claimed():
    image = {"image": "x", "digest": "sha256:1", "id": "sha256:2", "pinned": False}
    for mode, limits in (("slurm", None), ("none", None), ("container", {"cpus": 16, "memory_mb": 30720})):
        court = Court(official.find_official(), Quiet("podman"), {}, Path(), Path(), "s", mode, 16, 30720)
        assert court.sandbox(image)["engine_limits"] == limits
        assert court.sandbox(image)["workers"] == 16


class Quiet(Engine):
    def version(self):
        return "podman 4"


# ------------------------------------------------------------ studies


@pytest.mark.parametrize("mode", ["slurm", None])
def test_the_pilots_study_is_complete(mode):
    path = ROOT / "config" / "studies" / "programbench-pilot.yaml"
    frozen = resolve(load_config(path), path, mode)
    section = frozen["benchmarks"]["programbench"]
    assert section["instances"] == list(read_record(PILOT, "programbench")["tasks"])
    assert (section["repetitions"], section["terms"]["minimum"], section["alone"]) == (2, 0.9, True)
    assert section["terms"]["resource_mode"] == "slurm"
    assert section["terms"]["allocation"] == {"cpus": 16, "memory": "30g"}
    assert section["terms"]["seconds"] == {"compile": 900, "run_tests": 3600}
    assert "runtime/fetched/programbench.json" in section["ready"]
    # A candidate that hangs everywhere still gets its grade: twice compile.sh's 15 minutes, twice each branch's hour.
    tasks = read_record(PILOT, "programbench")["tasks"]
    assert max(len(task["branches"]) for task in tasks.values()) == 13
    assert section["minutes"] == 2 * 15 + 13 * 2 * 60 + 30
    counted = sum(len(task["branches"]) for task in tasks.values()), sum(task["scored"] for task in tasks.values())
    assert f"{counted[0]} test branches, {counted[1]:,} tests that count" in path.read_text()


def test_minutes_can_be_set_and_otherwise_follow_the_limits():
    path = ROOT / "config" / "studies" / "programbench-pilot.yaml"
    config = load_config(path)
    section = config["benchmarks"]["programbench"]
    section |= {"instances": ["mfridman__tparse.2416b4b"], "seconds": {"compile": 50, "run_tests": 60}}
    assert resolve(config, path)["benchmarks"]["programbench"]["minutes"] == 2 + 10 * 2 + 30
    section["minutes"] = 45
    assert resolve(config, path)["benchmarks"]["programbench"]["minutes"] == 45


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"manifest": "nothing.json"}, "benchmarks.programbench.manifest"),
        ({"instances": ["nothing"]}, "benchmarks.programbench.instances"),
        ({"seconds": {"compile": 0}}, "benchmarks.programbench.seconds.compile"),
        ({"calibration": {"minimum": 0}}, "benchmarks.programbench.calibration.minimum"),
        ({"oracle": 1}, "unknown key oracle"),
    ],
)
def test_a_fault_of_a_study_is_named(change, fault):
    path = ROOT / "config" / "studies" / "programbench-pilot.yaml"
    config = load_config(path)
    config["benchmarks"]["programbench"] |= change
    with pytest.raises(UsageError) as caught:
        resolve(config, path)
    assert fault in caught.value.message
