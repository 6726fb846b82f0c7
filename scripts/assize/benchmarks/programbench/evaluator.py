"""The official evaluator on this project's terms: no network, nothing pulled, labelled, plugins from the wheelhouse.

Import this only after ``official.open_official``: upstream reads its settings when it is imported. What upstream does,
in which order and with which commands stays upstream's; each override says what it changes and why.
"""

import re
import shlex
import subprocess
import tarfile
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from programbench.constants import DOCKER_RUN_TIMEOUT
from programbench.container import ContainerEnvironment
from programbench.eval import eval as upstream
from programbench.exceptions import EmptyTestResultError, EvalStepError, XmlParseError

from assize.benchmarks.programbench.engine import ABSENT, Engine
from assize.benchmarks.programbench.tools import Brought, changed_paths, read_diff, replaced
from assize.benchmarks.programbench.verdicts import (
    DOUBTFUL,
    HARNESS_WORDS,
    Observed,
    Run,
    is_candidates_doing,
    root_files,
)
from assize.errors import InfrastructureError

REFERENCE = "/opt/assize-reference-executable"
REFERENCE_BUILD = f"#!/bin/sh\nmv {REFERENCE} ./executable\n"
# Bytes of stdout, and of stderr, that are kept of a command: half from its start, half from its end.
MOST_OUTPUT = 16 << 20
MOST_RESULTS = 256 << 20
# The build ran as root: no settings of pip's that it may have left.
OWN_PIP = "PIP_CONFIG_FILE=/dev/null PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore"
# In the container: what is installed from the wheelhouse, and the versions that are then in force.
INSTALL, CONSTRAINTS = "install.txt", "in-force.txt"
# What upstream's DNS step changes while compile.sh runs.
UPSTREAMS_OWN = ("/etc/resolv.conf", "/etc/resolv.conf.programbench-build-bak")
PLUGINS = "pytest, pytest_rerunfailures, pytest_timeout, xdist"
# What was installed by hash need not be imported, only be where this Python looks.
FIND_PLUGINS = (
    "python3 -I -c 'import sys, importlib.util as u;"
    f' sys.exit([n for n in "{PLUGINS}".split(", ") if not u.find_spec(n)] or None)\''
)


class ContainerGone(InfrastructureError):
    """The container ended under a command."""


@dataclass(frozen=True)
class Settings:
    """What holds for every container of one evaluation.

    ``brought``: what the image brings. ``install`` and ``constraints``: for pip, what the wheelhouse adds to that, and
    the versions that are then in force. ``engine_limits``: ``cpus`` and ``memory_mb`` for the engine, or None: then
    nothing is asked of it. ``workers``: of a test branch. ``seconds``: upstream's step -> its time limit, where it is
    not upstream's own.
    """

    engine: Engine
    image: str
    labels: dict[str, str]
    workers: int
    brought: Brought
    engine_limits: dict | None = None
    wheelhouse: Path | None = None
    install: str = ""
    constraints: str = ""
    seconds: dict[str, int] = field(default_factory=dict)


class EvaluatorContainer(ContainerEnvironment):
    """Upstream's container, started by other rules; what it offers to the evaluator is the same."""

    def __init__(self, *, image: str, cwd: str, settings: Settings, env: dict[str, str], timeout: int = 600):
        # Not upstream's, which always asks for CPUs and would pull.
        self.cwd, self.executable, self.default_timeout = cwd, settings.engine.name, timeout
        self.settings = settings
        self.torn_down = False
        # Whether what is in the container still is the image's: the build may have put anything in its place.
        self.trusted = True
        self._name = f"assize-{uuid.uuid4().hex[:16]}"
        options = ["--init", "--name", self._name, "--pull", "never", "--network", "none", "--workdir", cwd]
        if settings.engine.name == "podman":
            # It would hand on this host's proxy settings, and with them their passwords.
            options.append("--http-proxy=false")
        if settings.engine_limits:
            limits = settings.engine_limits
            options += ["--cpus", str(limits["cpus"]), "--memory", f"{limits['memory_mb']}m"]
        for key, value in settings.labels.items():
            options += ["--label", f"{key}={value}"]
        for key, value in env.items():
            options += ["--env", f"{key}={value}"]
        command = ("run", "--detach", *options, image, "sleep", "2h")
        self.container_id = settings.engine.call(*command, timeout=DOCKER_RUN_TIMEOUT).stdout.strip().splitlines()[-1]

    def execute(self, command: str, *, timeout: int | None = None) -> dict:
        """As upstream's, but output may be any bytes and is bounded, and no exit status is the engine's."""
        timeout = timeout or self.default_timeout
        arguments = [self.executable, "exec", "-w", self.cwd, self.container_id, "bash", "-lc", command]
        returncode, output = run_bounded(arguments, timeout)
        if returncode is None:
            # The container's processes outlive the engine's client: upstream ends them all, the container's own too.
            self.torn_down = True
            teardown = "kill -KILL -1 2>/dev/null; sleep 0.2; kill -KILL -1 2>/dev/null; true"
            self.settings.engine.call("exec", self.container_id, "bash", "-c", teardown, check=False, timeout=60)
            return {"output": output, "returncode": -1, "exception_info": f"Command timed out after {timeout}s"}
        if returncode and not self.torn_down:
            self._check_alive(returncode, output)
        return {"output": output, "returncode": returncode, "exception_info": ""}

    def _check_alive(self, returncode: int, output: str) -> None:
        """An engine that fails ends with an exit status too, and not every engine with one of its own."""
        engine = self.settings.engine
        if not self._runs():
            # What upstream still tries in it, to clean up, fails as it may.
            self.torn_down = True
            raise ContainerGone("container_gone", f"the container ended under a command: {output.strip()[-300:]}")
        if not (returncode in DOUBTFUL and self.trusted):
            return
        if engine.call("exec", self.container_id, "true", check=False).returncode in (125, 255):
            raise InfrastructureError("engine_failed", f"{engine.name} exec: {output.strip()[-300:]}")

    def _runs(self) -> bool:
        engine = self.settings.engine
        state = engine.call("inspect", "--format", "{{.State.Running}}", self.container_id, check=False)
        return state.stdout.strip() == "true"

    def end_all(self) -> int | None:
        """End every process in the container, by its kernel; its files stay.

        Returns
        -------
        How many there were beside the container's own, or None where that cannot be told.

        Raises
        ------
        InfrastructureError : the container cannot be ended.
        """
        looked, seen = run_bounded([self.executable, "exec", self.container_id, "bash", "-c", LOOK_AROUND], 60)
        engine = self.settings.engine
        # With its first process a PID namespace ends, and nothing in it can outlive that.
        engine.call("stop", "-t", "0", self.container_id, check=False)
        self.torn_down = True
        if self._runs():
            raise InfrastructureError("build_alive", f"{engine.name}: the build's container cannot be ended")
        return count_survivors(seen) if looked == 0 else None

    def start_again(self) -> None:
        """ContainerGone where it does not start as the build left it."""
        done = self.settings.engine.call("start", self.container_id, check=False, timeout=DOCKER_RUN_TIMEOUT)
        if done.returncode or not self._runs():
            raise ContainerGone("container_gone", f"the container does not start again: {done.stderr.strip()[-300:]}")
        self.torn_down = False

    def commit(self, image_ref: str) -> str:
        changes = [part for key, value in self.settings.labels.items() for part in ("--change", f"LABEL {key}={value}")]
        self.settings.engine.call("commit", *changes, self.container_id, image_ref, timeout=DOCKER_RUN_TIMEOUT)
        return image_ref

    def changes(self) -> list[tuple[str, str]]:
        """(kind, path) of what differs from the image, as the engine sees it from outside."""
        return read_diff(self.settings.engine.call("diff", self.container_id, timeout=DOCKER_RUN_TIMEOUT).stdout)

    def no_folders(self, paths: list[str]) -> list[str]:
        """Those of the paths that are no folders in the container, as the engine's archive of it has them."""
        process = subprocess.Popen([self.executable, "export", self.container_id], stdout=subprocess.PIPE)
        deadline = threading.Timer(DOCKER_RUN_TIMEOUT, process.kill)
        deadline.start()
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                folders = {f"/{member.name.removeprefix('./').strip('/')}" for member in archive if member.isdir()}
            while process.stdout.read(1 << 20):
                pass
            returncode = process.wait()
        except (tarfile.TarError, OSError) as error:
            returncode = error
        finally:
            deadline.cancel()
            process.kill()
            process.wait()
        if returncode:
            raise InfrastructureError("engine_failed", f"{self.executable} export: {returncode}")
        return [path for path in paths if path not in folders]

    def cleanup(self) -> None:
        """Upstream stops a container before it removes it; nothing in it is worth the wait."""
        if getattr(self, "container_id", None):
            command = [self.executable, "rm", "--force", "--volumes", self.container_id]
            subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
            self.container_id = None


def count_survivors(seen: str) -> int:
    """Processes beside the container's own, from what LOOK_AROUND prints. Pure.

    Its own are its init, init's oldest child and the shell that looks; what ended between two glances lived at one.
    """
    shell, *lines = seen.splitlines() or [""]
    alive = {}
    for line in lines:
        pid, state, parent = (line.split() + ["", "", ""])[:3]
        if pid.isdigit() and state != "Z":
            alive[int(pid)] = parent or alive.get(int(pid), "")
    children = [pid for pid, parent in alive.items() if parent == "1"]
    return len(alive.keys() - {1, int(shell) if shell.isdigit() else 1, min(children, default=1)})


def run_bounded(arguments: list[str], timeout: float) -> tuple[int | None, str]:
    """Run a command: (its exit status, or None where it took too long; its stdout, then its stderr, bounded)."""
    process = subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )
    kept = [Kept(), Kept()]
    streams = (process.stdout, process.stderr)
    readers = [
        threading.Thread(target=one.fill, args=(stream,), daemon=True)
        for one, stream in zip(kept, streams, strict=True)
    ]
    for reader in readers:
        reader.start()
    try:
        returncode = process.wait(timeout)
    except subprocess.TimeoutExpired:
        returncode = None
    finally:
        process.kill()
        process.wait()
    # What a command left running may hold the pipe open.
    for reader in readers:
        reader.join(5)
    return returncode, "".join(one.text() for one in kept)


class Kept:
    """The first and the last bytes of a stream."""

    def __init__(self, most: int = MOST_OUTPUT):
        self.half, self.head, self.tail, self.dropped = most // 2, bytearray(), bytearray(), 0

    def fill(self, stream) -> None:
        while data := stream.read(1 << 16):
            room = self.half - len(self.head)
            self.head += data[:room]
            self.tail += data[room:]
            if len(self.tail) > 2 * self.half:
                self._trim()

    def _trim(self) -> None:
        extra = len(self.tail) - self.half
        if extra > 0:
            self.dropped += extra
            del self.tail[:extra]

    def text(self) -> str:
        self._trim()
        gap = f"\n[{self.dropped} bytes left out]\n".encode() if self.dropped else b""
        return (bytes(self.head) + gap + bytes(self.tail)).decode("utf-8", "replace")


class CourtEvaluator(upstream.Evaluator):
    """The official evaluator with this project's containers. ``observed`` holds what the official result does not."""

    def __init__(self, *, settings: Settings, reference: bool = False, **options):
        super().__init__(docker_cpus=settings.workers, **options)
        self.settings, self.reference = settings, reference
        self.reference_sha256: str | None = None
        # A name that the candidate could not have taken before.
        self.wheelhouse = f"/opt/assize-wheelhouse-{uuid.uuid4().hex[:12]}"
        self.observed = Observed()

    def _new_env(self, image: str, *, serial_pytest: bool = False) -> EvaluatorContainer:
        env = {
            "PYTEST_XDIST_AUTO_NUM_WORKERS": "1" if serial_pytest else str(self.docker_cpus),
            "PYTEST_ADDOPTS": "--max-worker-restart=4",
        }
        if image == f"{self.image_name}:{self.image_tag}":
            # By its id: a tag may be moved between two branches.
            image = self.settings.image
        elif self.settings.wheelhouse:
            # A branch that installs something finds the wheelhouse, and nothing else.
            env |= {
                "PIP_CONFIG_FILE": "/dev/null",
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": self.wheelhouse,
                "PIP_CONSTRAINT": f"{self.wheelhouse}/{CONSTRAINTS}",
                "PIP_BREAK_SYSTEM_PACKAGES": "1",
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            }
        env = EvaluatorContainer(image=image, cwd=upstream.WORKSPACE_DIR, settings=self.settings, env=env)
        try:
            self._check_limits(env)
        except BaseException:
            env.cleanup()
            raise
        return env

    def _check_limits(self, env: EvaluatorContainer) -> None:
        """What the engine was asked to enforce is in force inside."""
        if self.settings.engine_limits:
            from assize.sandbox.container import check_limits

            done = env.execute(LIMITS_IN_FORCE, timeout=30)
            check_limits(self.settings.engine_limits, done["output"].split())

    def _run_step(self, command: str, *, env, log_buf: list, step_name: str, timeout: int = 20, **options) -> dict:
        timeout = self.settings.seconds.get(step_name, timeout)
        if step_name == "compile":
            return self._compile_step(command, env, log_buf, timeout)
        if step_name == "install_rerunfailures" and self.settings.wheelhouse:
            self._install_wheelhouse(env, log_buf)
            command = f"{OWN_PIP} {command}"
        try:
            done = super()._run_step(command, env=env, log_buf=log_buf, step_name=step_name, timeout=timeout, **options)
        finally:
            if step_name != "run_tests" and log_buf and log_buf[-1]["step"] == step_name:
                self._check_stalled(log_buf[-1])
        if step_name == "install_rerunfailures":
            self._check_plugins(done, env, log_buf)
        return done

    def _check_stalled(self, entry: dict) -> None:
        """A step of a moment that found no end: to the steps behind it, its container would only seem empty."""
        if entry["returncode"] == -1 and not is_candidates_doing(-1, self.observed):
            raise InfrastructureError("step_stalled", f"{entry['step']}: {entry['exception_info']}")

    def _compile_step(self, command: str, env: EvaluatorContainer, log_buf: list, timeout: int) -> dict:
        env.trusted = False
        try:
            done = super()._run_step(command, env=env, log_buf=log_buf, step_name="compile", timeout=timeout)
            self._end_build(env)
        except EvalStepError:
            # What upstream still tries in it, to clean up, fails as it may.
            env.torn_down = True
            end = log_buf[-1]["returncode"]
            self.observed.compile_runs.append("timed out" if end == -1 else end)
            raise
        except ContainerGone as error:
            # Whether the candidate or the node ended it, a second run shows.
            env.torn_down = True
            self.observed.compile_runs.append("container gone")
            raise EvalStepError("compile_failed", error.message) from None
        self.observed.compile_runs.append(0)
        env.trusted = True
        return done

    def _end_build(self, env: EvaluatorContainer) -> None:
        """End what the build left running, see what it changed, by the engine's word, and go on only with the image's
        own tools: nothing of the candidate's runs again before they have been looked at."""
        self.observed.survivors = env.end_all()
        changes, workspace = env.changes(), f"{upstream.WORKSPACE_DIR}/"
        outside = [path for path in changed_paths(changes) if not f"{path}/".startswith(workspace)]
        self.observed.changes = [path for path in outside if path not in UPSTREAMS_OWN]
        inside = [path.removeprefix(workspace) for kind, path in changes if kind != "D" and path.startswith(workspace)]
        self.observed.root_files = root_files(inside)
        hits, doubtful = replaced(changes, self.settings.brought)
        self.observed.replaced = sorted({*hits, *(env.no_folders(doubtful) if doubtful else ())})
        if self.observed.replaced:
            shown = ", ".join(self.observed.replaced[:5])
            raise EvalStepError("tools_replaced", f"the build replaced what its tests run with: {shown}")
        env.start_again()

    def _compile_executable(self, env: EvaluatorContainer, log_buf: list) -> None:
        # Upstream's DNS step copies this file, which an image may not have; without a network the engine makes none.
        self._step("[ -e /etc/resolv.conf ] || : > /etc/resolv.conf", env, log_buf, "ensure_resolv_conf")
        if self.reference:
            # A candidate's way from here on: REFERENCE_BUILD is the build that brings it back.
            stash = f"[ -f executable ] && [ ! -L executable ] && sha256sum executable && mv executable {REFERENCE}"
            done = self._step(stash, env, log_buf, "stash_reference")
            self.reference_sha256 = re.search(r"\b[0-9a-f]{64}\b", done["output"])[0]
        super()._compile_executable(env, log_buf)

    def _step(self, command: str, env, log_buf: list, name: str, timeout: int = 60) -> dict:
        """A step of the adapter's own: its failure is never the candidate's."""
        done = super()._run_step(
            command, env=env, log_buf=log_buf, step_name=name, timeout=timeout, accept_failure=True
        )
        if done["returncode"]:
            message = f"{name}: {(done['output'] or done['exception_info']).strip()[-500:]}"
            self._check_steered(done, message)
            raise InfrastructureError(f"{name}_failed", message)
        return done

    def _check_steered(self, done: dict, message: str) -> None:
        """A step that fails where the build changed the system is the candidate's failure, and no void to hide in."""
        if is_candidates_doing(done["returncode"], self.observed) and "No space left" not in done["output"]:
            raise EvalStepError("tools_replaced", f"what the build changed breaks the evaluation: {message}")

    def _install_wheelhouse(self, env: EvaluatorContainer, log_buf: list) -> None:
        """The plugins, and what the image lacks of what they need: all else stays as the image has it."""
        self.settings.engine.call("cp", str(self.settings.wheelhouse), f"{env.container_id}:{self.wheelhouse}")
        pip = "pip3 install --quiet --no-index --disable-pip-version-check --no-cache-dir"
        texts = {INSTALL: self.settings.install, CONSTRAINTS: self.settings.constraints}
        written = " && ".join(
            f"printf %s {shlex.quote(text)} >{self.wheelhouse}/{name}" for name, text in texts.items()
        )
        self._step(
            f"cd / && {written} && {OWN_PIP} {pip} --find-links {self.wheelhouse}"
            f" --require-hashes --requirement {self.wheelhouse}/{INSTALL} && {FIND_PLUGINS}",
            env,
            log_buf,
            "install_wheelhouse",
            timeout=300,
        )

    def _check_plugins(self, installed: dict, env: EvaluatorContainer, log_buf: list) -> None:
        """Upstream accepts that pytest-rerunfailures is missing; then a correct submission can score 0."""
        if installed["returncode"]:
            output = (installed["output"] or installed["exception_info"]).strip()[-500:]
            message = f"pytest-rerunfailures cannot be installed in the evaluator: {output}"
            self._check_steered(installed, message)
            raise InfrastructureError(
                "plugins_missing",
                message,
                "build the evaluator's wheelhouse (scripts/evaluator_wheelhouse.py) and name it",
            )
        if not self.settings.wheelhouse:
            self._step(f"cd / && python3 -I -c 'import {PLUGINS}'", env, log_buf, "check_plugins")

    def _run_test_branch(self, branch: str, image: str, log_buf: list, *, serial_pytest: bool = False) -> str:
        read = False
        try:
            xml = super()._run_test_branch(branch, image, log_buf, serial_pytest=serial_pytest)
            read = True
            return xml
        finally:
            for entry in log_buf:
                if entry["step"] == "run_tests":
                    words = HARNESS_WORDS.search(entry["output"])
                    run = Run(entry["returncode"], entry["returncode"] == -1, read, words and words[0])
                    self.observed.runs.setdefault(branch, []).append(run)

    def _copy_file_from_container(self, *, env, log_buf: list, container_path: str, step_name: str, timeout=60) -> str:
        """As upstream's, but what comes out is a regular file of bounded size, and may be any bytes."""
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "file")
            command = [env.executable, "cp", f"{env.container_id}:{container_path}", str(target)]
            started = time.monotonic()
            returncode, output = run_bounded(command, timeout)
            if returncode is None or (returncode and not ABSENT.search(output)):
                message = f"{env.executable} cp: {output.strip()[-300:] or f'no answer in {timeout} s'}"
                raise InfrastructureError("engine_failed", message)
            if returncode == 0:
                output, returncode = read_bounded(target, MOST_RESULTS)
            entry = {
                "step": step_name,
                "command": " ".join(command),
                "wall_time": time.monotonic() - started,
                "output": output,
                "returncode": returncode,
                "exception_info": "",
            }
        log_buf.append(entry)
        if returncode:
            raise EvalStepError(f"{step_name}_failed", output)
        return output

    def _evaluate_branch(self, branch: str, image: str) -> None:
        """As upstream's; results that cannot be read, with which upstream would end, are made once more."""
        for last in (False, True):
            try:
                super()._evaluate_branch(branch, image)
                return
            except (XmlParseError, EmptyTestResultError) as error:
                if last:
                    self._add_branch_error(branch, error.error_code, error.error_details)
                    self._inject_not_run(branch, error.error_code)


def read_bounded(path: Path, most: int) -> tuple[str, int]:
    """(text, 0) of a regular file; (what is wrong, 1) of anything else. Links are not followed."""
    if path.is_symlink() or not path.is_file():
        return "not a regular file", 1
    if path.stat().st_size > most:
        return f"larger than {most} bytes", 1
    return path.read_bytes().decode("utf-8", "replace"), 0


# Every process, looked at again and again: what forks and ends is at another place each time. Who looks comes first.
LOOK_AROUND = """echo $$
for again in 0 1 2 3; do
  for process in /proc/[0-9]*; do
    line=
    { read -r line <"$process/stat"; } 2>/dev/null
    echo "${process#/proc/} ${line##*) }"
  done
done
"""

# Memory bytes, CPU quota and period, of either version of cgroups: what assize.sandbox.container.check_limits takes.
LIMITS_IN_FORCE = (
    "if [ -f /sys/fs/cgroup/memory.max ]; then cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max; else "
    "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/cpu/cpu.cfs_quota_us "
    "/sys/fs/cgroup/cpu/cpu.cfs_period_us 2>/dev/null; fi; true"
)
