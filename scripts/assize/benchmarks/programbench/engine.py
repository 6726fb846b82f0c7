"""The container engine on this node: images by digest, and no leftovers.

Everything that an evaluator makes carries labels: its study, the node, and the process that owns it. A process that was
killed cannot clean up, so each run first removes what dead owners left, found by label alone and never by name.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from assize import engines
from assize.cli import log
from assize.errors import InfrastructureError
from assize.resources import own_folder

STUDY, NODE, OWNER, KIND = "assize.study", "assize.node", "assize.owner", "assize.kind"
EVALUATOR = "programbench-evaluator"
# How an engine's ``cp`` says that the path is not there; whatever else it says is its own failure.
ABSENT = re.compile(
    r"no such file or directory|not a directory|too many levels of symbolic links|Could not find the file",
    re.IGNORECASE,
)
NO_IMAGE = re.compile(r"no such (?:image|object)|image not known", re.IGNORECASE)


@dataclass(frozen=True)
class Owner:
    """A process, such that no later one can be taken for it: boot, process id and start in clock ticks since boot."""

    node: str
    boot: str
    pid: int
    start: int

    @classmethod
    def this(cls) -> "Owner":
        return cls(platform.node(), _boot_id(), os.getpid(), _start_of(os.getpid()) or 0)

    @classmethod
    def parse(cls, node: str, text: str) -> "Owner | None":
        """The owner that labels name; None where they name none."""
        parts = text.split(".")
        if len(parts) != 3 or not (parts[1].isdigit() and parts[2].isdigit()):
            return None
        return cls(node, parts[0], int(parts[1]), int(parts[2]))

    @classmethod
    def of_folder(cls, name: str) -> "Owner | None":
        """The owner of a temporary folder, by its name; None where that names none."""
        node, _, rest = name.partition("@")
        return cls.parse(node, rest)

    @property
    def folder(self) -> str:
        """Name of this owner's temporary folder; with the node's, since nodes may share the place where it lies."""
        return f"{self.node}@{self}"

    def __str__(self):
        return f"{self.boot}.{self.pid}.{self.start}"

    def is_dead(self) -> bool:
        """Whether it is known to be gone. A process of another node is not ours to judge."""
        if self.node != platform.node():
            return False
        return self.boot != _boot_id() or _start_of(self.pid) != self.start


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start_of(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is no such process (a zombie is none)."""
    try:
        # Behind the command's name, which may itself hold spaces and parentheses: proc(5), fields 3 and 22.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


@dataclass(frozen=True)
class Engine:
    """podman or docker. Calls that fail or hang are infrastructure failures."""

    name: str

    def call(
        self, *arguments: str, check: bool = True, timeout: float = engines.PATIENCE_S
    ) -> subprocess.CompletedProcess:
        return engines.call(self.name, *arguments, check=check, timeout=timeout, text=True, errors="replace")

    def image(self, reference: str) -> dict | None:
        """``id`` and ``digest`` of a local image (its id where it never had a digest); None where there is none.

        InfrastructureError where the engine does not say so, but fails.
        """
        done = self.call("image", "inspect", reference, check=False)
        if done.returncode:
            if NO_IMAGE.search(done.stderr):
                return None
            raise InfrastructureError("engine_failed", f"{self.name} image inspect: {engines.complaint(done)}")
        facts = json.loads(done.stdout)[0]
        repository = reference.rsplit("@")[0].rsplit(":", 1)[0]
        published = [item.split("@")[1] for item in facts.get("RepoDigests") or () if item.split("@")[0] == repository]
        digest = engines.image_digest(facts, published)
        return {"id": engines.image_id(facts), "digest": digest, "published": published}

    def exists(self, container: str) -> bool:
        return self.call("inspect", "--format", "{{.Id}}", container, check=False).returncode == 0

    def runs(self, container: str) -> bool:
        return json.loads(self.call("inspect", container).stdout)[0]["State"]["Running"]

    def works(self, container: str) -> bool:
        """Whether a command can be run in a container that runs."""
        return self.call("exec", container, "true", check=False).returncode == 0

    def remove(self, container: str) -> None:
        """Remove a container, whatever its state."""
        self.call("rm", "--force", "--volumes", container, check=False)

    def starts(self, image: str) -> bool:
        """Whether a fresh container of an image runs: the node is healthy."""
        return self.call(*FRESH, image, "true", check=False).returncode == 0

    def version(self) -> str:
        return self.call("--version").stdout.strip()


FRESH = ("run", "--rm", "--pull", "never", "--network", "none", "--entrypoint", "")


def find_engine(name: str | None = None) -> Engine:
    """The engine asked for, or the first that is installed; InfrastructureError if there is none."""
    found = engines.find_engine(name)
    if found is None:
        message = f"{engines.asked_for(name)} is not installed here"
        raise InfrastructureError("no_engine", message, "ProgramBench needs podman or docker")
    return Engine(found)


def find_images(engine: Engine, tasks) -> dict[str, dict]:
    """Instance -> the local image of its task, by the manifest's digest where it pins one. Nothing is ever pulled.

    Raises
    ------
    InfrastructureError : images are missing or have other digests: all of them, in one message.
    """
    found, faults = {}, []
    for task in tasks:
        image = engine.image(task.image)
        if image is None:
            faults.append(f"{task.image}: missing")
        elif task.image_digest and task.image_digest not in (image["digest"], image["id"], *image["published"]):
            faults.append(f"{task.image}: digest {image['digest']}, the manifest has {task.image_digest}")
        else:
            found[task.id] = {"image": task.image, "pinned": task.image_digest is not None, **image}
    if faults:
        raise InfrastructureError(
            "missing_image",
            f"{len(faults)} of {len(found) + len(faults)} images are not there ({engine.name}): {'; '.join(faults)}",
            f"pull or load them on this node first, for example: {engine.name} pull {faults[0].rsplit(':', 1)[0]}",
        )
    return found


def labels(study: str, kind: str = EVALUATOR) -> dict[str, str]:
    """The labels of what this process makes."""
    owner = Owner.this()
    return {STUDY: study, NODE: owner.node, OWNER: str(owner), KIND: kind}


def sweep(engine: Engine) -> list[str]:
    """Remove what evaluators of dead owners left on this node: containers, then images, then temporary folders.

    Returns
    -------
    What was removed, for the log.
    """
    removed = []
    mine = ("--filter", f"label={KIND}={EVALUATOR}")
    for kind, listing, inspect, remove in (
        ("container", ("ps", "--all", "--quiet", "--no-trunc"), ("inspect",), ("rm", "--force", "--volumes")),
        ("image", ("images", "--quiet", "--no-trunc"), ("image", "inspect"), ("rmi", "--force")),
    ):
        for id in sorted(set(engine.call(*listing, *mine).stdout.split())):
            done = engine.call(*inspect, id, check=False)
            # Removed by its owner meanwhile.
            if done.returncode:
                continue
            found = json.loads(done.stdout)[0]["Config"].get("Labels") or {}
            owner = Owner.parse(found.get(NODE, ""), found.get(OWNER, ""))
            if owner and owner.is_dead():
                engine.call(*remove, id, check=False)
                removed.append(f"{kind} {id[:19]} of study {found.get(STUDY)}")
    for folder in own_folder().iterdir():
        owner = Owner.of_folder(folder.name)
        if owner and owner.is_dead():
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(f"folder {folder}")
    for what in removed:
        log(f"swept: {what}")
    return removed


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder of this process, where upstream's own temporary files go too."""
    folder = own_folder() / Owner.this().folder
    folder.mkdir(mode=0o700, exist_ok=True)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before
        shutil.rmtree(folder, ignore_errors=True)
