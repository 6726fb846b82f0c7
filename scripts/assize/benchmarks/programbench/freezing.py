"""The committed ``main`` of a workspace, frozen: taken out of the container, and read by git where no candidate was.

What cannot be frozen because of what the candidate left is its failure (Rejected). What the engine did not manage, or
not in time, never is.
"""

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Timer

from assize import engines
from assize.archive import Bounds, Rejected
from assize.benchmarks.programbench import agents, gittree
from assize.benchmarks.programbench.engine import ABSENT, KIND, NODE, STUDY, Engine
from assize.benchmarks.programbench.places import DEADLINE, EPISODE, JOB, ROLE, ROOT_LABEL
from assize.benchmarks.programbench.workspace import SHARED, USER
from assize.errors import InfrastructureError

# Seconds for each of three steps: out of the container, into the reader, through git. The largest repository that is
# allowed has 400,000 files, and a node's disk may be a busy one.
FREEZE_S = 900.0
# Objects that git is asked for at once: their names fit into a pipe, so that asking never waits for an answer.
ASKED_AT_ONCE = 512
# Git's exit status when it cannot go on, and what it then says where the node is to blame and not the repository.
GIT_DIES = 128
NODES_FAULT = re.compile(
    r"out of memory|cannot allocate|no space left|input/output error|too many open files|cannot create thread"
    r"|unable to create threaded",
    re.IGNORECASE,
)
# How every tar ends, and one that was cut off does not.
END_OF_TAR = b"\0" * 1024


def snapshot(
    engine: Engine, container: str, image: str, end: bool = True, bounds: Bounds = gittree.BOUNDS
) -> tuple[dict, bytes | None]:
    """Freeze the commit of ``main``; by default the kernel ends every process in the container first.

    Git reads the repository in a fresh container of the task's image, to which the candidate never had access, and
    only objects go in there: nothing that the candidate wrote is executed or obeyed.

    Parameters
    ----------
    image : id of the task's local image.
    end : the container is removed at the end; False leaves it running, for a snapshot in between.

    Returns
    -------
    (body, archive) : the body of a snapshot record, with ``detail.commit``; the archive is None where it was rejected.

    Raises
    ------
    InfrastructureError : the container is gone, or the engine failed. The container stays, ended, for another attempt;
        without one, remove it.
    """
    if not engine.exists(container):
        raise InfrastructureError("container_gone", f"{engine.name} has no container {container[:19]}", "prepare again")
    body = {"status": "frozen", "survivors": 0, "detail": {}}
    if end:
        body["survivors"] = agents.end(engine, container)
    try:
        repository = gittree.take_over(_copy_out(engine, container, bounds), bounds)
        body["detail"] = {"commit": repository.commit}
        with _reader(engine, container, image) as reader:
            archive = _freeze(engine, reader, repository, bounds)
    except Rejected as reason:
        body, archive = body | {"status": "rejected", "reason": str(reason)}, None
    if end:
        engine.remove(container)
    return body, archive


def _copy_out(engine: Engine, container: str, bounds: Bounds) -> bytes:
    """The shared repository's folder as a tar.

    Raises
    ------
    Rejected : the engine says that there is none, or it is too large.
    InfrastructureError : the engine says anything else, or does not answer in time.
    """
    most = 2 * bounds.bytes + (16 << 20)
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [engine.name, "cp", f"{container}:{SHARED}", "-"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
        _killed_after(process, FREEZE_S) as late,
    ):
        data = process.stdout.read(most + 1)
        if len(data) > most:
            process.kill()
            raise Rejected(f"the shared repository has more than {most} bytes")
        status = process.wait()
        message = _said(errors)
    if status == 0 and data.endswith(END_OF_TAR):
        return data
    # An engine that has lost a container's files says of all of them that they are not there.
    if not late.is_set() and ABSENT.search(message) and _has_files(engine, container):
        raise Rejected("the shared repository is gone")
    raise _engine_failed(engine, "cp", late, status, message)


def _has_files(engine: Engine, container: str) -> bool:
    return engine.call("cp", f"{container}:/etc/passwd", "-", check=False).returncode == 0


def _said(errors) -> str:
    errors.seek(0)
    return errors.read(500).decode(errors="replace").strip()


def _engine_failed(engine: Engine, what: str, late: Event, status: int, message: str) -> InfrastructureError:
    if late.is_set():
        return InfrastructureError("engine_hangs", f"{engine.name} {what}: not done in {FREEZE_S:g} s")
    return InfrastructureError("engine_failed", f"{engine.name} {what}: exit status {status}: {message or 'no word'}")


@contextmanager
def _killed_after(process: subprocess.Popen, seconds: float) -> Iterator[Event]:
    """End a process that takes longer; the event is set if that was so."""
    late = Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = Timer(seconds, end)
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


@contextmanager
def _reader(engine: Engine, container: str, image: str):
    """A fresh container of the image, to run git in. It has the labels of the workspace's, and so is swept like it."""
    facts = json.loads(engine.call("inspect", container).stdout)[0]["Config"]["Labels"]
    command = ["run", "--detach", "--init", "--pull", "never", "--network", "none", "--user", USER, "--workdir", "/tmp"]
    command += ["--security-opt", "no-new-privileges", "--entrypoint", ""]
    lifetime = int(3 * FREEZE_S)
    labels = facts | {ROLE: "reader", DEADLINE: str(int(time.time()) + lifetime)}
    for key in (STUDY, EPISODE, ROLE, KIND, NODE, DEADLINE, JOB, ROOT_LABEL):
        command += ["--label", f"{key}={labels.get(key, '')}"]
    reader = engine.call(*command, image, "sleep", str(lifetime)).stdout.strip().splitlines()[-1]
    try:
        yield reader
    finally:
        engine.remove(reader)


def _freeze(engine: Engine, reader: str, repository: gittree.Repository, bounds: Bounds) -> bytes:
    """The archive of the repository's commit, as git in the reader tells it.

    Raises
    ------
    Rejected : what git reads is not what it must be, or git itself cannot go on with it.
    InfrastructureError : anything else ended the reading.
    """
    inside = ["exec", "--interactive", "--user", USER, "--workdir", "/tmp", reader]
    unpack = [*inside, "bash", "-c", "mkdir repository && tar -xf - -C repository"]
    engines.call(engine.name, *unpack, input=repository.tar, timeout=FREEZE_S)
    git = [engine.name, *inside, "git", "--git-dir=/tmp/repository", "cat-file", "--batch"]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(git, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as process,
        _killed_after(process, FREEZE_S) as late,
    ):

        def read(names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
            names = list(names)
            for start in range(0, len(names), ASKED_AT_ONCE):
                asked = names[start : start + ASKED_AT_ONCE]
                process.stdin.write("".join(f"{name}\n" for name in asked).encode())
                process.stdin.flush()
                for name in asked:
                    yield gittree.read_object(process.stdout, name, bounds.bytes)

        try:
            return gittree.archive(repository.commit, read, bounds)
        except (EOFError, BrokenPipeError):
            status, message = process.wait(), _said(errors)
            if not late.is_set() and status == GIT_DIES and not NODES_FAULT.search(message):
                raise Rejected(f"git cannot read the shared repository: {message}") from None
            raise _engine_failed(engine, "exec: git cat-file", late, status, message) from None
        finally:
            process.kill()
            # What git no longer reads is still to be flushed.
            with suppress(BrokenPipeError):
                process.stdin.close()
