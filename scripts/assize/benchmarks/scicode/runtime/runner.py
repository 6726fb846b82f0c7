"""The trusted parent of a problem's steps, inside the sandbox: imports once, forks for each step, watches, judges.

    python runner.py

Reads ``job.json`` beside itself, runs its steps in parallel, longest first, and keeps ``reward.json`` up to date. Only
the standard library and the scientific packages are at hand here. The forks share one import of what the problem's
dependencies name; see step.py for what each does to be a script of its own.
"""

import contextlib
import importlib
import json
import os
import selectors
import signal
import sys
import time

import users
from reports import judge, lines_of

HERE = os.path.dirname(os.path.abspath(__file__))
# Looked at last: where the official package is installed, that is the one.
STAND_IN = os.path.join(HERE, "standin")
WATCH_S = 0.2
KEEP_BYTES = 4096  # of each end of a step's output
# Of all steps together: any byte may become six in the results file, and of that only 1 MiB is believed.
KEEP_BYTES_OF_ALL = 1 << 16
MAX_EVENT_BYTES = 1 << 16
FIRST_USER = 20_000


class Running:
    """One step that runs: its processes, what it printed, what it reported."""

    def __init__(self, step: dict, job: dict, number: int):
        # In a container a step is a user of its own.
        self.step, self.job = step, job | {"user": FIRST_USER + number}
        self.keep = min(KEEP_BYTES, KEEP_BYTES_OF_ALL // len(job["steps"]))
        self.started = time.monotonic()
        self.head, self.tail, self.printed = b"", b"", 0
        self.events, self.status = b"", b""
        self.limit, self.reaped = None, False
        self.pipes = {}
        pipes = {name: os.pipe() for name in ("output", "events", "status")}
        self.pid = os.fork()
        if self.pid == 0:
            self._become_step(pipes)
        for name, (read, write) in pipes.items():
            os.close(write)
            os.set_blocking(read, False)
            self.pipes[read] = name

    def _become_step(self, pipes: dict) -> None:
        import step

        kept = sorted([2, *(write for _, write in pipes.values())])
        for below, above in zip(kept, [*kept[1:], 1024], strict=True):
            os.closerange(below + 1, above)
        step.run(self.step, self.job, pipes["events"][1], pipes["status"][1], pipes["output"][1])

    def read(self, descriptor: int) -> bool:
        """Take in what a pipe holds; False when it has ended."""
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return True
        name = self.pipes[descriptor]
        if name == "output":
            self.printed += len(data)
            room = self.keep - len(self.head)
            self.head += data[:room]
            self.tail = (self.tail + data[room:])[-self.keep :]
        elif name == "events":
            self.events = (self.events + data)[: MAX_EVENT_BYTES + 1]
        else:
            self.status = (self.status + data)[: MAX_EVENT_BYTES + 1]
        return bool(data)

    def crossed(self) -> str | None:
        """The limit that the step has crossed by now, or None."""
        if time.monotonic() - self.started > self.job["wall_s"]:
            return "time"
        if self.printed > self.job["output_mb"] << 20:
            return "output"
        if resident_mb(self.pid) > self.job["memory_mb"]:
            return "memory"
        return None

    def end(self) -> None:
        """Kill the step: with its first process dies the first of its PID namespace, and with that all others."""
        for kill in (os.killpg, os.kill):
            try:
                kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.end_user()

    def end_user(self) -> None:
        """Kill what the step's user left running, where no PID namespace takes it along."""
        if self.job["isolation"] == "users":
            users.kill_all(self.job["user"])

    def has_ended(self, wait: bool = False) -> bool:
        """Whether the step's first process has ended."""
        if not self.reaped:
            self.reaped = os.waitpid(self.pid, 0 if wait else os.WNOHANG)[0] == self.pid
        return self.reaped

    def result(self) -> dict:
        """What the harness knows of the ended step."""
        output = self.head + (b"\n[...]\n" if self.printed > 2 * self.keep else b"") + self.tail
        facts = judge(lines_of(self.events), lines_of(self.status), self.limit)
        return {
            **facts,
            "seconds": round(time.monotonic() - self.started, 3),
            "output": output.decode("utf-8", "replace"),
            "output_bytes": self.printed,
        }


def resident_mb(root: int) -> int:
    """MiB in use by a process and all below it."""
    parents, sizes = {}, {}
    page = os.sysconf("SC_PAGE_SIZE")
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                with open(f"/proc/{name}/statm", "rb") as file:
                    memory = file.read().split()
            except OSError:
                continue
            parents[int(name)] = int(fields[1])
            # What is shared with the parent that forked is counted there.
            sizes[int(name)] = (int(memory[1]) - int(memory[2])) * page
    total = 0
    for process in sizes:
        ancestor = process
        while ancestor not in (0, root):
            ancestor = parents.get(ancestor, 0)
        total += sizes[process] if ancestor == root else 0
    return total >> 20


def warm_up(dependencies: str) -> None:
    """Import what every step of the problem will import. What fails here fails in each step, where it is recorded."""
    # The harness's own too: where a step runs, its files are out of reach.
    for name in ("h5py", "audit", "derivation", "h5file", "namespaces", "step", "users"):
        importlib.import_module(name)
    with contextlib.suppress(ImportError):
        import scicode.compare.cmp
        import scicode.parse.parse  # noqa: F401
    with contextlib.suppress(Exception):
        exec(dependencies, {"__name__": "__warm_up__"})


def runtime_facts() -> dict:
    """Which packages judged: the ``scicode`` that the tests import, and the versions behind it."""
    module = sys.modules.get("scicode")
    place = getattr(module, "__file__", None)
    names = ("numpy", "scipy", "sympy", "h5py")
    versions = {name: sys.modules[name].__version__ for name in names if name in sys.modules}
    official = bool(place) and not place.startswith(HERE)
    return {"python": sys.version.split()[0], "scicode": "official" if official else "stand-in", "versions": versions}


def write_results(results: dict) -> None:
    aside = os.path.join(HERE, ".reward.json")
    with open(aside, "w") as file:
        json.dump({"results": results, "runtime": runtime_facts()}, file)
    os.replace(aside, os.path.join(HERE, "reward.json"))


def main() -> None:
    with open(os.path.join(HERE, "job.json")) as file:
        job = json.load(file)
    job["work"] = os.getcwd()
    if job["targets"]:
        job["targets"] = os.path.join(HERE, job["targets"])
    sys.path.append(STAND_IN)
    warm_up(job["dependencies"])
    waiting = sorted(job["steps"], key=lambda step: -step["expected_s"])
    running, results = {}, {}
    selector = selectors.DefaultSelector()
    next_watch = 0.0
    while waiting or running:
        while waiting and len(running) < job["workers"]:
            started = Running(waiting.pop(0), job, len(results) + len(running))
            running[started.pid] = started
            for descriptor in started.pipes:
                selector.register(descriptor, selectors.EVENT_READ, started)
        for key, _ in selector.select(WATCH_S):
            if not key.data.read(key.fd):
                selector.unregister(key.fd)
                os.close(key.fd)
                del key.data.pipes[key.fd]
        if time.monotonic() >= next_watch:
            next_watch = time.monotonic() + WATCH_S
            for item in running.values():
                if item.limit is None and (limit := item.crossed()):
                    item.limit = limit
                    item.end()
        for item in list(running.values()):
            if item.pipes and job["isolation"] == "users" and item.has_ended():
                item.end_user()
            if item.pipes and job["isolation"] == "none" and item.has_ended():
                # No namespace takes along what the step left behind: the lane does, at the end.
                for descriptor in list(item.pipes):
                    selector.unregister(descriptor)
                    item.read(descriptor)
                    os.close(descriptor)
                    del item.pipes[descriptor]
            if item.pipes:
                continue
            # Every process of the step has let go of its pipes: all are dead.
            item.has_ended(wait=True)
            del running[item.pid]
            results[item.step["name"]] = item.result()
            write_results(results)
    write_results(results)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
