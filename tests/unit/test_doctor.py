"""The doctor's decisions, each for what is there and for what is missing; its probes, asked of this machine."""

import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from assize import doctor
from assize.benchmarks import load_benchmark
from assize.doctor import Answer, Needs, cluster, installation, node, remote
from assize.profile import read_profile
from assize.study import load_config, resolve, staged_path
from conftest import ROOT

NEEDS = Needs("submitit", "slurm", 16, 30720, 35, frozenset(["bubblewrap"]), None, (), {})
LOCAL = read_profile(ROOT / "profiles" / "local")
REFUSED = Answer(None, "sbatch: allocation failure: Invalid partition name specified")


def says(finding, status, *words):
    assert finding.status == status, finding
    told = f"{finding.found} {finding.remedy}"
    assert all(word in told for word in words), finding
    assert finding.remedy or status != "missing"
    return True


# ------------------------------------------------------------ the study's needs


def test_a_study_says_what_it_needs():
    profile = read_profile(ROOT / "profiles" / "slurm")
    frozen = resolve(load_config(ROOT / "config/study.yaml"), "study.yaml", profile.resource_mode)
    needs = doctor.needs_of(replace(profile, site={"partition": "short", "lost-after": 60}), frozen)
    assert (needs.executor, needs.resource_mode, needs.cpus, needs.memory_mb) == ("submitit", "slurm", 16, 30720)
    assert (needs.lanes, needs.container, needs.slurm) == ({"bubblewrap"}, False, True)
    assert needs.settings == {"partition": "short", "lost_after": 60}
    # 24 grades of the default study, each of a minute or more, in groups of up to 25.
    assert (needs.group_minutes, needs.jobs) == (24 * needs.minutes, 100)
    assert needs.profile.endswith("profiles/slurm/config.yaml")
    many = replace(profile, content={"group-components": {"grade": 5}})
    assert doctor.needs_of(many, frozen).group_minutes == 5 * needs.minutes


def test_without_slurm_none_is_needed():
    assert not replace(NEEDS, executor="local", resource_mode="none").slurm
    assert not replace(NEEDS, resource_mode="none", settings={"cluster": "local"}).slurm
    # The whole study inside one allocation.
    assert replace(NEEDS, executor="local").slurm


# ------------------------------------------------------------ the installation


def test_python():
    assert says(installation.decide_python((3, 11, 7), "/x"), "ok", "3.11.7")
    assert says(installation.decide_python((3, 9, 2), "/x"), "missing", "older than 3.11", "PYTHON=")


LOCK = """\
jsonschema==4.25.1 \\
    --hash=sha256:aa
PyYAML==6.0.3 \\
    --hash=sha256:bb
pyreadline3==3.5.6 ; sys_platform == 'win32' \\
    --hash=sha256:cc
"""


def test_packages_are_those_of_the_lock():
    pins = installation.read_pins(LOCK)
    assert pins == [
        ("jsonschema", "4.25.1", ""),
        ("pyyaml", "6.0.3", ""),
        ("pyreadline3", "3.5.6", "sys_platform == 'win32'"),
    ]
    there = {"jsonschema": "4.25.1", "pyyaml": "6.0.3"}
    decide = installation.decide_packages
    assert says(decide(pins, there, installation.applies_here), "ok", "2 as locked")
    assert says(
        decide(pins, there | {"pyyaml": "6.0.1"}, installation.applies_here), "missing", "pyyaml 6.0.1 is not 6.0.3"
    )
    assert says(
        decide(pins, {"pyyaml": "6.0.3"}, installation.applies_here), "missing", "jsonschema 4.25.1 is not installed"
    )
    assert says(decide(pins, {}, None), "missing", "not installed", "make setup")


def test_this_environment_is_as_locked():
    python, packages = installation.check_environment()
    assert (python.status, packages.status) == ("ok", "ok"), packages
    assert len(installation.read_pins(installation.LOCK.read_text())) == installation.LOCK.read_text().count(
        "==", 0
    ) - (installation.LOCK.read_text().count(" == "))


def test_an_old_python_gets_as_far_as_the_finding_that_it_is_old(monkeypatch):
    """What the doctor imports before it has looked is read by Python 3.7, and asks for no module of a later one."""
    import ast

    files, seen = [ROOT / "scripts" / "doctor.py"], set()
    while files:
        path = files.pop()
        if path in seen:
            continue
        seen.add(path)
        tree = ast.parse(path.read_text(), feature_version=(3, 7))
        future = any(isinstance(one, ast.ImportFrom) and one.module == "__future__" for one in tree.body)
        assert future or not any(annotations_of(one) for one in ast.walk(tree)), f"{path}: annotations are evaluated"
        for one in tree.body:
            names = [alias.name for alias in one.names] if isinstance(one, ast.Import | ast.ImportFrom) else []
            if isinstance(one, ast.ImportFrom):
                names = [one.module, *(f"{one.module}.{name}" for name in names)]
            assert not {"importlib.metadata", "zoneinfo", "tomllib", "graphlib"} & set(names), path
            for name in names:
                place = ROOT / "scripts" / name.replace(".", "/")
                files += [file for file in (place / "__init__.py", place.with_suffix(".py")) if file.is_file()]
    assert {path.name for path in seen} >= {"doctor.py", "cli.py", "errors.py", "__init__.py", "installation.py"}

    monkeypatch.setattr(sys, "version_info", (3, 7, 4, "final", 0))
    python, packages = installation.check_environment()
    assert says(python, "missing", "older than 3.11", "PYTHON=")
    assert packages.status == "missing"


def annotations_of(one) -> list:
    """The annotation of a function's result, of an argument or of a variable, if it has one."""
    found = getattr(one, "returns", None) or getattr(one, "annotation", None)
    return [found] if found else []
    return []


def test_a_bare_python_is_told_to_set_up():
    """Even one without the packages gets its line: nothing else is imported before."""
    done = subprocess.run([sys.executable, "-S", ROOT / "scripts/doctor.py"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 3, done.stderr
    assert "make setup" in done.stdout


def test_the_executor_and_its_settings():
    executor, settings = installation.check_profile(replace(NEEDS, settings={"partition": "short"}), "p")
    assert says(executor, "ok", "submitit")
    assert says(settings, "ok", "submitit-partition short")
    _, settings = installation.check_profile(replace(NEEDS, settings={"partitions": "short"}), "profiles/x")
    assert says(settings, "missing", "profiles/x", "submitit-partitions", "submitit-scratch")
    (executor,) = installation.check_profile(replace(NEEDS, executor="absent"), "profiles/x")
    assert says(executor, "missing", "no executor absent")


def test_a_profile_of_another_allocation_is_told():
    profile = read_profile(ROOT / "profiles" / "slurm")
    frozen = resolve(load_config(ROOT / "config/study.yaml"), "study.yaml", profile.resource_mode)
    assert installation.check_cores(frozen, 16) == []
    (finding,) = installation.check_cores(frozen, 32)
    assert says(finding, "missing", "cores: 32", "16 CPUs", "set cores: 16")


def test_datasets_are_staged_or_can_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    unreachable = {"url": "http://127.0.0.1:9/problems"}
    here = {"file": str(tmp_path / "problems")}
    declaration = {"filename": "problems.jsonl", "sha256": "a" * 64, "size": 3, "sources": [unreachable, here]}
    frozen = {"datasets": {"problems": declaration}}
    (finding,) = installation.check_datasets(frozen)
    assert says(finding, "missing", "problems is not staged", "127.0.0.1", "No such file", "stage.py get")
    (tmp_path / "problems").write_text("abc")
    (finding,) = installation.check_datasets(frozen)
    assert says(finding, "ok", f"will be staged from file {tmp_path}/problems")
    place = tmp_path / staged_path(declaration)
    place.parent.mkdir(parents=True)
    place.write_text("abc")
    (tmp_path / "problems").unlink()
    (finding,) = installation.check_datasets(frozen)
    assert says(finding, "ok", "problems is staged")


# ------------------------------------------------------------ the cluster; literal output of Slurm 22.05

PARTITIONS = cluster.parse_partitions("spare|up|1-00:00:00\nmain*|up|1-00:00:00\nshort|up|30:00\nold|inact|infinite\n")
NODES = cluster.parse_nodes(
    "main*|n1|idle|16|31744\nmain*|n2|down*|16|31744\nspare|n3|drng|64+|257000+\nshort|n1|mix|16|31744\n"
)


def test_slurm_answers_or_not():
    assert says(cluster.decide_slurm(Answer("Slurmctld(primary) at vm is UP\n")), "ok", "UP")
    assert says(cluster.decide_slurm(Answer("Slurmctld(primary) at vm is DOWN\n")), "missing", "DOWN")
    assert says(cluster.decide_slurm(Answer(None, "scontrol: not found")), "missing", "not found", "profiles/local")


def test_partitions_are_read():
    assert PARTITIONS["main"] == (True, True, 1440)
    assert PARTITIONS["short"] == (False, True, 30)
    assert PARTITIONS["old"] == (False, False, None)
    assert NODES[2] == ("spare", "n3", "drng", 64, 257000)


def test_the_partition_exists_takes_jobs_and_lets_them_run():
    decide = cluster.decide_partition
    assert says(decide(None, PARTITIONS, 35), "ok", "main (1440 minutes)")
    assert says(decide("main,spare", PARTITIONS, 35), "ok", "spare")
    assert says(decide("gpu", PARTITIONS, 35), "missing", "no gpu", "main", "submitit-partition")
    assert says(decide("short", PARTITIONS, 35), "missing", "after 30 minutes", "35")
    assert says(decide("old", PARTITIONS, 35), "missing", "takes no jobs")
    assert says(decide(None, {"a": (False, True, None)}, 35), "missing", "no default", "there are a")


def test_a_node_can_hold_the_allocation():
    decide = cluster.decide_allocation
    assert says(decide(None, PARTITIONS, NODES, NEEDS), "ok", "1 of 2 node(s)")
    assert says(decide("spare", PARTITIONS, NODES, NEEDS), "missing", "out of service", "drng")
    large = replace(NEEDS, cpus=64)
    assert says(decide("main", PARTITIONS, NODES, large), "missing", "64 CPUs", "the largest has 16 and 31744")
    assert says(decide("main", PARTITIONS, NODES, replace(NEEDS, memory_mb=40000)), "missing", "40000 MiB")


def test_an_account_is_one_of_the_users():
    shown = Answer("lab|normal,long\nother|normal\n")
    assert says(cluster.decide_association("account", "lab", shown), "ok", "lab")
    assert says(cluster.decide_association("account", "lob", shown), "missing", "lob is none of yours: lab, other")
    assert says(cluster.decide_association("qos", "long", shown), "ok")
    assert says(cluster.decide_association("qos", "urgent", shown), "missing", "long, normal", "submitit-qos")
    off = Answer(None, "sacctmgr: You are not running a supported accounting_storage plugin")
    assert says(cluster.decide_association("account", "lab", off), "absent", "could not be looked up")


def test_slurm_checks_a_grades_job_itself():
    settings = {"partition": "main", "account": "lab", "extra": "--nice=10 --gres gpu:1"}
    command = cluster.submission(replace(NEEDS, settings=settings), 35)
    asked = ["--cpus-per-task=16", "--mem=30720M", "--time=35", "--partition=main", "--account=lab"]
    assert command == ["sbatch", "--test-only", *asked, "--nice=10", "--gres", "gpu:1", "--wrap", "true"]
    taken = "sbatch: Job 48 to start at 2026-11-30T19:14:53 using 16 processors on nodes vm in partition main\n"
    decide = cluster.decide_submission
    assert says(decide(Answer(taken), None, 35, "site"), "ok", "2026-11-30T19:14:53")
    assert says(decide(Answer(taken), Answer(taken), 840, "site"), "ok", "a group's of 840 minutes too")
    assert says(decide(REFUSED, None, 35, "site/config.yaml"), "missing", "Invalid partition name", "site/config.yaml")
    long = Answer(None, "sbatch: error: QOSMaxWallDurationPerJobLimit")
    assert says(decide(Answer(taken), long, 840, "site"), "missing", "840 minutes", "QOSMaxWall", "group-components")


def test_a_group_asks_for_the_sum_of_its_grades_to_the_partitions_limit():
    assert cluster.group_minutes(replace(NEEDS, group_minutes=840), PARTITIONS) == 840
    assert cluster.group_minutes(replace(NEEDS, group_minutes=9000), PARTITIONS) == 1440
    short = {"partition": "main,short"}
    assert cluster.group_minutes(replace(NEEDS, group_minutes=840, settings=short), PARTITIONS) == 30


def test_slurm_takes_as_many_jobs_as_the_profile_submits_at_once():
    config, shown = (
        Answer("MailProg = /bin/mail\nMaxArraySize            = 1001\n"),
        Answer("lab|normal|\nb|normal|50\n"),
    )
    needs = replace(NEEDS, jobs=100, settings={"account": "lab"})
    assert says(cluster.decide_queue(needs, config, shown), "ok", "100 jobs")
    assert says(cluster.decide_queue(needs, Answer(None), Answer(None)), "ok")
    small = Answer("MaxArraySize            = 64\n")
    assert says(cluster.decide_queue(needs, small, shown), "absent", "MaxArraySize is 64", needs.profile)
    other = replace(needs, settings={"account": "b"})
    assert says(cluster.decide_queue(other, config, shown), "absent", "MaxSubmitJobs is 50")
    assert says(cluster.decide_queue(replace(needs, settings={}), config, shown), "absent", "MaxSubmitJobs is 50")


def test_accounting_is_no_need():
    assert says(cluster.decide_accounting(Answer("")), "ok")
    off = Answer(None, "sacct: Slurm accounting storage is disabled")
    assert says(cluster.decide_accounting(off), "absent", "disabled", "squeue")


# ------------------------------------------------------------ the node


def test_a_sandbox_starts_here():
    milliseconds, why = node.probe_bubblewrap()
    assert milliseconds is not None, why
    assert says(node.decide_sandbox(True, milliseconds, why, {}), "ok", "bubblewrap starts")


def test_without_user_namespaces_the_switch_is_named():
    sysctls = {"user.max_user_namespaces": "0", "kernel.apparmor_restrict_unprivileged_userns": "1"}
    finding = node.decide_sandbox(True, None, "bwrap: No permissions", sysctls)
    assert says(
        finding, "missing", "No permissions", "user.max_user_namespaces=0", "apparmor_restrict_unprivileged_userns=1"
    )
    open_ = {"user.max_user_namespaces": "9000", "kernel.apparmor_restrict_unprivileged_userns": "0"}
    assert "=" not in node.decide_sandbox(True, None, "bwrap: failed", open_).remedy
    assert says(node.decide_sandbox(False, None, "bwrap: failed", {}), "absent", "bwrap: failed")


MOUNTS = """\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:40 / /home rw,relatime shared:9 - nfs4 filer:/home rw,vers=4.2
31 22 0:41 / /tmp rw,nosuid,noexec - tmpfs tmpfs rw,size=1g
32 22 0:42 / /scratch\\040disk rw - xfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/home/ada/results", "nfs4"), ("/homes", "ext4"), ("/tmp", "tmpfs"), ("/scratch disk/x", "xfs"), ("/", "ext4")],
)
def test_the_file_system_of_a_path(path, kind):
    assert node.file_system(path, MOUNTS) == kind


def test_scratch_has_room_and_starts_programs():
    decide = node.decide_scratch
    assert says(decide("/scratch", True, 90000, True, "xfs"), "ok", "87 GiB", "on this node")
    assert says(decide("/scratch", True, 90000, True, "nfs4"), "ok", "shared over the network")
    assert says(decide("/scratch", None, 0, False, ""), "missing", "no directory", "submitit-scratch")
    assert says(decide("/tmp", True, 90000, False, "tmpfs"), "missing", "noexec", "submitit-scratch")
    assert says(decide("/tmp", True, 900, True, "tmpfs"), "missing", "900 MiB free")


def test_scratch_of_this_machine(tmp_path, monkeypatch):
    assert node.can_execute(str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    assert says(node.check_scratch(), "missing", "missing: no directory")


def test_a_home_that_jobs_cannot_write_to_is_found(tmp_path, monkeypatch):
    """As on nodes that lack the home directory: Snakemake would end there before the first job."""
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "file" / "ada"))
    assert says(node.check_home(), "missing", "/file/ada/.cache", "submitit-modules: export XDG_CACHE_HOME=")
    snakefile = tmp_path / "Snakefile"
    snakefile.write_text("rule all:\n    shell: 'true'\n")
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--profile", "none", "--snakefile", snakefile]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode != 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert says(node.check_home(), "ok", "/cache/snakemake")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_results_rename_and_lock(tmp_path):
    (tmp_path / "a").mkdir()
    assert node.can_rename(tmp_path / "a")
    assert node.can_lock(tmp_path)
    assert says(node.decide_results("/r", 90000, True, True, "nfs4"), "ok", "shared over the network")
    assert says(node.decide_results("/r", 90000, False, True, "nfs4"), "missing", "at once")
    assert says(node.decide_results("/r", 90000, True, False, "lustre"), "missing", "locks do not exclude")
    assert says(node.decide_results("/r", 9, True, True, "ext4"), "missing", "9 MiB free")


def test_results_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "results").write_text("")
    monkeypatch.chdir(tmp_path)
    assert says(node.check_results(), "missing", "results")
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


# Of podman 4.3.1, rootless on cgroups version 1; and of one that can limit.
PODMAN = {
    "host": {"cgroupVersion": "v1", "cgroupControllers": [], "security": {"rootless": True}},
    "store": {"graphRoot": "/home/assize/.local/share/containers/storage"},
    "version": {"Version": "4.3.1"},
}
DOCKER = {
    "ServerVersion": "27.1.1",
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"],
    "CgroupVersion": "2",
    "CpuCfsQuota": True,
    "MemoryLimit": True,
    "PidsLimit": False,
    "DockerRootDir": "/home/ada/.local/share/docker",
}


def test_an_engine_says_what_it_can_limit():
    finding = node.decide_engine(True, "podman", node.read_podman(PODMAN), "")
    assert says(finding, "ok", "podman 4.3.1, rootless, cgroups version 1, can limit nothing", ".local/share")
    PODMAN["host"] |= {"cgroupVersion": "v2", "cgroupControllers": ["cpu", "io", "memory", "pids"]}
    assert says(node.decide_engine(True, "podman", node.read_podman(PODMAN), ""), "ok", "can limit cpu, memory, pids")
    assert says(
        node.decide_engine(True, "docker", node.read_docker(DOCKER), ""), "ok", "rootless", "can limit cpu, memory;"
    )
    daemon = DOCKER | {"SecurityOptions": None}
    assert says(node.decide_engine(True, "docker", node.read_docker(daemon), ""), "ok", "not rootless")


def test_an_engine_that_is_missing():
    assert says(node.decide_engine(True, "podman", None, ""), "missing", "podman is not installed")
    assert says(node.decide_engine(True, "docker", None, "docker: cannot connect"), "missing", "cannot connect")
    assert says(node.decide_engine(False, "podman or docker", None, ""), "absent", "uses no containers")


def test_subordinate_ids_of_getsubids_or_of_the_file(tmp_path):
    file = tmp_path / "subuid"
    file.write_text("ada:100000:65536\n1001:200000:1000\nbob:300000:65536\n")
    assert node.count_ids("ada", 1000, Answer(None), file) == 65536
    assert node.count_ids("eve", 1001, Answer(None), file) == 1000
    assert node.count_ids("eve", 1002, Answer(None), tmp_path / "none") == 0
    assert node.count_ids("eve", 1002, Answer("0: eve 100000 65536\n1: eve 500000 10\n"), file) == 65546
    assert says(node.decide_ids("subuid", 65536), "ok", "65536")
    assert says(node.decide_ids("subgid", 0), "missing", "0 ids", "/etc/subgid")


def test_the_runtime_directory_is_of_this_machine():
    assert says(node.decide_runtime_directory("/run/user/1000", True), "ok")
    assert says(node.decide_runtime_directory(None, False), "ok", "of its own")
    assert says(
        node.decide_runtime_directory("/run/user/1000", False), "missing", "no directory", "unset XDG_RUNTIME_DIR"
    )


def test_images_are_here_or_not():
    there, gone = Answer("8bd732b4ec3f00aa\n"), Answer(None, "no such image")
    assert says(node.decide_images("podman", {"a:b": there, "c": there}), "ok", "2 of 2", "a:b 8bd732b4ec3f")
    some = {"a:b": there} | {f"{name}:1": gone for name in "cdefg"}
    assert says(node.decide_images("podman", some), "missing", "1 of 6", "c:1, d:1, e:1 and 2 more", "podman load")


def test_limits_of_the_engine_are_needed_in_one_mode():
    assert says(node.decide_limits(NEEDS, True, "2 CPUs"), "ok", "2 CPUs")
    assert says(node.decide_limits(NEEDS, False, "unlimited"), "absent", "unlimited")
    boxed = replace(NEEDS, resource_mode="container")
    assert says(node.decide_limits(boxed, False, "unlimited"), "missing", "unlimited", "resource_mode slurm")
    assert says(node.decide_limits(boxed, *node.probe_limits("podman", None, boxed)), "missing", "no image")


def test_containers_that_cannot_be_made():
    assert says(node.decide_commit(1.2, ""), "ok", "1.2 s")
    assert says(node.check_commit("podman", None), "missing", "no image")
    assert says(node.decide_commit(None, "start: error setting rlimit type 7"), "missing", "CONTAINERS_CONF")
    assert says(node.decide_commit(None, "create: cannot set up namespace"), "missing", "subuid")


def test_only_what_the_study_uses_is_tried(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    (finding,) = node.check_containers(NEEDS)
    assert says(finding, "absent", "podman or docker is not installed")
    (finding,) = node.check_containers(replace(NEEDS, lanes=frozenset(["container"]), engine="podman"))
    assert says(finding, "missing", "podman is not installed")


# ------------------------------------------------------------ benchmarks' own


def test_scicode_needs_its_packages():
    terms = {"sandbox": {"lane": "bubblewrap"}, "runtime": {"venv": ".venv-absent", "lock": "0" * 64}}
    study = SimpleNamespace(benchmarks={"scicode": {"terms": terms}})
    for lane in ("bubblewrap", "container"):
        terms["sandbox"]["lane"] = lane
        (finding,) = load_benchmark("scicode").doctor_checks(study, None)
        assert says(finding, "missing", ".venv-absent is not built", "make setup-scicode")


def test_a_command_suites_tasks_may_name_images_of_their_own(tmp_path):
    suite = json.loads((ROOT / "config/suites/starter.json").read_text())
    suite["tasks"][0]["image"] = "localhost/own:1"
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    sandbox = {"lane": "container", "image": "localhost/all:1"}
    config = {
        "name": "boxed",
        "benchmarks": {"command": {"suite": {"path": str(tmp_path / "suite.json")}, "sandbox": sandbox}},
        "conditions": {"noop": {"solver": "noop"}},
    }
    frozen = resolve(config, "test")
    assert doctor.needs_of(LOCAL, frozen).images == ("localhost/all:1", "localhost/own:1")
    # Not staged yet: its tasks cannot be asked.
    (tmp_path / "suite.json").unlink()
    assert doctor.needs_of(LOCAL, frozen).images == ("localhost/all:1",)


def test_programbench_needs_its_package_and_its_wheelhouse_whole(tmp_path):
    from assize.benchmarks.programbench import checks

    assert says(checks.check_package(str(tmp_path)), "missing", "setup-programbench")
    assert says(checks.check_wheelhouse(tmp_path / "none"), "absent", "not built yet")
    (tmp_path / "wheelhouse.json").write_text("{}")
    assert says(checks.check_wheelhouse(tmp_path), "missing", "evaluator wheelhouse", "build it again")


def test_programbench_needs_the_images_of_its_manifest():
    config = load_config(ROOT / "config/studies/programbench-pilot.yaml")
    needs = doctor.needs_of(LOCAL, resolve(config, "pilot"))
    assert needs.container
    assert len(needs.images) == 5
    assert all("task_cleanroom" in image for image in needs.images)


# ------------------------------------------------------------ the command


def test_the_answer_of_a_node_is_marked_with_its_name(tmp_path):
    findings = [node.decide_ids("subuid", 0).as_json()]
    (tmp_path / "findings.json").write_text(json.dumps({"ok": False, "node": "n7", "findings": findings}))
    (finding,) = remote.read_answer(tmp_path / "findings.json", "12", "COMPLETED|0:0|n7", 60, tmp_path / "log")
    assert (finding.place, finding.check, finding.status) == ("n7", "subuid", "missing")


def test_a_node_that_gives_no_answer_is_a_finding(tmp_path):
    (tmp_path / "log").write_text("submitit-scratch: /scratch/$USER (/scratch/ada) on n7 is no directory\nTraceback\n")
    lost = remote.read_answer(tmp_path / "none", "12", "FAILED|1:0|n7", 60, tmp_path / "log")
    assert says(lost[0], "missing", "job 12", "FAILED", "submitit-scratch", "on n7")
    late = remote.read_answer(tmp_path / "none", "12", None, 60, tmp_path / "log")
    assert says(late[0], "missing", "did not end within 60 s", "--wait")


def doctor_here(*arguments):
    command = [sys.executable, ROOT / "scripts/doctor.py", "--profile", ROOT / "profiles/local", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_the_default_study_can_run_here():
    done = doctor_here()
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "absent"}
    assert any("bubblewrap starts" in line for line in lines)
    assert not any("Slurm" in line for line in lines)


def test_what_is_missing_is_said_and_the_status_is_3(tmp_path):
    config = load_config(ROOT / "config/study.yaml")
    config["benchmarks"]["command"]["sandbox"] = {
        "lane": "container",
        "image": "localhost/absent:1",
        "engine": "docker",
    }
    (tmp_path / "study.yaml").write_text(json.dumps(config))
    done = doctor_here("--json", "--configfile", tmp_path / "study.yaml")
    assert done.returncode == 3, done.stderr
    told = json.loads(done.stdout)
    assert told["ok"] is False
    assert {finding["check"] for finding in told["findings"] if finding["status"] == "missing"} >= {"engine"}


def test_a_faulty_study_is_bad_input():
    done = doctor_here("--configfile", "absent.yaml")
    assert done.returncode == 2
    assert "absent.yaml" in done.stderr


def test_every_finding_is_one_line(capsys):
    finding = node.decide_commit(None, "start: podman: Error: " + "long words " * 40)
    doctor.print_findings([finding, replace(finding, place="n7")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("missing") and "remedy:" in line for line in lines)
    assert "n7" in lines[1]
