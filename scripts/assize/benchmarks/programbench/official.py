"""The official ProgramBench package: verified, then imported. Evaluating and scoring are its own code.

Its ``PROGRAMBENCH_*`` variables are read when it is imported, so this module sets them, and is the only one that may
import it first. ``evaluator.py`` subclasses its classes and is imported only after ``open_official``.
"""

import base64
import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from assize.errors import InfrastructureError, UsageError
from assize.records import sha256_file

NAME = "programbench"
VERSION = "1.2.5"
# The release above is this commit of github.com/facebookresearch/ProgramBench.
REVISION = "27f02157c785f8da3647aa6dbbe6b9137f99f10e"
WHEEL_SHA256 = "ed7e350eb01cf8796af093154f90f0c7d5a91405591c23f9e3ec500d20ea62c5"
# What the adapter subclasses, or whose results it reads: other bytes may mean something else.
FILES = {
    "eval/eval.py": "8904e2947de17d166a2c579b9d55684ed15143c692024413e24d80645f30d5f9",
    "container.py": "e0faa1d3e846ba725c19b53cf2cff754bf3c6cd4c6f70b07309b75d239dea506",
    "constants.py": "3a2eba3ce853206abc488d21c793f64647634134530055dd6bd2e35f06138c89",
    "submission.py": "48d34c0f02f40e550bbcd27a67dd6ce814d9f26badd912a977e048e2acba4c9e",
    "eval/pytest_timeout_retry.py": "d9792db721ba8c0a85b7ad6a117a52375963e3e1deee935596be78c67ab22b95",
}
BLOB_REPOSITORY = "programbench/ProgramBench-Tests"
# Upstream's default is the branch ``main``.
BLOB_REVISION = "de0ddfb637590c7ecb54fa0b5301f6dc7dfbcee5"
# Downloads are anonymous: no token of the user's may go out with them.
TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")
REMEDY = f"make setup-programbench installs {NAME}=={VERSION}; --programbench-root names a checkout of {REVISION}"


@dataclass(frozen=True)
class Official:
    """The verified package: the folder of its modules, and where it came from."""

    package: Path
    source: str

    @property
    def tasks(self) -> Path:
        """The folder of task manifests that it ships."""
        return self.package / "data" / "tasks"

    @property
    def fixtures(self) -> Path:
        """The folder of finished runs of its own fixture task."""
        return self.package / "data" / "test_runs"

    def as_json(self) -> dict:
        return {"package": f"{NAME}=={VERSION}", "revision": REVISION, "source": self.source}


def find_official(root: str | None = None) -> Official:
    """Find the package and verify it; nothing is imported.

    Parameters
    ----------
    root : a clean git checkout of the pinned revision; the installed wheel where none is given.

    Raises
    ------
    UsageError : it is not installed, or it is another revision, dirty, or has other bytes.
    """
    if root:
        official = Official(_checkout(Path(root).absolute()), "checkout")
    else:
        official = Official(_installed(), "wheel")
    wrong = [name for name, sha256 in FILES.items() if _sha256(official.package / name) != sha256]
    if wrong:
        message = f"{official.package}: not the files of {NAME} {VERSION}: {', '.join(wrong)}"
        raise UsageError("other_package", message, REMEDY)
    return official


def open_official(official: Official, engine: str, cpus: int, blobs: Path | None) -> None:
    """Make the package importable, with its settings pinned.

    Parameters
    ----------
    engine : podman or docker, for upstream's own calls.
    cpus : workers of a test branch.
    blobs : the folder of test blobs, ``<instance>/tests/<branch>.tar.gz``; the dataset at its pin where none is given.
    """
    for name in [name for name in os.environ if name.startswith(("PROGRAMBENCH_DOCKER_", "PROGRAMBENCH_HF_"))]:
        del os.environ[name]
    for name in TOKENS:
        os.environ.pop(name, None)
    os.environ["PROGRAMBENCH_DOCKER_EXECUTABLE"] = engine
    os.environ["PROGRAMBENCH_DOCKER_CPUS"] = str(cpus)
    os.environ["PROGRAMBENCH_HF_REPO"] = BLOB_REPOSITORY
    os.environ["PROGRAMBENCH_HF_REVISION"] = BLOB_REVISION
    os.environ["PROGRAMBENCH_BLOB_DIR"] = str(blobs or "")
    os.environ["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1"
    import_root = str(official.package.parent)
    if import_root not in sys.path or official.source == "checkout":
        sys.path.insert(0, import_root)
    try:
        import programbench.constants as constants
    except ImportError as error:
        raise UsageError("no_package", f"{official.package}: {error}", REMEDY) from None
    found = Path(constants.__file__).resolve().parent
    if found != official.package.resolve() or engine != constants.DOCKER_EXECUTABLE:
        message = f"{NAME} was imported from {found}, for {constants.DOCKER_EXECUTABLE}, before it was pinned"
        raise InfrastructureError("imported_early", message)


def _sha256(path: Path) -> str | None:
    return sha256_file(path) if path.is_file() else None


def _installed() -> Path:
    """The package's folder in this Python, each of its files as the wheel's RECORD has it."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution(NAME)
    except PackageNotFoundError:
        raise UsageError("no_package", f"{NAME} is not installed in {sys.prefix}", REMEDY) from None
    if found.version != VERSION:
        raise UsageError("other_package", f"{NAME} {found.version} is installed; {VERSION} is needed", REMEDY)
    wrong = []
    for file in found.files or ():
        if file.hash is None:
            continue
        path = Path(found.locate_file(file))
        recorded = base64.urlsafe_b64decode(file.hash.value + "=" * (-len(file.hash.value) % 4))
        if not path.is_file() or hashlib.new(file.hash.mode, path.read_bytes()).digest() != recorded:
            wrong.append(str(file))
    if wrong:
        message = f"{NAME} {VERSION} in {sys.prefix}: changed since it was installed: {', '.join(wrong[:5])}"
        raise UsageError("other_package", message, REMEDY)
    return Path(found.locate_file(NAME))


def _checkout(root: Path) -> Path:
    """The package's folder in a git checkout of the pinned revision that nobody has changed."""

    def git(*arguments: str) -> str:
        # A checkout's own config may name commands that git would run.
        tame = ["-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null"]
        command = ["git", *tame, "-C", str(root), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            raise UsageError("no_git", "--programbench-root: git is not installed here") from None
        if done.returncode:
            raise UsageError("no_checkout", f"--programbench-root {root}: {done.stderr.strip()}", REMEDY)
        return done.stdout.strip()

    revision = git("rev-parse", "HEAD")
    if revision != REVISION:
        raise UsageError("other_package", f"--programbench-root {root}: revision {revision}, not {REVISION}", REMEDY)
    changed = git("status", "--porcelain")
    if changed:
        message = f"--programbench-root {root}: not clean: {', '.join(changed.split()[1::2][:5])}"
        raise UsageError("other_package", message, REMEDY)
    if not (root / "src" / NAME).is_dir():
        raise UsageError("no_checkout", f"--programbench-root {root}: there is no src/{NAME}", REMEDY)
    return root / "src" / NAME
