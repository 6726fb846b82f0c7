"""What the tests on a real Slurm share: its users, a study that is slow to grade, and the daemons of tests/cluster."""

import json
import os
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
import yaml

from conftest import wait_for, words_of

CLUSTER = Path(os.environ.get("ASSIZE_CLUSTER_DIR", "/var/tmp/assize-cluster"))
ENVIRONMENT = CLUSTER / "env"

needs_cluster = [
    pytest.mark.skipif(not ENVIRONMENT.exists(), reason="no Slurm: bring one up with tests/cluster/up, as root"),
    pytest.mark.skipif(os.geteuid() != 0, reason="the test cluster's users are root and assize: run the tests as root"),
    # One after another: each asks for the whole node.
    pytest.mark.usefixtures("whole_cluster"),
]


class Account:
    """A user of the cluster, with a checkout and a virtual environment of their own."""

    def __init__(self, user: str, root: Path, environment: Path):
        self.user, self.root, self.environment = user, root, environment

    def command(self, command: str) -> list[str]:
        script = f". {ENVIRONMENT}; cd {shlex.quote(str(self.root))}; PATH={self.environment}/bin:$PATH; {command}"
        shell = ["bash", "-c", script]
        return shell if self.user == "root" else ["runuser", "-u", self.user, "--", *shell]

    def run(self, command: str, check=True, timeout=900) -> subprocess.CompletedProcess:
        done = subprocess.run(self.command(command), capture_output=True, text=True, timeout=timeout, cwd="/")
        assert not check or done.returncode == 0, f"{command}:\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
        return done

    def snakemake(self, arguments="", **options):
        return self.run(f"snakemake {arguments} --profile profiles/slurm", **options)

    def start(self, arguments="") -> subprocess.Popen:
        """A controller, the leader of a process group of its own; its messages are on its stderr."""
        command = self.command(f"exec snakemake {arguments} --profile profiles/slurm")
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def slurm_jobs(self) -> dict[str, str]:
        """Job id -> state, of all of the user's jobs: from accounting, which may be some seconds late, and squeue."""
        since = f"sacct -X --noheader --parsable2 -u {self.user} -S now-1hours --format=JobID,State"
        late = f"squeue --noheader --states=all -u {self.user} --format='%i|%T'"
        lines = self.run(f"{late}; {since}").stdout.splitlines()
        return dict(line.split("|") for line in lines)

    def grades(self, study: str) -> list[dict]:
        return [json.loads(path.read_text()) for path in (self.root / "results" / study).rglob("grade.json")]

    def verdicts(self, study: str) -> dict[str, tuple[str, str]]:
        """What every episode of a study came to, by ``condition/instance/repeat``."""
        found = {}
        for grade in self.grades(study):
            episode = grade["episode"]
            name = f"{episode['condition']}/{episode['instance']}/{episode['repeat']}"
            found[name] = (grade["verdict"], grade["scoring_status"])
        return found


SLOW_GRADE = "results/slow/episodes/command/slow/longest-line-bash/1/grade.json"
# What an undisturbed run of the slow study comes to.
SLOW_VERDICTS = {
    "reference/longest-line-bash/1": ("pass", "passed"),
    "noop/longest-line-bash/1": ("fail", "failed"),
    "slow/longest-line-bash/1": ("fail", "failed"),
}


def write_slow_study(account: Account, seconds=1.0, **sections) -> None:
    """``study.yaml``, ``slow``: one task, and a candidate of which each of the grader's five runs takes ``seconds``."""
    suite = json.loads((account.root / "config/suites/starter.json").read_text())
    (task,) = suite["tasks"] = [task for task in suite["tasks"] if task["id"] == "longest-line-bash"]
    # The starter suite gives a run two seconds, and a grader thirty.
    task["timeout_s"] = 600
    task["grader_files"]["grade.py"] = task["grader_files"]["grade.py"].replace("timeout=2", "timeout=600")
    (account.root / "suite.json").write_text(json.dumps(suite))
    answer = {"longest-line-bash": {"longest.sh": f"sleep {seconds}; echo no\n"}}
    (account.root / "slow.json").write_text(json.dumps(answer))
    sandbox = {"lane": "bubblewrap", "limits": {"wall_s": 600}}
    command = {"suite": {"path": "suite.json"}, "calibration": {"repetitions": 1}, "sandbox": sandbox}
    config = {
        "name": "slow",
        "benchmarks": {"command": command},
        "conditions": {
            "reference": {"solver": "reference"},
            "noop": {"solver": "noop"},
            "slow": {"solver": "replay", "submissions": {"command": "slow.json"}},
        },
        **sections,
    }
    (account.root / "study.yaml").write_text(yaml.safe_dump(config))


def grading(account: Account, condition="slow") -> psutil.Process | None:
    """The command that grades an episode of the condition in the account's checkout, or None."""
    for process in psutil.process_iter(["cmdline", "cwd"]):
        command = process.info["cmdline"] or []
        of_condition = "grade" in command and any(word.startswith(f"{condition}/") for word in command)
        if of_condition and "python" in command[0] and process.info["cwd"] == str(account.root):
            return process
    return None


def job_of(process: psutil.Process) -> str:
    """The Slurm job that a process runs in."""
    return process.environ()["SLURM_JOB_ID"]


class Daemon:
    """A daemon of the test cluster, by the files that tests/cluster gives it."""

    def __init__(self, program: str, pid_file: str, *arguments: str):
        self.program, self.pid_file, self.arguments = program, CLUSTER / pid_file, arguments

    def end(self, signal_number=signal.SIGKILL) -> None:
        process = psutil.Process(int(self.pid_file.read_text()))
        process.send_signal(signal_number)
        # A zombie has no words either.
        wait_for(lambda: not words_of(process))

    def start(self, *arguments: str) -> None:
        environment = {**os.environ, "SLURM_CONF": str(CLUSTER / "etc/slurm.conf")}
        command = [shutil.which(self.program), *self.arguments, *arguments]
        subprocess.run(command, env=environment, check=True, close_fds=True, stdin=subprocess.DEVNULL)


NODE = os.uname().nodename.split(".")[0]
SLURMCTLD = Daemon("slurmctld", "slurmctld/slurmctld.pid")
SLURMD = Daemon("slurmd", f"slurmd/{NODE}.pid")
SPARE = Daemon("slurmd", "slurmd/spare.pid", "-N", "spare")


def slurm(*command: str) -> list[str]:
    """The lines that a command of Slurm prints, for root."""
    environment = {**os.environ, "SLURM_CONF": str(CLUSTER / "etc/slurm.conf")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def slurm_answers() -> bool:
    try:
        return any("UP" in line for line in slurm("scontrol", "ping"))
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return False


def node_state(node: str) -> str:
    return slurm("sinfo", "--noheader", "--nodes", node, "--format=%T")[0]


def return_to_service(node: str) -> None:
    """As an administrator does, of a node that is down or drained."""
    if not node_state(node).startswith(("idle", "mixed", "allocated", "completing")):
        slurm("scontrol", "update", f"NodeName={node}", "State=RESUME")
    wait_for(lambda: node_state(node) in ("idle", "mixed", "allocated", "completing"))
