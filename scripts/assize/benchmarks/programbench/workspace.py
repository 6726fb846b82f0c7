"""The solver's side: a container without network, in which agents work on one shared repository.

    /reference                            the task's own /workspace, read-only: its executable and docs are the task
    /workspace/solution                   the seed repository, empty
    /workspace/.pi-study/shared.git       what counts: the commit of its main, and nothing else
    /workspace/.pi-study/agents/<name>    a checkout for each agent

Nothing of the evaluator is ever in there: no test, wheel, manifest, mount, credential or setting of this host. The
container lives from prepare to snapshot, on one node. Should both commands be killed, the container ends at its
deadline, and the next prepare on this node removes it, found by its labels.
"""

import json
import time
from collections.abc import Iterable
from contextlib import contextmanager

from assize.benchmarks.programbench.engine import Engine
from assize.benchmarks.programbench.places import Place, sweep
from assize.errors import InfrastructureError

USER = "agent"
SOLUTION = "/workspace/solution"
STUDY_FOLDER = "/workspace/.pi-study"
SHARED = f"{STUDY_FOLDER}/shared.git"
AGENTS = f"{STUDY_FOLDER}/agents"
MAIN = "main"

# Seconds that a step of git's in a workspace may take.
GIT_S = 300.0
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
