"""Programs that answer as Slurm's would, for what a real one does not do on demand: refuse, forget, start again.

A job is a process of this machine, and a folder ``jobs/<id>`` below the directory of the programs. A test writes there
what the programs are to say: ``queued`` and ``accounted``, a state each, or ``-`` for a job that is not known. In the
directory itself, ``refuse`` has the errors of the next calls of sbatch, one a line, and ``pend`` the reason for which
jobs do not start.
"""

import fcntl
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def install(folder: Path) -> Path:
    """Make the programs in ``folder``, which belongs on a PATH."""
    folder.mkdir()
    (folder / "jobs").mkdir()
    text = Path(__file__).read_text()
    for name in ("sbatch", "squeue", "sacct", "scancel", "sinfo", "scontrol"):
        (folder / name).write_text(f"#!{sys.executable}\n{text}")
        (folder / name).chmod(0o755)
    return folder


def start(job: Path) -> None:
    """Run a job's script, as at first or as after a requeue: then once all of its first run has ended."""
    while (job / "pid").exists() and not (job / "status").exists():
        time.sleep(0.05)
    for name in ("queued", "accounted", "status"):
        (job / name).unlink(missing_ok=True)
    id = job.name
    array, _, index = id.partition("_")
    variables = {"SLURM_JOB_ID": array, "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_JOB_NODELIST": "node7"}
    if index:
        variables |= {"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": index}
    text = (job / "script").read_text()
    log = re.search(r"^#SBATCH --output=(.*)", text, re.MULTILINE)[1]
    log = log.replace("%j", id).replace("%A", array).replace("%a", index)
    with open(log.strip("\"'"), "a") as file:
        # This shell outlives the SIGTERM that the job gets. The status is written aside and renamed.
        command = f"trap : TERM; bash {job}/script; echo $? > {job}/s; mv {job}/s {job}/status"
        environment = os.environ | variables
        process = subprocess.Popen(
            ["bash", "-c", command], env=environment, stdout=file, stderr=file, start_new_session=True
        )
    (job / "pid").write_text(str(process.pid))


def end(job: Path, **says: str) -> None:
    """End a job's processes as Slurm does, which says then what ``says`` has."""
    for name, word in says.items():
        (job / name).write_text(word)
    if (job / "pid").exists():
        subprocess.run(["pkill", "-TERM", "--session", (job / "pid").read_text()], check=False)


def state(job: Path, who: str) -> str:
    if (job / who).exists():
        return (job / who).read_text().strip()
    if not (job / "status").exists():
        return "RUNNING"
    return "COMPLETED" if (job / "status").read_text().strip() == "0" else "FAILED"


def jobs() -> list[Path]:
    return sorted((HERE / "jobs").iterdir())


def sbatch(arguments: list[str]) -> None:
    refuse = HERE / "refuse"
    errors = refuse.read_text().splitlines() if refuse.exists() else []
    if errors:
        refuse.write_text("".join(f"{line}\n" for line in errors[1:]))
        sys.exit(f"sbatch: error: {errors[0]}")
    text = Path(arguments[-1]).read_text()
    tasks = re.search(r"^#SBATCH --array=0-(\d+)", text, re.MULTILINE)
    array = 7 + len({job.name.partition("_")[0] for job in jobs()})
    for id in [f"{array}_{index}" for index in range(int(tasks[1]) + 1)] if tasks else [str(array)]:
        job = HERE / "jobs" / id
        job.mkdir()
        (job / "script").write_text(text)
        (job / "name").write_text(re.search(r"^#SBATCH --job-name=(.*)", text, re.MULTILINE)[1])
        if (HERE / "pend").exists():
            (job / "queued").write_text("PENDING")
            (job / "accounted").write_text("PENDING")
        else:
            start(job)
    print(f"Submitted batch job {array}")


def main(name: str, arguments: list[str]) -> None:
    with open(HERE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if name == "sbatch":
            sbatch(arguments)
        elif name == "squeue":
            reason = (HERE / "pend").read_text() if (HERE / "pend").exists() else "None"
            for job in jobs():
                if (word := state(job, "queued")) != "-":
                    print(f"{job.name}|{word}|{reason}|{(job / 'name').read_text()}")
        elif name == "sacct":
            for job in jobs():
                if (word := state(job, "accounted")) != "-":
                    print(f"{job.name}|{word}|0:0|node7|{(job / 'name').read_text()}")
        elif name == "scancel":
            for job in jobs():
                if job.name in arguments or job.name.partition("_")[0] in arguments:
                    end(job, queued="CANCELLED", accounted="CANCELLED by 0")


if __name__ == "__main__":
    main(Path(sys.argv[0]).name, sys.argv[1:])
