"""The container lane: podman or docker, rootless. One container a phase, without network and without mounts.

The phase's files go in as an archive and come out as one. Inside, ``/case/work`` is the candidate's, an unprivileged
user; ``/case/grader`` is root's, with mode 0700, and exists in the grading phase only; ``/case/task``, what an agent is
told, is root's too, for all to read.
"""

import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path

from assize.archive import Rejected, unpack
from assize.engines import PATIENCE_S, asked_for, call, complaint, find_engine, image_digest
from assize.errors import InfrastructureError, UsageError
from assize.sandbox import MARKER, REWARD, REWARD_MAX_BYTES, TASK_DIR, Limits, Outcome, Phase
from assize.sandbox.supervise import Watch, supervise

HERE = Path(__file__).parent / "container_files"
CASE = "case"
NOBODY = 65534
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LABEL = "assize.lane"
MACHINERY = 2  # init, and setpriv before it becomes the command


class ContainerLane:
    """A container for each phase, from an image that is already there.

    Parameters
    ----------
    image : reference of a local image; nothing is ever pulled.
    engine : podman or docker; the first that is installed where none is given.
    engine_limits : ``cpus`` and ``memory_mb`` for the engine to enforce (``--resource-mode container`` only).

    Raises
    ------
    UsageError : no image was named.
    InfrastructureError : there is no engine, or it does not have the image.
    """

    name = "container"

    def __init__(self, image: str | None, engine: str | None = None, engine_limits: dict | None = None):
        if not image:
            raise UsageError("bad_usage", "sandbox container: no image is named", "--image NAME, or sandbox.image")
        found = find_engine(engine)
        if found is None:
            raise InfrastructureError(
                "lane_missing",
                f"sandbox container: {asked_for(engine)} is not installed here",
                "install podman, or choose another lane in the study (that is another study)",
            )
        self.engine, self.image, self.engine_limits = found, image, engine_limits
        self.digest = self._inspect_image()

    def _inspect_image(self) -> str:
        """The image's digest, or its id where it never had one (built here, not pulled)."""
        done = self._call("image", "inspect", self.image, check=False)
        if done.returncode:
            raise InfrastructureError(
                "missing_image",
                f"sandbox container: {self.engine} has no image {self.image} ({complaint(done)})",
                f"build or load it first; nothing is pulled. See: {self.engine} images",
            )
        return image_digest(json.loads(done.stdout)[0])

    def provenance(self) -> dict:
        return {
            "lane": self.name,
            "isolated": True,
            "image": self.image,
            "image_digest": self.digest,
            "engine": self.engine,
            "engine_limits": self.engine_limits,
        }

    def run_candidate(self, phase: Phase) -> Outcome:
        """As in every lane; raises archive.Rejected where what the candidate left cannot be brought out safely."""
        outcome, case = self._run(phase, "candidate")
        for entry in os.scandir(phase.work):
            shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
        # What crossed the disk limit is too much to bring out; the outcome says so.
        if outcome.limit != "disk":
            unpack(case, phase.work, below=f"{CASE}/work")
        return outcome

    def run_grader(self, phase: Phase) -> Outcome:
        outcome, case = self._run(phase, "grader")
        reward, fault, marker = read_case(case)
        return replace(outcome, reward=reward, reward_fault=fault, marker=marker)

    def _run(self, phase: Phase, role: str) -> tuple[Outcome, bytes]:
        """Run one phase. Returns its outcome and what was in /case at the end, as a tar."""
        name = f"assize-{uuid.uuid4().hex}"
        try:
            self._call(*self._create(name, phase, role))
            # Podman 4 keeps what it reads there in a temporary file, with the oracle in it, and leaves that behind.
            with tempfile.TemporaryDirectory(prefix="assize-") as folder:
                self._call("cp", "-", f"{name}:/", input=pack_case(phase), env={**os.environ, "TMPDIR": folder})
            outcome, _ = supervise(
                [self.engine, "start", "--attach", name],
                phase.limits,
                phase.work,
                engine=Container(self, name, phase.limits),
            )
            try:
                case = b"" if outcome.limit == "disk" else self._take_out(name, phase.limits)
            except Rejected:
                if role == "candidate":
                    raise
                # Nothing but the reward is wanted of a grader's side: too much to look through is over the limit.
                return replace(outcome, exit_status=None, limit="disk"), b""
            return self._ended(name, outcome, case), case
        finally:
            self._call("rm", "--force", "--volumes", name, check=False)

    def _create(self, name: str, phase: Phase, role: str) -> list[str]:
        limits = phase.limits
        memory = limits.memory_mb << 20
        ulimits = {
            "core": 0,
            "cpu": limits.cpu_s,
            "data": memory,
            "fsize": limits.file_mb << 20,
            "nofile": 1024,
            # The kernel counts this one for the user over all containers: it is only a backstop, where cgroups do not
            # count for the container alone (below). The watch counts in any case.
            "nproc": 4096,
        }
        environment = {"HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "PATH": PATH}
        if phase.task_files:
            environment[TASK_DIR] = f"/{CASE}/task"
        if role == "grader":
            # The grader's own modules win over files of the same name in the candidate's directory.
            grader_dir = f"/{CASE}/grader"
            environment |= {"GRADER_DIR": grader_dir, "PYTHONPATH": grader_dir, "PYTHONSAFEPATH": "1"}
            environment["PATH"] = f"/{CASE}/bin:{PATH}"
        options = [
            *("create", "--name", name, "--label", f"{LABEL}=1", "--pull", "never"),
            *(() if phase.network else ("--network", "none")),
            # The engine's own log of the output would be a file without bound.
            *("--log-driver", "none", "--hostname", "assize", "--workdir", "/", "--entrypoint", f'["/{CASE}/init"]'),
            *("--cap-drop", "all", "--security-opt", "no-new-privileges"),
            # To hand /case/work to the candidate, to become the candidate, and to pass by what it closed to others.
            *("--cap-add", "CHOWN", "--cap-add", "SETUID", "--cap-add", "SETGID", "--cap-add", "DAC_OVERRIDE"),
            *("--pids-limit", str(limits.processes + MACHINERY)),
            *("--user", "0:0", "--tmpfs", f"/tmp:rw,exec,nosuid,nodev,mode=1777,size={limits.disk_mb}m"),
        ]
        if self.engine == "podman":
            # Should this process be killed, the container still ends.
            options += ["--timeout", str(int(limits.wall_s) + PATIENCE_S)]
        for key, value in ulimits.items():
            options += ["--ulimit", f"{key}={value}:{value}"]
        for key, value in environment.items():
            options += ["--env", f"{key}={value}"]
        if self.engine_limits:
            options += ["--cpus", str(self.engine_limits["cpus"]), "--memory", f"{self.engine_limits['memory_mb']}m"]
        return [*options, self.image, role, phase.command]

    def _take_out(self, name: str, limits: Limits) -> bytes:
        """/case of the ended container, as a tar of bounded size.

        Raises
        ------
        Rejected : it holds more than the disk limit.
        InfrastructureError : the engine did not hand it out.
        """
        # Only to wait: podman 4 may have forgotten the exit status of a container that has ended.
        self._call("wait", name, check=False)
        most = (limits.disk_mb << 20) + (64 << 20)
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                [self.engine, "cp", f"{name}:/{CASE}", "-"], stdout=subprocess.PIPE, stderr=errors
            ) as process,
        ):
            data = process.stdout.read(most + 1)
            if len(data) > most:
                process.kill()
                raise Rejected(f"it left more than {limits.disk_mb} MiB behind")
            if process.wait():
                errors.seek(0)
                message = errors.read(500).decode(errors="replace").strip()
                raise InfrastructureError("engine_failed", f"{self.engine} cp: {message}")
        return data

    def _ended(self, name: str, outcome: Outcome, case: bytes) -> Outcome:
        """The outcome with the exit status that the container's first process wrote down.

        Raises
        ------
        InfrastructureError : it wrote none, and neither a limit nor the engine's memory limit explains that.
        """
        if outcome.limit:
            return outcome
        told = read_member(case, f"{CASE}/end", 256)
        if told:
            exit_status, survivors, *in_force = told.decode().split()
            check_limits(self.engine_limits, in_force)
            return replace(outcome, exit_status=int(exit_status), survivors=int(survivors))
        state = json.loads(self._call("inspect", name).stdout)[0]["State"]
        if state.get("OOMKilled"):
            return replace(outcome, exit_status=None, limit="memory")
        output = outcome.output.decode(errors="replace").strip()[-500:]
        raise InfrastructureError("lane_failed", f"sandbox container did not run: {output or 'no word of why'}")

    def _call(self, *arguments: str, check: bool = True, **options) -> subprocess.CompletedProcess:
        return call(self.engine, *arguments, check=check, **options)


class Container:
    """A started container, as ``supervise`` sees it."""

    def __init__(self, lane: ContainerLane, name: str, limits: Limits):
        self.lane, self.name, self.limits = lane, name, limits

    def watch(self) -> Watch | None:
        """A watch over the container's first process on this host and all below it; None while there is none."""
        import psutil

        done = self.lane._call("inspect", "--format", "{{.State.Pid}}", self.name, check=False)
        pid = int(done.stdout.strip() or 0) if not done.returncode else 0
        try:
            if not pid:
                return None
            first = psutil.Process(pid)
            return Watch(first, self.limits, Path(f"/proc/{pid}/root/{CASE}/work"), seen={first})
        except psutil.Error:
            return None

    def stop(self) -> None:
        self.lane._call("kill", "--signal", "KILL", self.name, check=False)


def check_limits(asked: dict | None, in_force: list[str]) -> None:
    """Compare what the engine was asked to enforce with what was in force inside: memory bytes, CPU quota and period.

    Raises
    ------
    InfrastructureError : the engine ignored it, as rootless podman does under cgroups version 1.
    """
    if not asked:
        return
    wanted = [str(asked["memory_mb"] << 20), asked["cpus"]]
    memory, quota, period = [*in_force, "", "", ""][:3]
    cpus = int(quota) / int(period) if quota.isdigit() and period.isdigit() else None
    if [memory, cpus] != wanted:
        raise InfrastructureError(
            "limits_not_enforced",
            f"--resource-mode container: asked for {wanted[1]} CPUs and {wanted[0]} bytes, inside there are "
            f"{cpus or 'unlimited'} CPUs and {memory or 'unlimited'} bytes",
            "this engine does not enforce limits here; use --resource-mode slurm or none",
        )


def pack_case(phase: Phase) -> bytes:
    """What goes into the container before it starts, as a tar: init, work, and the grader's side where there is one."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:

        def put(name: str, data: bytes | None = None, mode: int = 0o755) -> None:
            member = tarfile.TarInfo(name)
            member.mode = mode
            member.type = tarfile.REGTYPE if data is not None else tarfile.DIRTYPE
            member.size = len(data or b"")
            tar.addfile(member, io.BytesIO(data) if data is not None else None)

        def as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            return member

        def put_all(place: str, files: dict[str, str | bytes], folder_mode: int, mode: int) -> None:
            put(place, mode=folder_mode)
            folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
            for folder in sorted(folders):
                put(f"{place}/{folder}", mode=folder_mode)
            for name, content in files.items():
                put(f"{place}/{name}", content if isinstance(content, bytes) else content.encode(), mode=mode)

        put(CASE)
        put(f"{CASE}/init", (HERE / "init").read_bytes())
        tar.add(phase.work, f"{CASE}/work", filter=as_root)
        if phase.task_files:
            put_all(f"{CASE}/task", phase.task_files, 0o755, 0o644)
        if phase.grader_files is not None:
            put(f"{CASE}/bin")
            put(f"{CASE}/bin/run-candidate", (HERE / "run-candidate").read_bytes())
            put_all(f"{CASE}/grader", phase.grader_files, 0o700, 0o600)
    return buffer.getvalue()


def read_case(case: bytes) -> tuple[bytes | None, str | None, bool]:
    """The reward file's bytes, its fault, and whether a probe left its marker; nothing of what was not brought out.

    Links are not followed. Pure.
    """
    if not case:
        return None, None, False
    with tarfile.open(fileobj=io.BytesIO(case), mode="r:") as tar:
        members = {member.name: member for member in tar}
        marker = f"{CASE}/work/{MARKER}" in members
        member = members.get(f"{CASE}/grader/{REWARD}")
        if member is None:
            return None, None, marker
        if not member.isreg():
            return None, "reward_not_regular", marker
        if member.size > REWARD_MAX_BYTES:
            return None, "reward_too_large", marker
        return tar.extractfile(member).read(), None, marker


def read_member(data: bytes, name: str, most: int) -> bytes | None:
    """The first ``most`` bytes of a regular member of a tar; None where there is none."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            member = tar.getmember(name)
            return tar.extractfile(member).read(most) if member.isreg() else None
    except (KeyError, tarfile.TarError):
        return None
