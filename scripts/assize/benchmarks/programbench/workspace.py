"""The solver's side: a container without network, in which agents work on one shared repository.

    /reference                            the task's own /workspace, read-only: its executable and docs are the task
    /workspace/solution                   the seed repository, empty
    /workspace/.pi-study/shared.git       what counts: the commit of its main, and nothing else
    /workspace/.pi-study/agents/<name>    a checkout for each agent

Nothing of the evaluator is ever in there: no test, wheel, manifest, mount, credential or setting of this host. The
container lives from prepare to snapshot, on one node. Should both commands be killed, the container ends at its
deadline, and the next prepare on this node removes it, found by its labels.
"""

import io
import json
import os
import platform
import selectors
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass

from assize.archive import Bounds, Rejected, check_file_map
from assize.benchmarks.programbench import gittree
from assize.benchmarks.programbench.engine import KIND, NODE, STUDY, Engine
from assize.cli import log
from assize.errors import InfrastructureError

WORKSPACE = "programbench-workspace"
EPISODE, ROLE, DEADLINE, JOB = "assize.episode", "assize.role", "assize.deadline", "assize.job"
# Where the study runs: a copy of it elsewhere has episodes of the same names.
ROOT = "assize.root"

USER = "agent"
SOLUTION = "/workspace/solution"
STUDY_FOLDER = "/workspace/.pi-study"
SHARED = f"{STUDY_FOLDER}/shared.git"
AGENTS = f"{STUDY_FOLDER}/agents"
MAIN = "main"

GIT_S = 300.0
KEEP_BYTES = 64 << 10
# What an engine itself puts into a container's environment.
ENGINES_OWN = {"PATH", "HOME", "HOSTNAME", "TERM", "container"}
# One identity and one time: the same files become the same commit.
IDENTITY = " ".join(
    f"GIT_{who}_NAME={USER} GIT_{who}_EMAIL={USER}@localhost GIT_{who}_DATE=2000-01-01T00:00:00Z"
    for who in ("AUTHOR", "COMMITTER")
)

# Scripts keep to what every image has: bash, git before --initial-branch, and tools without long options.
MOVE_AWAY = """set -eu
cd /
[ -d /workspace ] && [ ! -e /reference ]
mv /workspace /reference
chown -hR 0:0 /reference
chmod -R a-w,u-s,g-s /reference
mkdir /workspace
chown "$(id -u agent):$(id -g agent)" /workspace
"""

LAY_OUT = f"""set -eu
cd /workspace
mkdir -p {AGENTS}
git init -q --bare {SHARED}
git init -q {SOLUTION}
for place in {SHARED} {SOLUTION}; do git -C "$place" symbolic-ref HEAD refs/heads/{MAIN}; done
git -C {SOLUTION} remote add origin {SHARED}
env {IDENTITY} git -C {SOLUTION} commit -q --allow-empty -m seed
git -C {SOLUTION} push -q --set-upstream origin {MAIN}
for name; do git clone -q {SHARED} {AGENTS}/"$name"; done
for place in {SOLUTION} {AGENTS}/*; do
  git -C "$place" config user.name {USER}
  git -C "$place" config user.email {USER}@localhost
done
"""

# What is looked at from inside, as the agent, before anyone works there: one line each. Routes and not devices are
# counted: some kernels put idle tunnels into every network namespace.
LOOK = """id -un
{ tail -n +2 /proc/net/route; grep -v ' lo$' /proc/net/ipv6_route; } 2>/dev/null | wc -l
touch /reference/probe 2>/dev/null || [ -w /reference ] || [ -w /reference/executable ] && echo yes || echo no
stat -c '%U %F' /reference/executable
groups=/sys/fs/cgroup
cat $groups/memory.max $groups/memory/memory.limit_in_bytes 2>/dev/null | head -n 1 | grep . || echo none
cat $groups/cpu.max 2>/dev/null || echo $(cat $groups/cpu/cpu.cfs_quota_us $groups/cpu/cpu.cfs_period_us 2>/dev/null)
"""

# Files come in byte by byte, whatever attributes they bring along.
COMMIT = f"""set -eu
echo '* -text -eol -ident -filter -working-tree-encoding' >.git/info/attributes
tar -xf -
git add -A -f
env {IDENTITY} git commit -q --allow-empty -m submission
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


@dataclass(frozen=True)
class Place:
    """Whose workspace a container is."""

    study: str
    episode: str

    def labels(self, deadline: float) -> dict[str, str]:
        job = os.environ.get("SLURM_JOB_ID", "")
        return {
            STUDY: self.study,
            EPISODE: self.episode,
            ROLE: "solver",
            KIND: WORKSPACE,
            NODE: platform.node(),
            DEADLINE: str(int(deadline)),
            JOB: job,
            ROOT: os.getcwd(),
        }


def prepare(
    engine: Engine,
    image: str,
    place: Place,
    lifetime_s: float,
    engine_limits: dict | None = None,
    agents: Iterable[str] = ("solver",),
) -> str:
    """Lay out a fresh workspace; the id of its container. An earlier one of the same episode is removed.

    Parameters
    ----------
    image : id of a local image; nothing is pulled.
    lifetime_s : seconds after which the container ends by itself.
    engine_limits : ``cpus`` and ``memory_mb`` for the engine to enforce, verified from inside; None asks for nothing.
    agents : a checkout for each of these names.

    Raises
    ------
    InfrastructureError : the engine failed, or what it made is not what was asked for. No container is left.
    """
    sweep(engine, place)
    command = [*("run", "--detach", "--init", "--pull", "never", "--network", "none", "--user", USER), "--workdir", "/"]
    command += ["--security-opt", "no-new-privileges", "--entrypoint", ""]
    if engine.name == "podman":
        # It would otherwise hand on this host's proxy settings, and with them their passwords.
        command += ["--http-proxy=false"]
    for key, value in place.labels(time.time() + lifetime_s).items():
        command += ["--label", f"{key}={value}"]
    if engine_limits:
        command += ["--cpus", str(engine_limits["cpus"]), "--memory", f"{engine_limits['memory_mb']}m"]
    with _labelled(engine, place):
        container = engine.call(*command, image, "sleep", str(int(lifetime_s))).stdout.strip().splitlines()[-1]
        _script(engine, container, MOVE_AWAY, user="root")
        _script(engine, container, LAY_OUT, arguments=agents)
        _check(engine, container, image, engine_limits)
    return container


@contextmanager
def _labelled(engine: Engine, place: Place):
    """Whatever goes wrong inside, no container of the place is left behind: it may exist though its id is unknown."""
    try:
        yield
    except BaseException:
        sweep(engine, place)
        raise


def _script(engine: Engine, container: str, script: str, user: str = USER, arguments: Iterable[str] = ()) -> str:
    done = engine.call("exec", "--user", user, container, "bash", "-c", script, "bash", *arguments, timeout=GIT_S)
    return done.stdout


def _check(engine: Engine, container: str, image: str, engine_limits: dict | None) -> None:
    """Look at the container from outside and from inside.

    Raises
    ------
    InfrastructureError : a mount, a network, a variable of the environment or a missing limit. A setting of the site
        (containers.conf, mounts.conf, docker's proxies) can add such things to every container.
    """
    from assize.sandbox.container import check_limits

    facts = json.loads(engine.call("inspect", container).stdout)[0]
    own = json.loads(engine.call("image", "inspect", image).stdout)[0]["Config"].get("Env") or []
    user, routes, writable, executable, memory, cpu = _script(engine, container, LOOK).splitlines()
    faults = outside_faults(facts, own)
    if (user, routes.strip(), writable) != (USER, "0", "no"):
        faults.append(f"inside: user {user}, {routes.strip()} routes, /reference writable: {writable}")
    if executable != "root regular file":
        faults.append(f"/reference/executable is {executable}: a regular file of root's is the specification")
    if faults:
        raise InfrastructureError(
            "bad_workspace", f"the solver's container: {'; '.join(faults)}", "mend the engine's settings"
        )
    check_limits(engine_limits, [memory, *cpu.split()])


def outside_faults(facts: dict, image_environment: list[str]) -> list[str]:
    """What ``inspect`` tells of a container that must not be there: mounts, a network, variables. Pure."""
    faults = [f"mount {mount.get('Destination')}" for mount in facts.get("Mounts") or ()]
    network = facts["HostConfig"].get("NetworkMode")
    if network != "none":
        faults.append(f"network {network}")
    known = {entry.partition("=")[0] for entry in image_environment} | ENGINES_OWN
    injected = sorted({entry.partition("=")[0] for entry in facts["Config"].get("Env") or ()} - known)
    return faults + [f"variable {name} in its environment" for name in injected]


def contract(instance: str, agents: Iterable[str] = ("solver",)) -> dict:
    """What ``prepared.json`` tells a solver: the task's prompt and the whole layout. Pure."""
    layout = {
        "user": USER,
        "network": "none",
        "reference": "/reference",
        "reference_executable": "/reference/executable",
        "seed_repository": SOLUTION,
        "shared_repository": SHARED,
        "branch": MAIN,
        "agents": {name: f"{AGENTS}/{name}" for name in agents},
        "snapshot": f"the tree of the commit that {MAIN} of the shared repository names; nothing else is judged",
        "build": {"script": "compile.sh", "directory": "/workspace", "makes": "./executable", "network": "none"},
    }
    return {"instance": instance, "prompt": PROMPT, "layout": layout}


PROMPT = f"""\
Rebuild a command-line program from its behaviour alone.

The program is /reference/executable. You may run it as often as you like; you cannot read it. Whatever else lies in
/reference is its documentation. Together they are the specification: find out by experiment what they leave open,
errors, exit statuses and exact output included.

Write source code that builds a program with the same behaviour, in any language whose tools are installed here. There
is no network, neither here nor where your work is judged.

Work in your checkout below {AGENTS}/ and hand in by pushing to the branch {MAIN} of {SHARED}
(the checkout's origin). Only what is committed there counts.

At the top of the repository there must be a script compile.sh. It is run as ./compile.sh in a fresh copy of your
committed files at /workspace, and must leave the program there as ./executable. A file ./executable that you commit is
removed first, and so are copies of the reference: what is not built from source does not count. The program is then
judged by tests that you do not see.
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
    _stream(engine, ["exec", "--interactive", *_in_checkout(container, agent, COMMIT)], data.getvalue())
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
    if status == 125 and (
        not _exists(engine, container) or (_runs(engine, container) and not _works(engine, container))
    ):
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
        without one, ``remove`` it.
    """
    if not _exists(engine, container):
        raise InfrastructureError("container_gone", f"{engine.name} has no container {container[:19]}", "prepare again")
    body = {"status": "frozen", "survivors": 0, "detail": {}}
    if end:
        body["survivors"] = count_survivors(engine, container)
        kill(engine, container)
    try:
        repository = gittree.take_over(_copy_out(engine, container, bounds), bounds)
        body["detail"] = {"commit": repository.commit}
        with _reader(engine, container, image) as reader:
            archive = _freeze(engine, reader, repository, bounds)
    except Rejected as reason:
        body, archive = body | {"status": "rejected", "reason": str(reason)}, None
    if end:
        remove(engine, container)
    return body, archive


def count_survivors(engine: Engine, container: str) -> int:
    """Processes of the candidate that still live, before they are ended; 0 where the container has ended."""
    done = engine.call("exec", "--user", "root", container, "bash", "-c", COUNT, check=False)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else 0


def kill(engine: Engine, container: str) -> None:
    """End the container's first process: the kernel then ends all others of its PID namespace.

    Raises
    ------
    InfrastructureError : it still runs.
    """
    engine.call("kill", "--signal", "KILL", container, check=False)
    engine.call("wait", container, check=False)
    if _runs(engine, container):
        raise InfrastructureError("candidate_alive", f"{engine.name}: container {container[:19]} cannot be ended")


def _runs(engine: Engine, container: str) -> bool:
    return json.loads(engine.call("inspect", container).stdout)[0]["State"]["Running"]


def _works(engine: Engine, container: str) -> bool:
    return engine.call("exec", container, "true", check=False).returncode == 0


def _exists(engine: Engine, container: str) -> bool:
    return engine.call("inspect", "--format", "{{.Id}}", container, check=False).returncode == 0


def _copy_out(engine: Engine, container: str, bounds: Bounds) -> bytes:
    """The shared repository's folder as a tar; Rejected where there is none, or it is too large."""
    most = 2 * bounds.bytes + (16 << 20)
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [engine.name, "cp", f"{container}:{SHARED}", "-"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
        _killed_after(process, GIT_S),
    ):
        data = process.stdout.read(most + 1)
        if len(data) > most:
            process.kill()
            raise Rejected(f"the shared repository has more than {most} bytes")
        if process.wait() == 0:
            return data
        errors.seek(0)
        message = errors.read(500).decode(errors="replace").strip()
    # The candidate may have removed it; then the engine still hands out what is the image's own.
    if engine.call("cp", f"{container}:/etc/passwd", "-", check=False).returncode == 0:
        raise Rejected("the shared repository is gone")
    raise InfrastructureError("engine_failed", f"{engine.name} cp: {message}")


@contextmanager
def _killed_after(process: subprocess.Popen, seconds: float):
    from threading import Timer

    timer = Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _reader(engine: Engine, container: str, image: str):
    """A fresh container of the image, to run git in. It has the labels of the workspace's, and so is swept like it."""
    facts = json.loads(engine.call("inspect", container).stdout)[0]["Config"]["Labels"]
    command = ["run", "--detach", "--init", "--pull", "never", "--network", "none", "--user", USER, "--workdir", "/tmp"]
    command += ["--security-opt", "no-new-privileges", "--entrypoint", ""]
    labels = facts | {ROLE: "reader", DEADLINE: str(int(time.time() + 4 * GIT_S))}
    for key in (STUDY, EPISODE, ROLE, KIND, NODE, DEADLINE, JOB, ROOT):
        command += ["--label", f"{key}={labels.get(key, '')}"]
    reader = engine.call(*command, image, "sleep", str(int(4 * GIT_S))).stdout.strip().splitlines()[-1]
    try:
        yield reader
    finally:
        remove(engine, reader)


def _freeze(engine: Engine, reader: str, repository: gittree.Repository, bounds: Bounds) -> bytes:
    inside = ["exec", "--interactive", "--user", USER, "--workdir", "/tmp", reader]
    _stream(engine, [*inside, "bash", "-c", "mkdir repository && tar -xf - -C repository"], repository.tar)
    git = [engine.name, *inside, "git", "--git-dir=/tmp/repository", "cat-file", "--batch"]
    with (
        subprocess.Popen(git, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process,
        _killed_after(process, GIT_S),
    ):

        def read(name: str) -> tuple[str, bytes]:
            process.stdin.write(f"{name}\n".encode())
            process.stdin.flush()
            return gittree.read_object(process.stdout, name, bounds.bytes)

        try:
            return gittree.archive(repository.commit, read, bounds)
        except (EOFError, BrokenPipeError) as error:
            process.kill()
            # A healthy git that ends early was ended by what it read.
            if engine.call("exec", reader, "git", "--version", check=False).returncode == 0:
                raise Rejected(f"git cannot read the shared repository ({error})") from None
            raise InfrastructureError("engine_failed", f"{engine.name} exec: git cat-file: {error}") from None
        finally:
            process.kill()


def _stream(engine: Engine, command: list[str], data: bytes) -> None:
    try:
        done = subprocess.run([engine.name, *command], input=data, capture_output=True, timeout=GIT_S)
    except subprocess.TimeoutExpired:
        raise InfrastructureError("engine_hangs", f"{engine.name} {command[0]}: no answer in {GIT_S:g} s") from None
    if done.returncode:
        message = (done.stderr + done.stdout).decode(errors="replace").strip()[-500:]
        raise InfrastructureError("engine_failed", f"{engine.name} {command[0]}: {message}")


def remove(engine: Engine, container: str) -> None:
    """Remove a container, whatever its state."""
    engine.call("rm", "--force", "--volumes", container, check=False)


def sweep(engine: Engine, place: Place | None = None) -> list[str]:
    """Remove workspaces that nobody will come back to: of ``place``, past their deadline, or of a Slurm job that ended.

    Returns
    -------
    The containers that were removed.
    """
    mine = ("--filter", f"label={KIND}={WORKSPACE}")
    removed = []
    for container in engine.call("ps", "--all", "--quiet", "--no-trunc", *mine).stdout.split():
        done = engine.call("inspect", "--format", "{{json .Config.Labels}}", container, check=False)
        if done.returncode:
            continue
        labels = json.loads(done.stdout)
        whose = (labels.get(STUDY), labels.get(EPISODE), labels.get(ROOT))
        same = place is not None and whose == (place.study, place.episode, os.getcwd())
        if labels.get(NODE) == platform.node() and (same or is_abandoned(labels, time.time(), job_ended)):
            remove(engine, container)
            removed.append(container)
            log(f"swept: workspace {container[:19]} of study {labels.get(STUDY)}, episode {labels.get(EPISODE)}")
    return removed


def is_abandoned(labels: dict[str, str], now: float, ended) -> bool:
    """Whether a workspace is past its deadline, or its Slurm job has ended (``ended(job)``). Pure, but for that."""
    deadline, job = labels.get(DEADLINE, ""), labels.get(JOB, "")
    if deadline.isdigit() and now > int(deadline):
        return True
    return bool(job) and job != os.environ.get("SLURM_JOB_ID") and ended(job)


def job_ended(job: str) -> bool:
    """Whether Slurm says that a job has ended. Where it says nothing the job counts as running."""
    try:
        done = subprocess.run(
            ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"],
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    if done.returncode:
        return "Invalid job id" in done.stderr
    alive = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"}
    return not alive & set(done.stdout.split())
