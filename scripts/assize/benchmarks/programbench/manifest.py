"""The manifest of a study's tasks: which tests count, and by which image and blobs; and one task, checked against it.

``config/programbench/manifest.json`` is generated (``programbench_adapter.py manifest``) from the official package
and verified whenever a task is opened: an evaluator never runs on other tests than the ones that were frozen.
"""

from dataclasses import dataclass, field
from pathlib import Path

from assize.benchmarks.programbench import official
from assize.errors import InfrastructureError, UsageError
from assize.records import digest, read_record, sha256_file

# The study's own five; the order is the protocol's.
PILOT = (
    "burntsushi__ripgrep.3b7fd44",
    "ninja-build__ninja.cc60300",
    "cmatsuoka__figlet.202a0a8",
    "chmln__sd.87d1ba5",
    "mfridman__tparse.2416b4b",
)
IMAGE_TAG = "task_cleanroom_v6"
OFFICIAL_IMAGES = "docker.io/programbench"


@dataclass(frozen=True)
class Task:
    """One task: the official instance, and what the manifest pins of it."""

    id: str
    instance: dict
    image: str
    image_digest: str | None
    # Branch -> sha256 of its blob, or None where only the dataset's revision is pinned.
    blobs: dict[str, str] | None
    mask_digest: str
    # Active branch -> the tests that count, sorted.
    mask: dict[str, list[str]] = field(repr=False)

    @property
    def branches(self) -> list[str]:
        return list(self.mask)

    @property
    def clean_hashes(self) -> list[str]:
        return list(self.instance.get("eval_clean_hashes") or [])

    def expected(self, branch: str) -> list[str]:
        """All listed tests of a branch, ignored ones too: what upstream checks for completeness."""
        return self.instance["branches"][branch]["tests"]

    @property
    def ignored_tests(self) -> set[str]:
        """``branch/name`` of every ignored test, as the official ``get_ignored_tests`` has it."""
        return {
            f"{branch}/{test['name']}"
            for branch, facts in self.instance["branches"].items()
            for test in facts.get("ignored_tests") or []
        }

    @property
    def ignored_branches(self) -> set[str]:
        return {branch for branch, facts in self.instance["branches"].items() if facts.get("ignored")}


def mask_of(instance: dict) -> dict[str, list[str]]:
    """Active branch -> names of its tests that are not ignored, sorted: the denominator of every score. Pure."""
    mask = {}
    for branch, facts in instance["branches"].items():
        if not facts.get("ignored"):
            ignored = {test["name"] for test in facts.get("ignored_tests") or []}
            mask[branch] = sorted(set(facts["tests"]) - ignored)
    return mask


def read_instance(folder: Path) -> dict:
    """An instance as the official package loads it: ``task.yaml`` and ``tests.json`` in one."""
    import json

    import yaml

    try:
        instance = yaml.safe_load((folder / "task.yaml").read_text())
        instance |= json.loads((folder / "tests.json").read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError("no_task", f"{folder}: not a task: {error}") from None
    return instance | {"instance_id": folder.name}


def image_of(instance: str, images: str) -> str:
    """The reference of a task's cleanroom image below a registry's name, as upstream forms it."""
    return f"{images}/{instance.replace('__', '_1776_')}:{IMAGE_TAG}"


def describe(folder: Path, images: str, blobs: Path | None) -> dict:
    """The manifest's entry of one task."""
    instance = read_instance(folder)
    mask = mask_of(instance)
    listed = sum(len(facts["tests"]) for facts in instance["branches"].values())
    found = None
    if blobs:
        found = {branch: sha256_file(blobs / folder.name / "tests" / f"{branch}.tar.gz") for branch in sorted(mask)}
    return {
        "task_sha256": sha256_file(folder / "task.yaml"),
        "tests_sha256": sha256_file(folder / "tests.json"),
        "mask": digest(mask),
        "branches": sorted(mask),
        "ignored_branches": sorted(set(instance["branches"]) - set(mask)),
        "listed": listed,
        "scored": sum(map(len, mask.values())),
        "image": image_of(folder.name, images),
        "image_digest": None,
        "blobs": found,
    }


def build(tasks: Path, instances: list[str], images: str, blobs: Path | None = None) -> dict:
    """The manifest of some tasks of a folder."""
    entries = {name: describe(tasks / name, images, blobs) for name in instances}
    dataset = {"repository": official.BLOB_REPOSITORY, "revision": official.BLOB_REVISION}
    return {
        "schema": "assize.programbench/1",
        "package": {"version": official.VERSION, "revision": official.REVISION, "wheel_sha256": official.WHEEL_SHA256},
        "dataset": None if blobs else dataset,
        "tasks": entries,
    }


def read_manifest(path) -> dict:
    """A manifest; UsageError if it is none, or is made for another release of the official package."""
    manifest = read_record(path, "programbench")
    if manifest["package"]["revision"] != official.REVISION:
        raise UsageError(
            "other_package", f"{path}: made for revision {manifest['package']['revision']}", "make it again"
        )
    return manifest


def check_tasks(manifest: dict, tasks: Path) -> None:
    """The files of all tasks are those that the manifest froze, whichever is asked for.

    Raises
    ------
    UsageError : some are missing or differ; all are named.
    """
    faults = []
    for instance, entry in manifest["tasks"].items():
        for name, key in (("task.yaml", "task_sha256"), ("tests.json", "tests_sha256")):
            path = tasks / instance / name
            if not path.is_file():
                faults.append(f"{path}: no such file")
            elif sha256_file(path) != entry[key]:
                faults.append(f"{path}: sha256 {sha256_file(path)}, the manifest has {entry[key]}")
    if faults:
        raise UsageError(
            "other_task", "; ".join(faults), "the manifest is of other tasks; make it again, or mend these"
        )


def entry_of(manifest: dict, instance: str) -> dict:
    """The manifest's entry of a task; UsageError if it has none."""
    entry = manifest["tasks"].get(instance)
    if entry is None:
        allowed = ", ".join(manifest["tasks"])
        raise UsageError("unknown_instance", f"no task {instance} in the manifest; it has {allowed}")
    return entry


def open_task(manifest: dict, tasks: Path, instance: str) -> Task:
    """A task whose files are those that the manifest froze, as are those of all others.

    Raises
    ------
    UsageError : the manifest has no such task, or files differ.
    """
    entry = entry_of(manifest, instance)
    check_tasks(manifest, tasks)
    folder = tasks / instance
    loaded = read_instance(folder)
    mask = mask_of(loaded)
    if digest(mask) != entry["mask"]:
        raise UsageError("other_mask", f"{folder}: its scored tests are not the manifest's")
    return Task(instance, loaded, entry["image"], entry["image_digest"], entry["blobs"], entry["mask"], mask)


def check_blobs(task: Task, folder: Path) -> dict[str, str]:
    """Active branch -> sha256 of its blob, which is there and, where the manifest has a hash, the right one.

    Raises
    ------
    InfrastructureError : one is missing or differs; all are named.
    """
    found, faults = {}, []
    for branch in task.branches:
        path = folder / task.id / "tests" / f"{branch}.tar.gz"
        if not path.is_file():
            faults.append(f"{path}: missing")
            continue
        found[branch] = sha256_file(path)
        if task.blobs and found[branch] != task.blobs.get(branch):
            faults.append(f"{path}: not the bytes that the manifest names")
    if faults:
        raise InfrastructureError("missing_blob", f"test blobs of {task.id}: {'; '.join(faults)}")
    return found
