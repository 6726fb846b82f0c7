"""What an image brings for the evaluation: the tools that run after the candidate, and the packages of its Python.

An untouched container of the image is asked, before any candidate; what the build changed is then held against that.
The build runs as root, and whatever replaces one of these tools could write its own verdict.
"""

import json
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from assize.benchmarks.programbench.engine import FRESH, Engine
from assize.errors import InfrastructureError

# What upstream's steps and the adapter's call once the candidate has been at work; run.sh is a script of a shell.
PROGRAMS = ("bash", "sh", "env", "python3", "pip3", "tar", "mv", "rm", "chmod", "mkdir", "sed", "sha256sum")
# The container's own process, and what asks whether the engine still answers.
PROGRAMS += ("sleep", "true")
PACKAGES = ("pip", "pytest", "_pytest", "pluggy")
# A build that runs Python leaves these wherever it imports from.
CACHES = re.compile(r"/__pycache__(?:/|$)|\.pyc$")

# Runs in the image. Each file is named by its real path, and with it each link on the way and each place earlier on
# the path where another file of its name would be found first.
LOOK = r"""
import glob, importlib.metadata, importlib.util, json, os, platform, sys

asked, shell = json.loads(sys.argv[1]), sys.argv[2]
files, folders = {"/etc/ld.so.preload"}, []


def follow(path):
    at, parts = "/", path.split("/")
    for step in range(200):
        if not parts:
            break
        name = parts.pop(0)
        at = os.path.normpath(os.path.join(at, name))
        if os.path.islink(at):
            files.add(at)
            target = os.readlink(at)
            parts = target.split("/") + parts
            at = "/" if target.startswith("/") else os.path.dirname(at)
    files.add(at)


first = dict(item.split("=", 1) for item in open("/proc/1/environ").read().split("\0") if "=" in item)
for path in {os.environ["PATH"], first.get("PATH", "")}:
    for name in asked["programs"]:
        places = [f"{folder}/{name}" for folder in path.split(":") if folder.startswith("/")]
        found = next((place for place in places if os.access(place, os.X_OK)), None)
        if found:
            earlier = places[: places.index(found)]
            files.update(f"{os.path.realpath(os.path.dirname(place))}/{name}" for place in earlier)
            follow(found)
for path in ["/bin/sh", "/bin/bash", "/usr/bin/env", *glob.glob("/lib*/ld-*.so*")]:
    if os.path.exists(path):
        follow(path)
# What these two have loaded: the loader, libpython, libc.
for process in ("self", shell):
    for line in open(f"/proc/{process}/maps"):
        fields = line.split(None, 5)
        if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/"):
            follow(fields[5].strip())
for name in asked["packages"]:
    spec = importlib.util.find_spec(name)
    if spec:
        folders += [os.path.realpath(folder) for folder in spec.submodule_search_locations or ()]
        files.update([] if spec.submodule_search_locations else [os.path.realpath(spec.origin)])
installed = {}
for name in asked["distributions"]:
    try:
        installed[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
found = {"files": sorted(files), "folders": sorted(set(folders)), "installed": installed}
print(json.dumps(found | {"python": platform.python_version()}))
"""


@dataclass(frozen=True)
class Brought:
    """What an image brings.

    ``files``: absolute paths of programs, links to them, libraries, and places where another program would be found
    first. ``folders``: of the packages that pip and pytest consist of. ``installed``: distribution -> version, of those
    that were asked for. ``python``: its version.
    """

    files: tuple[str, ...]
    folders: tuple[str, ...]
    installed: dict[str, str]
    python: str


def look(engine: Engine, image: str, distributions: list[str]) -> Brought:
    """Ask an untouched container of an image; InfrastructureError where it cannot answer."""
    asked = json.dumps({"programs": PROGRAMS, "packages": PACKAGES, "distributions": distributions})
    script = 'python3 -I -c "$0" "$1" $$; exit $?'
    done = engine.call(*FRESH, image, "bash", "-lc", script, LOOK, asked, check=False)
    try:
        found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    except (IndexError, ValueError):
        found = None
    if found is None:
        said = (done.stderr or done.stdout).strip()[-500:]
        raise InfrastructureError("unusable_image", f"image {image[:19]}: its bash and python3 do not answer: {said}")
    return Brought(tuple(found["files"]), tuple(found["folders"]), found["installed"], found["python"])


def read_diff(text: str) -> list[tuple[str, str]]:
    """(kind, path) of each line of an engine's ``diff``; the kind is A (added), C (changed) or D (deleted). Pure."""
    lines = [line.split(" ", 1) for line in text.splitlines() if line[:2] in ("A ", "C ", "D ")]
    return sorted(((kind, path) for kind, path in lines), key=lambda change: change[1])


def changed_paths(changes: list[tuple[str, str]]) -> list[str]:
    """The paths without the folders that changed only because something in them did. Pure."""
    above = _above(path for _, path in changes)
    return [path for _, path in changes if path not in above]


def _above(paths) -> set[str]:
    return {str(parent) for path in paths for parent in PurePosixPath(path).parents}


def replaced(changes: list[tuple[str, str]], brought: Brought) -> tuple[list[str], list[str]]:
    """(paths of replaced tools, paths that are some unless they are folders). Pure.

    A ``diff`` says of a folder in which a file came and went what it says of a folder that became a link.
    """
    tools = {*brought.files, *brought.folders}
    over, above = _above(tools), _above(path for _, path in changes)
    hits, doubtful = [], []
    for kind, path in changes:
        inside = bool(_above([path]) & set(brought.folders)) and not CACHES.search(path)
        if path in brought.files or (kind == "D" and (inside or path in over or path in tools)):
            hits.append(path)
        elif path not in above and (inside or path in over or path in tools):
            doubtful.append(path)
    return hits, doubtful
