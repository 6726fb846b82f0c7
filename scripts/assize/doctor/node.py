"""What the machine that jobs run on must have: a sandbox that starts, a container engine, places to write."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from assize import engines
from assize.doctor import Answer, Finding, Needs, absent, ask, missing, ok
from assize.errors import AssizeError

LABEL = "assize.doctor"
# Where a container engine refuses to keep its store, or a lock of one node is no lock: file systems of a network.
SHARED = (
    "nfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "fuse.ceph",
    "fuse.glusterfs",
    "wekafs",
    "panfs",
    "pvfs2",
    "afs",
    "cifs",
)
# MiB that must be free: a phase may write 1 GiB of files, and its frozen work comes beside it.
SCRATCH_MB = 4096
RESULTS_MB = 1024
# User ids of an image: podman's own recommendation for a rootless user.
SUBORDINATE_IDS = 65536
# As the container lane makes its containers; an engine's own default for open files may be more than the site allows.
LANE_OPTIONS = ("--pull", "never", "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")


def check_node(needs: Needs) -> list[Finding]:
    """All that holds for this machine. What only containers need is looked at where the study uses them."""
    findings = [
        decide_sandbox("bubblewrap" in needs.lanes, *probe_bubblewrap(), read_sysctls()),
        check_home(),
        check_scratch(),
        check_results(),
    ]
    return findings + check_containers(needs)


# ------------------------------------------------------------ the process sandbox


def probe_bubblewrap() -> tuple[float | None, str]:
    """Milliseconds of a command in the bubblewrap lane, or None and why it does not start."""
    from assize.sandbox import Limits, Phase, open_lane

    try:
        with tempfile.TemporaryDirectory(prefix="assize-doctor-") as folder:
            outcome = open_lane("bubblewrap").run_candidate(Phase("true", Path(folder), Limits(wall_s=30)))
    except (AssizeError, OSError) as error:
        return None, getattr(error, "message", str(error))
    if outcome.exit_status != 0:
        return None, f"exit status {outcome.exit_status}, limit {outcome.limit}"
    return outcome.seconds * 1000, ""


def read_sysctls() -> dict[str, str]:
    """The switches with which kernels and sites forbid user namespaces, where they exist."""
    names = (
        "user/max_user_namespaces",
        "kernel/unprivileged_userns_clone",
        "kernel/apparmor_restrict_unprivileged_userns",
    )
    found = {name: Path("/proc/sys", name) for name in names}
    return {name.replace("/", "."): path.read_text().strip() for name, path in found.items() if path.exists()}


def decide_sandbox(needed: bool, milliseconds: float | None, why: str, sysctls: dict[str, str]) -> Finding:
    """User namespaces are allowed: bubblewrap starts. The switches tell an administrator what to change."""
    if milliseconds is not None:
        return ok("user namespaces", f"bubblewrap starts ({milliseconds:.0f} ms)")
    closed = [
        f"{name}={value}"
        for name, value in sysctls.items()
        if (value == "0") != name.endswith("apparmor_restrict_unprivileged_userns")
    ]
    asks = (
        f"ask the site to change {', '.join(closed)}"
        if closed
        else "ask the site to allow unprivileged user namespaces"
    )
    if needed:
        return missing("user namespaces", why, f"{asks}, or choose the container lane in the study")
    return absent("user namespaces", why, "the study does not use the bubblewrap lane")


# ------------------------------------------------------------ places to write


def check_home() -> Finding:
    """Snakemake makes a cache there before all else. Jobs are given another place for it; a controller is not."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser(), "snakemake")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".assize-doctor-", dir=folder):
            return ok("home", f"{folder} can be written to")
    except OSError as error:
        remedy = "submitit-modules: export XDG_CACHE_HOME=DIRECTORY, one that jobs can write to, such as /scratch/$USER"
        return missing("home", f"{folder}: {error.strerror}; a controller in Slurm does not start without it", remedy)


def check_scratch() -> Finding:
    folder = os.environ.get("TMPDIR") or "/tmp"
    if not Path(folder).is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return decide_scratch(folder, None, 0, False, "")
    usage, kind = shutil.disk_usage(folder), file_system(folder, Path("/proc/self/mountinfo").read_text())
    return decide_scratch(folder, True, usage.free >> 20, can_execute(folder), kind)


def can_execute(folder: str) -> bool:
    """Whether a program that is written there can be started: some sites mount /tmp noexec."""
    with tempfile.TemporaryDirectory(prefix="assize-doctor-", dir=folder) as inside:
        script = Path(inside, "script")
        script.write_text("#!/bin/sh\nexit 0\n")
        script.chmod(0o700)
        return ask(str(script)).output is not None


def file_system(path, mountinfo: str) -> str:
    """The type of the file system that ``path`` is on, by the text of /proc/self/mountinfo; "" if it is not there."""
    target, found = os.path.realpath(path), ("", "")
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        place = left.split()[4].encode().decode("unicode_escape")
        below = target == place or target.startswith(place.rstrip("/") + "/")
        if below and len(place) >= len(found[0]):
            found = (place, right.split()[0])
    return found[1]


def decide_scratch(folder: str, writable: bool | None, free_mb: int, executes: bool, kind: str) -> Finding:
    """Where candidates work and graders write: on the node, with room, and programs there can be started."""
    remedy = "set submitit-scratch to a directory on the node's own disk, such as /scratch/$USER"
    if not writable:
        return missing("scratch", f"{folder}: no directory that this user can write to", remedy)
    if not executes:
        return missing("scratch", f"{folder}: programs there cannot be started (mounted noexec)", remedy)
    if free_mb < SCRATCH_MB:
        return missing("scratch", f"{folder}: {free_mb} MiB free, {SCRATCH_MB} wanted", remedy)
    shared = ", shared over the network: slow, set submitit-scratch" if kind.startswith(SHARED) else ", on this node"
    return ok("scratch", f"{folder}: {free_mb >> 10} GiB free, {kind}{shared}")


def check_results() -> Finding:
    from assize.study import RESULTS

    folder = RESULTS.resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".assize-doctor-", dir=folder) as inside:
            renames, locks = can_rename(Path(inside)), can_lock(Path(inside))
    except OSError as error:
        return missing("results", f"{folder}: {error.strerror}", "put the checkout where this user can write")
    kind = file_system(folder, Path("/proc/self/mountinfo").read_text())
    return decide_results(str(folder), shutil.disk_usage(folder).free >> 20, renames, locks, kind)


def can_rename(folder: Path) -> bool:
    """Whether a record replaces another at once, as all records do."""
    from assize.records import write_atomic

    for content in (b"old", b"new"):
        write_atomic(folder / "record", content)
    return (folder / "record").read_bytes() == b"new" and [path.name for path in folder.iterdir()] == ["record"]


def can_lock(folder: Path) -> bool:
    """Whether a file that this process has locked is locked for another one. Some mounts of Lustre have no locks."""
    import fcntl

    again = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with open(folder / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        done = subprocess.run([sys.executable, "-c", again, folder / "lock"], capture_output=True)
    return done.returncode != 0


def decide_results(folder: str, free_mb: int, renames: bool, locks: bool, kind: str) -> Finding:
    """Records appear whole, and one controller can keep others away."""
    remedy = "put the checkout on a file system with POSIX renames and locks that all nodes share"
    if not renames:
        return missing("results", f"{folder} ({kind}): a renamed file does not replace the old one at once", remedy)
    if not locks:
        return missing("results", f"{folder} ({kind}): locks do not exclude other processes", remedy)
    if free_mb < RESULTS_MB:
        return missing("results", f"{folder}: {free_mb} MiB free, {RESULTS_MB} wanted", "free space, or another place")
    where = ", shared over the network" if kind.startswith(SHARED) else ""
    return ok("results", f"{folder}: {free_mb >> 10} GiB free, {kind}{where}; renames and locks hold")


# ------------------------------------------------------------ containers


def check_containers(needs: Needs) -> list[Finding]:
    """The engine, and where the study uses containers all that they need."""
    engine = find_engine(needs)
    if engine is None:
        return [decide_engine(needs.container, engines.asked_for(needs.engine), None, "")]
    facts, why = probe_engine(engine)
    findings = [decide_engine(needs.container, engine, facts, why)]
    if not needs.container or facts is None:
        return findings
    if engine == "podman" and facts["rootless"]:
        user = ask("id", "-un").output.strip()
        findings += [
            decide_ids("subuid", count_ids(user, os.getuid(), ask("getsubids", user), Path("/etc/subuid"))),
            decide_ids("subgid", count_ids(user, os.getuid(), ask("getsubids", "-g", user), Path("/etc/subgid"))),
            check_runtime_directory(),
        ]
    answers = {image: ask(engine, "image", "inspect", "--format", "{{.Id}}", image) for image in needs.images}
    here = next((image for image, answer in answers.items() if answer.output is not None), None)
    findings.append(decide_images(engine, answers))
    findings.append(decide_limits(needs, *probe_limits(engine, here, needs)))
    findings.append(check_commit(engine, here))
    return findings


def find_engine(needs: Needs) -> str | None:
    """The engine that the study names, or the first that is installed; None where it is not here."""
    return engines.find_engine(needs.engine)


def probe_engine(engine: str) -> tuple[dict | None, str]:
    """What the engine says of itself, or None and its complaint."""
    answer = ask(engine, "info", "--format", "json" if engine == "podman" else "{{json .}}")
    if answer.output is None:
        return None, answer.complaint
    return (read_podman if engine == "podman" else read_docker)(json.loads(answer.output)), ""


def read_podman(info: dict) -> dict:
    """The facts that count, of ``podman info --format json``. Pure."""
    host = info["host"]
    return {
        "version": info["version"]["Version"],
        "rootless": host["security"]["rootless"],
        "cgroups": host["cgroupVersion"].removeprefix("v"),
        "controllers": host.get("cgroupControllers") or [],
        "store": info["store"]["graphRoot"],
    }


def read_docker(info: dict) -> dict:
    """As ``read_podman``, of ``docker info --format '{{json .}}'``. Pure."""
    controllers = [
        name
        for name, key in (("cpu", "CpuCfsQuota"), ("memory", "MemoryLimit"), ("pids", "PidsLimit"))
        if info.get(key)
    ]
    return {
        "version": info.get("ServerVersion", "?"),
        "rootless": any("rootless" in option for option in info.get("SecurityOptions") or []),
        "cgroups": str(info.get("CgroupVersion", "?")),
        "controllers": controllers,
        "store": info.get("DockerRootDir", ""),
    }


def decide_engine(needed: bool, engine: str, facts: dict | None, why: str) -> Finding:
    """An engine that answers; how it is confined, and which of its limits can be in force."""
    if facts is None:
        said = why or f"{engine} is not installed here"
        if not needed:
            return absent("engine", said, "the study uses no containers")
        return missing("engine", said, "ask the site for podman (perhaps a module: submitit-modules)")
    limits = [name for name in ("cpu", "memory", "pids") if name in facts["controllers"]]
    told = f"cgroups version {facts['cgroups']}, can limit {', '.join(limits) or 'nothing'}"
    kind = "rootless" if facts["rootless"] else "not rootless"
    return ok("engine", f"{engine} {facts['version']}, {kind}, {told}; store {facts['store']}")


def count_ids(user: str, uid: int, asked: Answer, file: Path) -> int:
    """How many subordinate ids the user has: by getsubids, which also asks a directory service, or by the file."""
    if asked.output is not None:
        return sum(int(line.split()[-1]) for line in asked.output.splitlines() if line.split()[-1:][0].isdigit())
    rows = [line.split(":") for line in file.read_text().splitlines()] if file.exists() else []
    return sum(int(row[2]) for row in rows if len(row) == 3 and row[0] in (user, str(uid)))


def decide_ids(name: str, count: int) -> Finding:
    if count < SUBORDINATE_IDS:
        remedy = (
            f"ask the site for a line of {SUBORDINATE_IDS} ids in /etc/{name} on every node (usermod --add-{name}s)"
        )
        return missing(name, f"{count} ids for this user", remedy)
    return ok(name, f"{count} ids")


def check_runtime_directory() -> Finding:
    path = os.environ.get("XDG_RUNTIME_DIR")
    usable = bool(path) and os.path.isdir(path) and os.stat(path).st_uid == os.getuid() and os.access(path, os.W_OK)
    return decide_runtime_directory(path, usable)


def decide_runtime_directory(path: str | None, usable: bool) -> Finding:
    """A job inherits the login node's variable, and on its node nobody made the directory."""
    name = "XDG_RUNTIME_DIR"
    if not path:
        return ok(name, "not set: podman makes a directory of its own")
    if not usable:
        remedy = "submitit-modules: unset XDG_RUNTIME_DIR"
        return missing(name, f"{path} is no directory of this user on this machine", remedy)
    return ok(name, path)


def decide_images(engine: str, answers: dict[str, Answer]) -> Finding:
    """The images of the study are in the engine's store: nothing is pulled. ``answers`` are of ``image inspect``."""
    gone = [image for image, answer in answers.items() if answer.output is None]
    if gone:
        told = f"{', '.join(gone[:3])}{f' and {len(gone) - 3} more' if len(gone) > 3 else ''}"
        load = f"build them, or {engine} load --input ARCHIVE, on every node; nothing is pulled"
        return missing("images", f"{engine} has {len(answers) - len(gone)} of {len(answers)}; not {told}", load)
    first = [f"{image} {answer.output.strip().removeprefix('sha256:')[:12]}" for image, answer in answers.items()][:1]
    return ok("images", f"{len(answers)} of {len(answers)}" + "".join(f", {text}" for text in first))


def probe_limits(engine: str, image: str | None, needs: Needs) -> tuple[bool | None, str]:
    """Whether the engine enforces what it is asked to, tried in a container; None where there is no image to try."""
    from assize.sandbox import Limits, Phase
    from assize.sandbox.container import ContainerLane

    if image is None:
        return None, "no image of the study is here to try with"
    asked = {"cpus": min(needs.cpus, os.cpu_count() or 1), "memory_mb": 512}
    try:
        lane = ContainerLane(image, engine, asked)
        with tempfile.TemporaryDirectory(prefix="assize-doctor-") as folder:
            lane.run_candidate(Phase("true", Path(folder), Limits(wall_s=60)))
    except (AssizeError, OSError) as error:
        return False, getattr(error, "message", str(error))
    return True, f"{asked['cpus']} CPUs and {asked['memory_mb']} MiB were in force inside a container"


def decide_limits(needs: Needs, enforced: bool | None, told: str) -> Finding:
    """Limits that the engine enforces: needed in resource mode ``container`` alone."""
    if enforced:
        return ok("limits", told)
    if needs.resource_mode == "container":
        return missing("limits", told, "choose resource_mode slurm or none; cgroups version 2 with delegation would do")
    return absent("limits", told, f"in resource mode {needs.resource_mode} the engine is not asked to limit")


def check_commit(engine: str, image: str | None, check="containers", options=LANE_OPTIONS) -> Finding:
    """Containers can be made and committed here. For benchmarks' own checks too, with other options of ``create``."""
    return decide_commit(*probe_commit(engine, image, options), check)


def probe_commit(engine: str, image: str | None, options: tuple[str, ...]) -> tuple[float | None, str]:
    """Seconds that it took to create, run and commit a container, or None and why it failed. Leaves nothing."""
    if image is None:
        return None, "no image of the study is here to try with"
    name = f"assize-doctor-{uuid.uuid4().hex[:12]}"
    started = time.monotonic()
    entrypoint = '["/bin/sh", "-c", "echo ok > /assize-doctor"]'
    steps = [
        ("create", "--name", name, "--label", f"{LABEL}=1", *options, "--entrypoint", entrypoint, image),
        ("start", "--attach", name),
        ("commit", name, f"localhost/{name}"),
    ]
    try:
        for step in steps:
            answer = ask(engine, *step, seconds=300)
            if answer.output is None:
                return None, f"{step[0]}: {answer.complaint}"
        return time.monotonic() - started, ""
    finally:
        ask(engine, "rm", "--force", "--volumes", name)
        ask(engine, "rmi", "--force", f"localhost/{name}")


def decide_commit(seconds: float | None, why: str, check: str = "containers") -> Finding:
    """An engine may answer and yet make no container, or not commit one: only a try on this machine tells."""
    if seconds is not None:
        return ok(check, f"created, run and committed one in {seconds:.1f} s")
    if why.startswith("no image"):
        return missing(check, why, "bring the image first")
    if "rlimit" in why:
        return missing(check, why, "submitit-modules: export CONTAINERS_CONF=.../envs/containers.conf")
    needed = "subuid, subgid, XDG_RUNTIME_DIR and a store on a local disk (storage.conf) are what it needs"
    return missing(check, why, needed)
