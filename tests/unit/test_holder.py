"""Who holds a study: told alive, gone and unknown apart, and only what is gone is cleared away."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from assize import holder
from assize.errors import UsageError

MINE = holder.Holder("n1", 100, 1000.0, "ann", None, 0)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path.joinpath("results", "s").relative_to(tmp_path)


@pytest.mark.parametrize(
    ("found", "started", "job_lives", "state"),
    [
        # On this host the process table decides, and a process id that was given again is another process.
        (replace(MINE, pid=7), 1000.2, None, "alive"),
        (replace(MINE, pid=7), None, None, "gone"),
        (replace(MINE, pid=7), 5000.0, None, "gone"),
        # On another one only Slurm can be asked.
        (replace(MINE, host="n2"), None, None, "unknown"),
        (replace(MINE, host="n2", job="5"), None, True, "alive"),
        (replace(MINE, host="n2", job="5"), None, False, "gone"),
        (replace(MINE, host="n2", job="5"), None, None, "unknown"),
    ],
)
def test_a_holder_is_alive_gone_or_unknown(found, started, job_lives, state):
    assert holder.state_of(found, MINE, started, job_lives) == state


def test_an_earlier_life_of_the_same_slurm_job_is_gone():
    now = replace(MINE, job="5", restarts=2)
    assert holder.state_of(replace(now, host="n2", restarts=1), now, None, None) == "gone"
    assert holder.state_of(replace(now, host="n2", restarts=2), now, None, None) == "alive"


def test_a_study_is_taken_and_released(root):
    assert holder.look(root) is None
    holder.take(root)
    assert holder.look(root).state == "alive"
    assert f"process {os.getpid()} of" in holder.look(root).message
    holder.take(root)
    holder.release(root)
    assert holder.look(root) is None


def test_a_second_one_is_told_who_holds_the_study_and_cannot_release_it(root):
    script = (
        "import sys; from pathlib import Path; from assize import holder\n"
        f"holder.take(Path({str(root)!r})); print('taken', flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    first = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert first.stdout.readline() == "taken\n"
    with pytest.raises(UsageError, match=f"is being run by process {first.pid} of") as caught:
        holder.take(root)
    assert "controller.py cancel" in caught.value.hint
    holder.release(root)
    assert holder.look(root).state == "alive"
    first.kill()
    first.communicate()
    assert holder.look(root).state == "gone"
    holder.take(root)


def test_of_a_holder_that_is_gone_only_its_own_locks_are_removed(root):
    holder.take(root)
    record = root / "holder.json"
    record.write_text(record.read_text().replace(f'"pid": {os.getpid()}', '"pid": 4194305'))
    holder.SNAKEMAKE_LOCKS.mkdir(parents=True)
    own, others = holder.SNAKEMAKE_LOCKS / "0.output.lock", holder.SNAKEMAKE_LOCKS / "1.output.lock"
    own.write_text("results/s/census/census.json\n")
    others.write_text("results/s2/census/census.json\n")
    assert "was cut off" in holder.look(root).message
    assert (own.exists(), others.exists(), record.exists()) == (False, True, False)


def test_a_damaged_record_holds_nothing(root):
    root.mkdir(parents=True)
    (root / "holder.json").write_text("{")
    assert holder.look(root).state == "gone"
    assert not (root / "holder.json").exists()
