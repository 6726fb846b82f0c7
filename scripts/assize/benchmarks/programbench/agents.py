"""The candidate at work in its workspace: files that are replayed, an agent's command, and how both are ended."""

import io
import json
import os
import selectors
import subprocess
import tarfile
import time

from assize import engines
from assize.archive import Rejected, check_file_map
from assize.benchmarks.programbench import gittree
from assize.benchmarks.programbench.engine import Engine
from assize.benchmarks.programbench.places import DEADLINE
from assize.benchmarks.programbench.workspace import AGENTS, GIT_S, IDENTITY, MAIN, USER
from assize.errors import InfrastructureError

KEEP_BYTES = 64 << 10

# Files come in byte by byte, whatever attributes they bring along, and under names that other systems would not have.
COMMIT = f"""set -eu
echo '* -text -eol -ident -filter -working-tree-encoding' >.git/info/attributes
tar -xf -
as_named="-c core.protectNTFS=false -c core.protectHFS=false"
git $as_named add -A -f
env {IDENTITY} git $as_named commit -q --allow-empty -m submission
git push -q origin HEAD:{MAIN}
"""

# Zombies, the container's first process and this shell are no survivors.
COUNT = """survivors=0
for process in /proc/[0-9]*; do
  read -r line <"$process/stat" 2>/dev/null || continue
  case ${process#/proc/} in 1 | $$) continue ;; esac
  case ${line##*) } in Z*) ;; *) survivors=$((survivors + 1)) ;; esac
done
# One of them is the container's own sleep.
echo "$((survivors - 1))"
"""


def commit_files(engine: Engine, container: str, files: dict[str, str], agent: str = "solver") -> dict:
    """Commit files to ``main``, in the container, as the agent: how the replay solver works.

    Raises
    ------
    Rejected : an unsafe path, one that is git's own, or too much. That is the candidate's failure.
    """
    files = check_file_map(files, gittree.BOUNDS)
    for name in files:
        if ".git" in name.lower().split("/"):
            raise Rejected(f"path {name!r} is git's own")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in sorted(files.items()):
            encoded = content.encode("utf-8", "surrogatepass")
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(encoded), 0o755 if encoded.startswith(b"#!") else 0o644
            tar.addfile(member, io.BytesIO(encoded))
    command = ["exec", "--interactive", *_in_checkout(container, agent, COMMIT)]
    engines.call(engine.name, *command, input=data.getvalue(), timeout=GIT_S)
    return {"files": sorted(files)}


def _in_checkout(container: str, agent: str, script: str) -> list[str]:
    """Arguments of the engine's exec: a script as the agents' user, in the checkout of one."""
    return ["--user", USER, "--workdir", f"{AGENTS}/{agent}", container, "bash", "-c", script]


def run_agent(engine: Engine, container: str, command: str, timeout_s: float, agent: str = "solver") -> dict:
    """Run an agent's command in its checkout, without a network; how it ended. What it pushed is judged in any case.

    At its time limit every process of the agent is ended.

    Raises
    ------
    InfrastructureError : the engine could not run it, or the container would end before the agent's time (or has).
    """
    from assize.sandbox.supervise import BoundedOutput

    _require_time(engine, container, timeout_s)
    arguments = [engine.name, "exec", *_in_checkout(container, agent, command)]
    begun, output = time.monotonic(), BoundedOutput()
    with subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        timed_out = not _drain(process, output, begun + timeout_s)
        if timed_out:
            process.kill()
            kill(engine, container)
    status = None if timed_out else process.returncode
    # 125 is the engine's own word, unless the command said it. A container that the agent ended is no failure of ours.
    if status == 125 and (not engine.exists(container) or (engine.runs(container) and not engine.works(container))):
        message = output.value()[-300:].decode("utf-8", "replace").strip()
        raise InfrastructureError("engine_failed", f"{engine.name} exec: {message}")
    return {
        "exit": status,
        "timed_out": timed_out,
        "seconds": round(time.monotonic() - begun, 3),
        "output_bytes": output.total,
        "output_tail": output.value()[-2000:].decode("utf-8", "replace"),
    }


def _require_time(engine: Engine, container: str, seconds: float) -> None:
    """InfrastructureError unless the container runs and has the seconds left: a late start is no agent's failure."""
    facts = json.loads(engine.call("inspect", container).stdout)[0]
    left = int(facts["Config"]["Labels"][DEADLINE]) - time.time()
    if not facts["State"]["Running"] or left < seconds:
        state = f"has {left:.0f} s left, {seconds:.0f} s are needed" if facts["State"]["Running"] else "has ended"
        message = f"the workspace's container {container[:19]} {state}"
        raise InfrastructureError("workspace_expired", message, "prepare the episode again")


def _drain(process: subprocess.Popen, output, deadline: float) -> bool:
    """Read a process's output to its end, keeping a bounded part; False where the deadline came first."""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if selector.select(left):
                data = os.read(process.stdout.fileno(), KEEP_BYTES)
                if not data:
                    try:
                        process.wait(max(0.1, deadline - time.monotonic()))
                    except subprocess.TimeoutExpired:
                        return False
                    return True
                output.add(data)
    return False


def count_survivors(engine: Engine, container: str) -> int:
    """Processes of the candidate that still live, before they are ended; 0 where the container has ended."""
    done = engine.call("exec", "--user", "root", container, "bash", "-c", COUNT, check=False)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else 0


def end(engine: Engine, container: str) -> int:
    """End every process of the candidate; how many had outlived its solver. The container's files stay."""
    survivors = count_survivors(engine, container)
    kill(engine, container)
    return survivors


def kill(engine: Engine, container: str) -> None:
    """End the container's first process: the kernel then ends all others of its PID namespace.

    Raises
    ------
    InfrastructureError : it still runs.
    """
    engine.call("kill", "--signal", "KILL", container, check=False)
    engine.call("wait", container, check=False)
    if engine.runs(container):
        raise InfrastructureError("candidate_alive", f"{engine.name}: container {container[:19]} cannot be ended")
