"""Run one sandboxed command to its end: bounded in time, memory, processes, disk and output.

The trusted parent watches from outside, since an unprivileged user has no cgroup of its own to ask. The kernel
enforces what it can (resource limits); the watch covers what it cannot (a whole tree's memory, processes and disk).
"""

import ctypes
import os
import resource
import selectors
import signal
import socket
import stat
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from assize.errors import InfrastructureError
from assize.sandbox import MARKER, REWARD, REWARD_MAX_BYTES, Limits, Outcome

KEEP_BYTES = 64 << 10  # of each end of the output
WATCH_S = 0.1
DISK_WATCH_S = 1.0
END_S = 20.0
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>

# Run inside the sandbox as the parent of the command. When the command has ended it says so on its standard input, a
# socket, and waits there until the supervisor has counted what the command left behind. The command cannot reach the
# socket: it has /dev/null for input, and the kernel opens no socket through /proc.
WRAPPER = 'ulimit -u "$0" 2>/dev/null || ulimit -p "$0" 2>/dev/null\n"$@" </dev/null\nrc=$?\necho >&0\nread _\nexit $rc'


class BoundedOutput:
    """Keeps the first and the last KEEP_BYTES of a stream and counts the rest."""

    def __init__(self):
        self.head, self.tail, self.total = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = KEEP_BYTES - len(self.head)
        self.head += data[:room]
        self.tail = (self.tail + data[room:])[-KEEP_BYTES:] if room < len(data) else self.tail

    def value(self) -> bytes:
        dropped = self.total - len(self.head) - len(self.tail)
        middle = b"\n[... %d bytes dropped ...]\n" % dropped if dropped else b""
        return bytes(self.head) + middle + bytes(self.tail)


def process_limit(limits: Limits) -> str:
    """The process limit to set inside the user namespace, as an argument of the shell's ulimit.

    Since Linux 5.14 the kernel counts per user namespace. Before, it counts all of the user's processes on the node,
    and a busy user would see fork failures that are not the candidate's: there only the watch limits processes.
    """
    major, minor = (int(part) for part in os.uname().release.split(".")[:2])
    return str(limits.processes) if (major, minor) >= (5, 14) else "unlimited"


def prepare_process(limits: Limits) -> None:
    """Set the kernel's limits on this process and all that it starts (run between fork and exec).

    The process also adopts the orphans below it, so that one that forks twice stays in the watched tree.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wanted = {
        resource.RLIMIT_CPU: limits.cpu_s,
        # DATA, not AS: runtimes that reserve address space without using it (Go, Java, V8) must start.
        resource.RLIMIT_DATA: limits.memory_mb << 20,
        resource.RLIMIT_FSIZE: limits.file_mb << 20,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 1024,
    }
    for name, value in wanted.items():
        _, hard = resource.getrlimit(name)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # A second between the soft and the hard limit tells SIGXCPU from any other kill.
        ceiling = value + 1 if name == resource.RLIMIT_CPU and hard in (resource.RLIM_INFINITY, value + 1) else value
        resource.setrlimit(name, (value, ceiling))


def disk_mb(root: Path, most: int) -> int:
    """MiB that the files under ``root`` occupy; stops counting above ``most`` or at 200,000 files."""
    total = count = 0
    folders = [root]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                total += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
            except OSError:
                continue
            count += 1
            if total >> 20 > most or count > 200_000:
                return most + 1
    return total >> 20


@dataclass
class Watch:
    """The processes below one root process, and what they use together."""

    root: object
    limits: Limits
    work: Path
    seen: set = field(default_factory=set)
    next_disk: float = 0.0

    def members(self) -> list:
        import psutil

        try:
            found = self.root.children(recursive=True)
        except psutil.Error:
            found = []
        self.seen.update(found)
        return found

    def crossed(self) -> str | None:
        """The limit that the tree has crossed by now, or None."""
        import psutil

        members = self.members()
        if len(members) > self.limits.processes:
            return "processes"
        memory = cpu = 0
        for process in members:
            try:
                memory += process.memory_info().rss
                cpu += sum(process.cpu_times()[:4])
            except psutil.Error:
                continue
        if memory >> 20 > self.limits.memory_mb and self._proportional_mb(members) > self.limits.memory_mb:
            return "memory"
        if cpu > self.limits.cpu_s:
            return "cpu"
        if time.monotonic() >= self.next_disk:
            self.next_disk = time.monotonic() + DISK_WATCH_S
            if disk_mb(self.work, self.limits.disk_mb) > self.limits.disk_mb:
                return "disk"
        return None

    @staticmethod
    def _proportional_mb(members: list) -> int:
        """MiB in use with each shared page counted once: dear to ask, so asked only when the cheap sum is over."""
        import psutil

        total = 0
        for process in members:
            try:
                total += process.memory_full_info().pss
            except psutil.Error:
                continue
        return total >> 20

    def kill_members(self) -> None:
        """Kill every process below the root, again until none is left: one may fork while it is being killed."""
        import psutil

        deadline = time.monotonic() + END_S
        while (alive := [process for process in self.members() if _alive(process)]) and time.monotonic() < deadline:
            for process in alive:
                try:
                    process.kill()
                except psutil.Error:
                    continue

    def wait_until_gone(self) -> None:
        """Return when every process that was ever seen is dead.

        Raises
        ------
        InfrastructureError : one is still there after END_S seconds.
        """
        alive = list(self.seen)
        deadline = time.monotonic() + END_S
        while (alive := [process for process in alive if _alive(process)]) and time.monotonic() < deadline:
            time.sleep(0.005)
        if alive:
            raise InfrastructureError("survivor", f"{len(alive)} candidate process(es) outlived their sandbox")


def _alive(process) -> bool:
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def supervise(
    argv: list[str],
    limits: Limits,
    work: Path,
    machinery: int = 0,
    kill_tree: bool = False,
    engine=None,
    **popen,
) -> tuple[Outcome, bytes]:
    """Run ``argv``, which starts WRAPPER around the command, until it ends or crosses a limit.

    Parameters
    ----------
    argv : the string ``{status}`` in it becomes the number of a descriptor, for bubblewrap's JSON status.
    machinery : how many processes below the first one are the lane's own.
    kill_tree : end the processes one by one, for a lane in which no namespace takes them along.
    engine : where ``argv`` is only the client of a container engine, which sets limits, and whose processes are not
        below ours: ``watch()`` is what to watch (None until it is there), ``stop()`` ends it.
    popen : for subprocess.Popen.

    Returns
    -------
    (Outcome, status) : ``status`` is what came through the status descriptor.
    """
    session = _Session(argv, limits, work, machinery, kill_tree, engine, popen)
    try:
        limit = session.run()
    finally:
        session.end()
    return session.outcome(limit), bytes(session.status)


class _Session:
    """One supervised command: its first process, its pipes, and the watch over what it started."""

    def __init__(self, argv, limits, work, machinery, kill_tree, engine, popen):
        import psutil

        self.limits, self.machinery, self.kill_tree, self.engine = limits, machinery, kill_tree, engine
        self.output, self.status, self.survivors = BoundedOutput(), bytearray(), 0
        self.wrapper, theirs = socket.socketpair()
        self.status_pipe, status_w = os.pipe()
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [part.format(status=status_w) if part == "{status}" else part for part in argv],
            stdin=subprocess.DEVNULL if engine else theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(status_w,) if "{status}" in argv else (),
            preexec_fn=None if engine else lambda: prepare_process(limits),
            start_new_session=True,
            **popen,
        )
        theirs.close()
        os.close(status_w)
        self.watch = None if engine else Watch(psutil.Process(self.process.pid), limits, work)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ, self.output.add)
        self.selector.register(self.status_pipe, selectors.EVENT_READ, self.status.extend)
        if not engine:
            self.selector.register(self.wrapper, selectors.EVENT_READ, self._release)

    def run(self) -> str | None:
        """Return when the process has ended, or with the limit that it crossed."""
        next_watch = self.started + WATCH_S
        while self.process.poll() is None:
            # Once released, the wrapper ends at once: worth a closer look than the watch's.
            self._read(WATCH_S if self.engine or self._listens_to(self.wrapper) else 0.002)
            now = time.monotonic()
            if now - self.started > self.limits.wall_s:
                return "wall"
            if self.output.total >> 20 >= self.limits.output_mb:
                return "output"
            if now >= next_watch:
                next_watch = now + WATCH_S
                self.watch = self.watch or self.engine.watch()
                if self.watch and (limit := self.watch.crossed()):
                    return limit
        return None

    def end(self) -> None:
        """Kill what is left, wait until it is gone, and take the rest of the output: every writer is dead then."""
        if self.watch:
            self.watch.members()
        if self.engine and self.process.poll() is None:
            self.engine.stop()
        if self.kill_tree:
            self.watch.kill_members()
        self.process.kill()
        self.process.wait()
        self.seconds = time.monotonic() - self.started
        if self.watch:
            self.watch.wait_until_gone()
        self._forget(self.wrapper)
        self.wrapper.close()
        while self.selector.get_map() and self._read(0):
            pass
        self.selector.close()
        os.close(self.status_pipe)
        self.process.stdout.close()

    def outcome(self, limit: str | None) -> Outcome:
        if limit is None and self.process.returncode == 128 + signal.SIGXCPU:
            limit = "cpu"
        exit_status = None if limit else self.process.returncode
        output = self.output
        return Outcome(exit_status, limit, self.seconds, output.value(), output.total, self.survivors)

    def _listens_to(self, channel) -> bool:
        return channel in {key.fileobj for key in self.selector.get_map().values()}

    def _release(self, _) -> None:
        """The command itself has ended: count what it left behind, then let the wrapper end."""
        # Twice: a process whose parent ends while the table is read hangs in the air for that one look.
        found = set(self.watch.members())
        time.sleep(0.002)
        found.update(self.watch.members())
        self.survivors = max(0, sum(map(_alive, found)) - self.machinery)
        if self.kill_tree:
            self.watch.kill_members()
        self._forget(self.wrapper)
        self.wrapper.shutdown(socket.SHUT_RDWR)

    def _forget(self, channel) -> None:
        if self._listens_to(channel):
            self.selector.unregister(channel)

    def _read(self, timeout: float) -> bool:
        """Take what is there to read; whether anything was."""
        ready = self.selector.select(timeout)
        for key, _ in ready:
            data = os.read(key.fd, 1 << 16)
            if data:
                key.data(data)
            else:
                self._forget(key.fileobj)
        return bool(ready)


def read_reward(grader_dir: Path) -> tuple[bytes | None, str | None]:
    """The bytes of the grader's reward file and a fault: a regular file of at most REWARD_MAX_BYTES, or nothing.

    The file is opened without following a link and without waiting for a FIFO's writer.
    """
    try:
        handle = os.open(grader_dir / REWARD, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None, None
    except OSError:
        return None, "reward_not_regular"
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            return None, "reward_not_regular"
        if facts.st_size > REWARD_MAX_BYTES:
            return None, "reward_too_large"
        return os.read(handle, REWARD_MAX_BYTES), None
    finally:
        os.close(handle)


def has_marker(work: Path) -> bool:
    return os.path.lexists(work / MARKER)


def write_files(root: Path, files: dict[str, str | bytes]) -> None:
    """Write a map of path to content under ``root``. The paths are the project's or a suite's, checked when read."""
    for name, content in files.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
