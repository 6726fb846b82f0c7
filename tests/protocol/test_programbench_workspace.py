"""The solver's side of ProgramBench on a real engine: what is laid out, what a candidate can reach, and what is frozen.

Needs podman and the local tasks of tests/images/.
"""

import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from assize.archive import Rejected, unpack
from assize.benchmarks.programbench import agents, freezing, places, workspace
from assize.benchmarks.programbench.engine import KIND, Engine
from assize.errors import InfrastructureError
from assize.records import write_record
from conftest import ROOT, copy_project, wait_for
from programbench_support import LINES, engine_or_skip, images, ordinary_store, submission, tasks

__all__ = ["ordinary_store", "tasks"]


@pytest.fixture
def engine() -> Engine:
    return Engine(engine_or_skip())


@pytest.fixture
def image(tasks) -> str:
    return images(tasks)[LINES]["id"]


@pytest.fixture
def place(request) -> places.Place:
    """An episode of this test's own."""
    return places.Place(f"test-{os.getpid()}", request.node.name)


def left(engine, place) -> list[str]:
    """The containers that carry an episode's labels."""
    study = f"label=assize.study={place.study}"
    listing = (
        "ps",
        "--all",
        "--quiet",
        "--no-trunc",
        "--filter",
        study,
        "--filter",
        f"label={KIND}={places.WORKSPACE}",
    )
    found = engine.call(*listing).stdout.split()
    return [id for id in found if labels_of(engine, id).get(places.EPISODE) == place.episode]


def labels_of(engine, container) -> dict:
    return json.loads(engine.call("inspect", "--format", "{{json .Config.Labels}}", container).stdout)


@pytest.fixture
def container(engine, image, place):
    """A prepared workspace; whatever a test leaves of it is removed."""
    yield workspace.prepare(engine, image, place, 600)
    places.sweep(engine, place)


@pytest.fixture
def agent(engine, container):
    """What a command of the agent prints, run in its checkout."""

    def run(command: str, check=True) -> str:
        ended = agents.run_agent(engine, container, command, 60)
        assert not check or ended["exit"] == 0, ended
        return ended["output_tail"]

    return run


@pytest.fixture
def frozen(engine, container, image):
    """Snapshot: (body, path -> content)."""

    def take(**options):
        body, archive = freezing.snapshot(engine, container, image, **options)
        return body, archive and contents(archive)

    return take


def contents(archive: bytes) -> dict:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {m.name: tar.extractfile(m).read() if m.isreg() else m.linkname for m in tar}


PUSH = "git add -A -f && git commit -q -m work && git push -q origin HEAD:main"


def test_the_reference_is_roots_and_can_be_run_but_neither_read_nor_changed(agent):
    assert agent("/reference/executable --version") == "lines 1.0\n"
    assert agent("stat -c '%U %G %a' /reference /reference/executable /reference/README.md") == (
        "root root 555\nroot root 111\nroot root 444\n"
    )
    for attempt in (
        "cat /reference/executable",
        "touch /reference/new",
        "rm /reference/README.md",
        "mv /reference/executable /tmp/x",
        "chmod u+w /reference",
        "echo x >>/reference/README.md",
        "mv /reference /elsewhere",
    ):
        assert agent(f"({attempt}) >/dev/null 2>&1 && echo worked || echo refused") == "refused\n", attempt
    assert agent("ls /workspace") == "solution\n"


def test_the_layout_is_what_prepared_json_says(agent):
    contract = workspace.contract(LINES)
    layout = contract["layout"]
    assert agent("pwd") == layout["agents"]["solver"] + "\n"
    assert agent("git remote get-url origin") == layout["shared_repository"] + "\n"
    assert agent(f"git -C {layout['shared_repository']} rev-parse --is-bare-repository") == "true\n"
    assert agent(f"git -C {layout['shared_repository']} symbolic-ref HEAD") == f"refs/heads/{layout['branch']}\n"
    for repository in (layout["seed_repository"], layout["agents"]["solver"]):
        assert agent(f"git -C {repository} ls-files; ls {repository}") == ""
        assert agent(f"git -C {repository} log --format=%s") == "seed\n"
    for path in ("/reference/executable", "compile.sh", "./executable", layout["shared_repository"]):
        assert path in contract["prompt"]
    assert agent("id -un") == "agent\n"


def test_each_agent_has_a_checkout_of_its_own(engine, image, place):
    container = workspace.prepare(engine, image, place, 600, agents=("one", "two"))
    try:
        first = agents.run_agent(engine, container, f"echo 1 >a; {PUSH}", 60, agent="one")
        second = agents.run_agent(engine, container, f"git pull -q; echo 2 >b; {PUSH}", 60, agent="two")
        assert (first["exit"], second["exit"]) == (0, 0), (first, second)
        _, archive = freezing.snapshot(engine, container, image)
        assert contents(archive) == {"a": b"1\n", "b": b"2\n"}
    finally:
        places.sweep(engine, place)


def test_there_is_no_network_no_mount_and_nothing_of_this_host(engine, image, place, monkeypatch):
    secrets = {"https_proxy": "http://user:password@proxy:1", "HF_TOKEN": "hf_secret", "DOCKER_HOST": "unix:///x"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    container = workspace.prepare(engine, image, place, 600)
    try:
        tell = (
            "env; ls /sys/class/net; cat /proc/self/mountinfo; find / -name '*.sock' -not -path '/proc/*' 2>/dev/null"
        )
        told = agents.run_agent(engine, container, f"({tell}) >/tmp/told; cat /tmp/told", 60)["output_tail"]
        everything = engine.call("exec", container, "cat", "/tmp/told").stdout
        for word in ("password", "hf_secret", "DOCKER_HOST", str(ROOT), "eth0", ".sock", "site-packages"):
            assert word not in everything, told
        assert json.loads(engine.call("inspect", container).stdout)[0]["Mounts"] == []
        reach = "(exec 3<>/dev/tcp/1.1.1.1/53) 2>/dev/null || echo closed"
        assert agents.run_agent(engine, container, reach, 30)["output_tail"] == "closed\n"
    finally:
        places.sweep(engine, place)


def test_a_variable_a_mount_and_a_network_that_a_site_adds_are_found():
    facts = {
        "Mounts": [{"Destination": "/run/secrets"}],
        "HostConfig": {"NetworkMode": "bridge"},
        "Config": {"Env": ["PATH=/bin", "container=podman", "LANG=C", "http_proxy=x"]},
    }
    assert workspace.outside_faults(facts, ["LANG=C.UTF-8"]) == [
        "mount /run/secrets",
        "network bridge",
        "variable http_proxy in its environment",
    ]
    clean = {"Mounts": None, "HostConfig": {"NetworkMode": "none"}, "Config": {"Env": ["PATH=/bin"]}}
    assert workspace.outside_faults(clean, []) == []


def test_a_site_that_injects_a_variable_stops_prepare_and_no_container_stays(
    engine, image, place, tmp_path, monkeypatch
):
    if engine.name != "podman":
        pytest.skip("containers.conf is podman's")
    own = Path(os.environ["CONTAINERS_CONF"]).read_text() if "CONTAINERS_CONF" in os.environ else "[containers]\n"
    (tmp_path / "containers.conf").write_text(own.replace("[containers]", '[containers]\nenv = ["SITE_TOKEN=1"]', 1))
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
    with pytest.raises(InfrastructureError, match="variable SITE_TOKEN in its environment"):
        workspace.prepare(engine, image, place, 600)
    assert left(engine, place) == []


def test_what_the_replay_solver_hands_in_is_what_is_frozen_byte_by_byte(
    engine, container, image, place, tasks, tmp_path
):
    files = submission(tasks, "correct", LINES) | {
        ".gitattributes": "* text=auto eol=crlf export-ignore\n*.c ident export-subst\n",
        ".gitignore": "*\n",
        "windows.txt": "a\r\nb\r\n",
        "x.c": "$Id$ $Format:%H$\n",
        "deep/er/ä ö.txt": "ü\n",
    }
    agents.commit_files(engine, container, files)
    body, archive = freezing.snapshot(engine, container, image)
    assert (body["status"], body["survivors"]) == ("frozen", 0)
    found = contents(archive)
    assert {name: data for name, data in found.items() if data} == {name: text.encode() for name, text in files.items()}
    unpack(archive, tmp_path / "out")
    assert left(engine, place) == []


def test_names_that_only_other_systems_take_for_gits_own_are_frozen(engine, container, image):
    files = {"git~1/x": "1\n", ".git./c": "2\n", ".git /d": "3\n", ".g\u200cit/e": "4\n"}
    agents.commit_files(engine, container, files)
    _, archive = freezing.snapshot(engine, container, image)
    assert {name: data for name, data in contents(archive).items() if data} == {
        name: text.encode() for name, text in files.items()
    }


def test_many_files_are_frozen(engine, agent, frozen):
    agent(f"mkdir -p a/b/c && for i in $(seq 1500); do echo $i >a/b/c/$i; done; {PUSH}")
    body, files = frozen()
    assert body["status"] == "frozen"
    assert files == {f"a/b/c/{i}": f"{i}\n".encode() for i in range(1, 1501)} | {"a": "", "a/b": "", "a/b/c": ""}


@pytest.mark.parametrize("name", ["../x", "/etc/x", ".git/config", "sub/.git/hooks/post-commit", "\ud800"])
def test_a_replayed_path_that_is_unsafe_or_gits_own_is_rejected(engine, container, name):
    with pytest.raises(Rejected, match="path"):
        agents.commit_files(engine, container, {name: "x"})


def test_only_what_is_committed_on_main_counts_and_the_same_commit_gives_the_same_bytes(
    engine, agent, container, image
):
    agent(f"echo 1 >in; {PUSH}; git checkout -q -b other; echo 2 >out; {PUSH.replace('main', 'other')}; echo 3 >loose")
    first, one = freezing.snapshot(engine, container, image, end=False)
    second, two = freezing.snapshot(engine, container, image)
    assert contents(one) == {"in": b"1\n"}
    assert (one, first["detail"]) == (two, second["detail"])


def test_a_noop_solver_hands_in_an_empty_tree(frozen):
    body, files = frozen()
    assert (body["status"], files) == ("frozen", {})


def test_survivors_are_counted_and_ended_and_no_container_is_left(engine, agent, frozen, place):
    agent("setsid sleep 4321 >/dev/null 2>&1 &")
    agent("(setsid bash -c 'trap \"\" TERM; sleep 4322; true' >/dev/null 2>&1 &); sleep 0.5")
    body, _ = frozen()
    assert body["survivors"] == 3
    assert left(engine, place) == []
    listed = subprocess.run(["ps", "-e", "-o", "args"], capture_output=True, text=True).stdout
    assert "sleep 4321" not in listed
    assert "sleep 4322" not in listed


def test_a_snapshot_in_between_leaves_the_agents_alone(engine, agent, container, image):
    agent("setsid sleep 4323 >/dev/null 2>&1 &")
    body, archive = freezing.snapshot(engine, container, image, end=False)
    assert (body["survivors"], contents(archive)) == (0, {})
    assert agents.count_survivors(engine, container) == 1


LATE = f"""echo 1 >a; {PUSH}
(setsid bash -c 'until [ -e /tmp/go ]; do sleep 0.1; done; echo 2 >late; {PUSH}' >/dev/null 2>&1 &)
sleep 0.5"""


@pytest.fixture
def episode(monkeypatch, tmp_path, engine, container, image, place):
    """An episode whose agent's command is LATE: (context, episode, its workspace's folder)."""
    from assize.benchmarks.programbench import episodes
    from assize.study import Episode, Study

    episode = Episode("programbench", "agent", LINES, 1)
    conditions = {"agent": {"solver": "command", "command": LATE, "timeout_s": 60}}
    study = Study({"name": "small", "benchmarks": {}, "conditions": conditions, "repeats": 1})
    study.root = tmp_path
    folder = study.episode_folder(episode) / "workspace"
    folder.mkdir(parents=True)
    note = {"container": container, "image": image, "engine": engine.name}
    (folder / episodes.CONTAINER).write_text(json.dumps(note))
    return SimpleNamespace(study=study, last_attempt=True), episode, folder


def test_what_outlives_the_solver_is_counted_and_dead_and_what_it_would_have_pushed_is_not_judged(
    engine, container, place, episode
):
    from assize.benchmarks.programbench import episodes

    context, whose, folder = episode
    body = episodes.solve(context, whose, folder)
    assert (body["status"], body["detail"]["agent"]["exit"], body["detail"]["survivors"]) == ("done", 0, 2)
    assert not engine.runs(container)
    engine.call("exec", container, "touch", "/tmp/go", check=False)
    time.sleep(3)
    record = {
        "schema": "assize.solved/1",
        "episode": whose.as_json(),
        "terms_digest": "0" * 64,
        "solver": "command",
        "reason": None,
        **body,
    }
    write_record(folder.parent / "solved.json", record)
    frozen, archive = episodes.snapshot(context, whose, folder)
    assert (frozen["status"], frozen["survivors"], contents(archive)) == ("frozen", 2, {"a": b"1\n"})
    assert left(engine, place) == []


HOSTILE = f"""
cd {workspace.SHARED}
for hook in hooks/pre-receive hooks/post-checkout hooks/reference-transaction; do
  printf '#!/bin/sh\\ntouch /tmp/pwned /reference/pwned\\n' >$hook; chmod +x $hook
done
git config core.fsmonitor 'touch /tmp/pwned'
git config core.sshCommand 'touch /tmp/pwned'
git config filter.evil.smudge 'touch /tmp/pwned'
git config uploadpack.packObjectsHook 'touch /tmp/pwned'
echo /etc >objects/info/alternates
printf '* filter=evil export-ignore\\n' >info/attributes
git config --global core.pager 'touch /tmp/pwned'
ln -s /etc/passwd objects/pack/pack-{"0" * 40}.pack
mkfifo refs/heads/pipe
"""


def test_hooks_configuration_attributes_alternates_and_links_do_nothing(agent, frozen):
    agent(f"echo 1 >a; {PUSH}")
    agent(HOSTILE)
    body, files = frozen()
    assert (body["status"], files) == ("frozen", {"a": b"1\n"})


@pytest.mark.parametrize(
    ("trick", "reason"),
    [
        (f"rm -rf {workspace.SHARED}", "the shared repository is gone"),
        (f"rm -rf {workspace.STUDY_FOLDER}", "the shared repository is gone"),
        (f"rm -rf {workspace.SHARED}; ln -s shared.git {workspace.SHARED}", "the shared repository is gone"),
        (
            f"head -c 99999 /dev/urandom >a; {PUSH}; cd {workspace.SHARED}; object=$(git rev-parse main:a);"
            " cd objects/${object:0:2}; file=${object:2}; chmod u+w $file;"
            " echo damaged | dd of=$file bs=1 seek=2000 conv=notrunc",
            "git cannot read the shared repository: .*",
        ),
        (f"rm -rf {workspace.SHARED}; echo x >{workspace.SHARED}", "no commit on main"),
        (f"git --git-dir={workspace.SHARED} update-ref -d refs/heads/main", "no commit on main"),
        (f"rm -rf {workspace.SHARED}; ln -s /etc {workspace.SHARED}", "no commit on main|is gone"),
        (f"rm -rf {workspace.SHARED}/objects/*", "missing or damaged"),
        (f"ln -s /etc/passwd link; {PUSH}", "leads out of the working directory"),
        (
            f"for i in 1 2 3; do mkdir -p $i; echo $i >$i/$i; done; {PUSH}; rm -rf {workspace.SHARED}/objects/??",
            "missing",
        ),
    ],
)
def test_a_repository_that_cannot_be_frozen_is_the_candidates_failure(agent, frozen, engine, place, trick, reason):
    import re

    agent(trick)
    body, files = frozen()
    assert (body["status"], files) == ("rejected", None)
    assert re.search(reason, body["reason"])
    assert left(engine, place) == []


def test_an_agent_that_ends_its_own_container_is_judged_by_what_it_had_pushed(agent, frozen):
    agent(f"echo 1 >a; {PUSH}")
    agent("kill -KILL -1", check=False)
    body, files = frozen()
    assert (body["status"], body["survivors"], files) == ("frozen", 0, {"a": b"1\n"})


def test_an_agent_that_runs_out_of_time_is_ended_and_what_it_had_pushed_counts(engine, container, frozen):
    command = f"echo 1 >a; {PUSH}; yes & sleep 600"
    ended = agents.run_agent(engine, container, command, 5)
    assert (ended["exit"], ended["timed_out"]) == (None, True)
    assert len(ended["output_tail"]) <= 2000
    assert 5 <= ended["seconds"] < 60
    body, files = frozen()
    assert (body["status"], files) == ("frozen", {"a": b"1\n"})


def test_an_agent_that_is_started_too_late_is_no_candidates_failure(engine, image, place):
    container = workspace.prepare(engine, image, place, 60)
    try:
        with pytest.raises(InfrastructureError, match="s left, 100 s are needed"):
            agents.run_agent(engine, container, "true", 100)
        assert agents.run_agent(engine, container, "true", 30)["exit"] == 0
        agents.kill(engine, container)
        with pytest.raises(InfrastructureError, match="has ended"):
            agents.run_agent(engine, container, "true", 1)
        with pytest.raises(InfrastructureError):
            agents.commit_files(engine, container, {"compile.sh": ""})
    finally:
        places.sweep(engine, place)


def test_a_container_that_is_gone_is_an_infrastructure_failure(engine, container, image):
    engine.remove(container)
    with pytest.raises(InfrastructureError, match="has no container"):
        freezing.snapshot(engine, container, image)


def test_a_snapshot_that_the_engine_failed_can_be_taken_again(engine, agent, container, image, place):
    agent(f"echo 1 >a; {PUSH}")
    with pytest.raises(InfrastructureError):
        freezing.snapshot(engine, container, "localhost/assize-never-built:1")
    assert left(engine, place) == [container]
    body, archive = freezing.snapshot(engine, container, image)
    assert (body["status"], contents(archive)) == ("frozen", {"a": b"1\n"})
    assert left(engine, place) == []


def test_an_image_that_is_missing_is_never_pulled(engine, place):
    with pytest.raises(InfrastructureError) as caught:
        workspace.prepare(engine, "localhost/assize-never-built:1", place, 600)
    assert "localhost/assize-never-built" in caught.value.message
    assert left(engine, place) == []


def test_an_image_without_an_agent_is_refused_and_no_container_stays(engine, place):
    from conftest import IMAGE

    with pytest.raises(InfrastructureError, match="agent"):
        workspace.prepare(engine, IMAGE, place, 600)
    assert left(engine, place) == []


def test_limits_are_asked_for_only_where_the_engine_shall_enforce_them_and_then_they_are_in_force(engine, image, place):
    container = workspace.prepare(engine, image, place, 600)
    host = json.loads(engine.call("inspect", container).stdout)[0]["HostConfig"]
    assert (host.get("NanoCpus", 0), host.get("CpuQuota", 0), host["Memory"]) == (0, 0, 0)
    asked = {"cpus": 1, "memory_mb": 512}
    try:
        container = workspace.prepare(engine, image, place, 600, engine_limits=asked)
    except InfrastructureError as error:
        # Rootless podman under cgroups version 1 ignores them: then prepare says so, and nothing stays.
        assert error.code in ("limits_not_enforced", "engine_failed")  # noqa: PT017
        assert left(engine, place) == []
    else:
        assert json.loads(engine.call("inspect", container).stdout)[0]["HostConfig"]["Memory"] == 512 << 20
    finally:
        places.sweep(engine, place)


def test_a_second_prepare_of_the_episode_replaces_the_first_and_leaves_its_neighbours(engine, image, place):
    neighbour = places.Place(place.study, place.episode + "-neighbour")
    try:
        other = workspace.prepare(engine, image, neighbour, 600)
        first = workspace.prepare(engine, image, place, 600)
        second = workspace.prepare(engine, image, place, 600)
        assert first != second
        assert left(engine, place) == [second]
        assert left(engine, neighbour) == [other]
    finally:
        places.sweep(engine, place)
        places.sweep(engine, neighbour)


def test_the_same_study_run_from_another_folder_is_left_alone(engine, image, place, tmp_path, monkeypatch):
    first = workspace.prepare(engine, image, place, 600)
    try:
        with monkeypatch.context() as elsewhere:
            elsewhere.chdir(tmp_path)
            second = workspace.prepare(engine, image, place, 600)
            assert set(left(engine, place)) == {first, second}
            places.sweep(engine, place)
        assert left(engine, place) == [first]
    finally:
        places.sweep(engine, place)


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from assize.benchmarks.programbench import agents, freezing, places, workspace
from assize.benchmarks.programbench.engine import Engine
engine, place = Engine(sys.argv[2]), places.Place(sys.argv[4], sys.argv[5])
container = workspace.prepare(engine, sys.argv[3], place, float(sys.argv[6]))
print(container, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_command_leaves_is_found_by_its_labels_once_its_time_is_over(engine, image, place):
    arguments = [ROOT / "scripts", engine.name, image, place.study, place.episode, "6"]
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True)
    container = done.stdout.strip()
    assert left(engine, place) == [container]
    facts = labels_of(engine, container)
    assert (facts["assize.node"], facts["assize.role"]) == (platform.node(), "solver")
    # Another episode's prepare leaves it alone, for its solver may be at work, until its deadline has passed.
    assert container not in places.sweep(engine, places.Place("other", "other")) or time.time() > int(
        facts["assize.deadline"]
    )
    wait_for(lambda: time.time() > int(facts["assize.deadline"]) + 1, seconds=30)
    places.sweep(engine)
    assert left(engine, place) == []


@pytest.mark.parametrize(
    ("labels", "ended", "abandoned"),
    [
        ({"assize.deadline": "50", "assize.job": ""}, False, True),
        ({"assize.deadline": "150", "assize.job": ""}, True, False),
        ({"assize.deadline": "150", "assize.job": "7"}, False, False),
        ({"assize.deadline": "150", "assize.job": "7"}, True, True),
        ({}, True, False),
    ],
)
def test_a_workspace_is_abandoned_past_its_deadline_or_when_its_job_has_ended(monkeypatch, labels, ended, abandoned):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert places.is_abandoned(labels, 100, lambda job: ended) is abandoned
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert places.is_abandoned({"assize.deadline": "150", "assize.job": "7"}, 100, lambda job: True) is False


@pytest.mark.parametrize(
    ("squeue", "ended"),
    [
        ("echo COMPLETED", True),
        ("echo RUNNING", False),
        ("echo COMPLETING", False),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", True),
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", False),
        (None, False),
    ],
)
def test_a_job_has_ended_only_where_slurm_says_so(tmp_path, monkeypatch, squeue, ended):
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin" if squeue else str(tmp_path))
    if squeue:
        (tmp_path / "squeue").write_text(f"#!/bin/sh\n{squeue}\n")
        (tmp_path / "squeue").chmod(0o755)
    assert places.job_ended("7") is ended


@pytest.fixture
def ordinary(engine, tasks, tmp_path_factory, ordinary_store):
    """What the cluster's ordinary user gets from a Python program, with the image in that user's own store."""
    user, home, settings = "assize", Path("/home/assize"), Path("/var/tmp/assize-cluster/env")
    if os.geteuid() != 0 or not settings.exists():
        pytest.skip("no ordinary user to start from here: tests/cluster/up makes one; run the tests as root")
    project = copy_project(home / f"assize-workspace-{os.getpid()}")
    subprocess.run(["chown", "-R", f"{user}:", project], check=True)

    def run(*command: str, **options) -> subprocess.CompletedProcess:
        script = f'. {settings}; cd {project}; exec "$@"'
        return subprocess.run(["runuser", "-u", user, "--", "bash", "-c", script, "bash", *command], cwd="/", **options)

    name = images(tasks)[LINES]["image"]
    there = run("podman", "image", "exists", name).returncode == 0
    if not there:
        archive = tmp_path_factory.mktemp("image") / "image.tar"
        engine.call("save", "--format", "oci-archive", "--output", str(archive), name, timeout=300)
        with open(archive, "rb") as data:
            run("podman", "load", stdin=data, check=True, capture_output=True)
        archive.unlink()
    yield lambda program, *arguments: run(
        *("/usr/bin/python3", "-c", program, name, *arguments), capture_output=True, text=True, env=os.environ
    )
    if not there:
        run("podman", "image", "rm", name, capture_output=True)
    shutil.rmtree(project)


ROOTLESS = """
import json, os, sys
sys.path.insert(0, "scripts")
from assize.benchmarks.programbench import agents, freezing, places, workspace
from assize.benchmarks.programbench.engine import Engine
engine, place = Engine("podman"), places.Place("test-rootless", sys.argv[2])
image = engine.image(sys.argv[1])["id"]
container = workspace.prepare(engine, image, place, 600)
attempt = "id -un; (cat /reference/executable || touch /reference/x) 2>/dev/null || echo closed"
look = agents.run_agent(engine, container, attempt, 60)
agents.commit_files(engine, container, {"compile.sh": "exit 1"})
body, archive = freezing.snapshot(engine, container, image)
print(json.dumps([os.geteuid(), look["output_tail"].splitlines(), body, len(archive), places.sweep(engine, place)]))
"""


def test_an_ordinary_user_has_the_same_on_rootless_podman(ordinary, place):
    done = ordinary(ROOTLESS, place.study)
    assert done.returncode == 0, done.stderr
    user, look, body, size, swept = json.loads(done.stdout)
    assert user != 0
    assert (look[0], look[-1]) == ("agent", "closed")
    assert (body["status"], body["survivors"], swept) == ("frozen", 0, [])
    assert size > 0
