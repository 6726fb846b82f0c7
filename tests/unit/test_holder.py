"""Who holds a study: told alive and gone apart, and only what is gone is cleared away."""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from assize import holder
from assize.errors import UsageError
from assize.records import write_atomic, write_record
from conftest import wait_for

MINE = holder.Holder("n1", 100, 1000.0, "ann", None, 0)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = tmp_path.joinpath("results", "s").relative_to(tmp_path)
    yield root
    holder.release(root)


def write_holder(root, **changes) -> Path:
    """A record as another process would write it."""
    write_record(root / "holder.json", {"schema": "assize.holder/1", **asdict(replace(holder.me(), **changes))})
    return root / "holder.json"


@pytest.mark.parametrize(
    ("found", "started", "job_lives", "silent_s", "state"),
    [
        # On this host the process table decides, and a process id that was given again is another process.
        (replace(MINE, pid=7), 1000.2, None, 9999, "alive"),
        (replace(MINE, pid=7), None, None, 0, "gone"),
        (replace(MINE, pid=7), 5000.0, None, 0, "gone"),
        # It may hide those of other users: their signs of life count.
        (replace(MINE, pid=7, user="bob"), None, None, 60, "alive"),
        (replace(MINE, pid=7, user="bob"), None, None, 600, "gone"),
        (replace(MINE, pid=7, user="bob"), 5000.0, None, 60, "gone"),
        # On another one Slurm can be asked of a job, and else its signs of life count.
        (replace(MINE, host="n2"), None, None, 60, "alive"),
        (replace(MINE, host="n2"), 1000.0, None, 600, "gone"),
        (replace(MINE, host="n2", job="5"), None, True, 9999, "alive"),
        (replace(MINE, host="n2", job="5"), None, False, 0, "gone"),
        (replace(MINE, host="n2", job="5"), None, None, 60, "alive"),
        (replace(MINE, host="n2", job="5"), None, None, 600, "gone"),
        # Clocks of file servers may step back.
        (replace(MINE, host="n2"), None, None, -60, "alive"),
    ],
)
def test_a_holder_is_alive_or_gone(found, started, job_lives, silent_s, state):
    assert holder.state_of(found, MINE, started, job_lives, silent_s) == state


def test_an_earlier_life_of_the_same_slurm_job_is_gone():
    now = replace(MINE, job="5", restarts=2)
    assert holder.state_of(replace(now, host="n2", restarts=1), now, None, None, 0) == "gone"
    assert holder.state_of(replace(now, host="n2", restarts=2), now, None, None, 9999) == "alive"


def held_elsewhere(root, silent_s, **changes):
    """A record of a holder on another host, which was last touched so many seconds ago."""
    path = write_holder(root, host="login1", **changes)
    touched = path.stat().st_mtime - silent_s
    os.utime(path, (touched, touched))
    return path


@pytest.mark.parametrize("job", [None, "7"], ids=["on a login node", "in a Slurm job"])
def test_a_holder_that_cannot_be_asked_is_not_overruled_while_it_shows_signs_of_life(root, monkeypatch, job):
    monkeypatch.setattr(holder, "_job_lives", lambda job: None)
    record = held_elsewhere(root, 300, job=job)
    before = record.read_text()
    with pytest.raises(UsageError, match=r"is being run by .* on login1") as caught:
        holder.take(root)
    assert "10 minutes after its last sign of life" in caught.value.hint
    assert holder.clear_if_gone(root).state == "alive"
    assert record.read_text() == before
    record = held_elsewhere(root, 601, job=job)
    assert holder.look(root).state == "gone"
    holder.take(root)
    assert '"login1"' not in record.read_text()


def test_a_holder_shows_signs_of_life_until_it_releases_the_study(root, monkeypatch):
    monkeypatch.setattr(holder, "BEAT_S", 0.01)
    holder.take(root)
    record = root / "holder.json"
    os.utime(record, (0, 0))
    wait_for(lambda: record.stat().st_mtime > 0)
    # A record that was removed by mistake comes back.
    record.unlink()
    wait_for(record.exists)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == f"holder of {root.name}"]
    holder.release(root)
    thread.join()
    assert not record.exists()


def test_a_holder_that_was_taken_for_gone_ends_itself(root):
    script = (
        "import time; from pathlib import Path; from assize import holder; holder.BEAT_S = 0.01\n"
        f"holder.take(Path({str(root)!r})); print('taken', flush=True); time.sleep(600)"
    )
    first = start(script)
    assert first.stdout.readline() == "taken\n"
    held_by_another = (root / "holder.json").read_text().replace(f'"pid": {first.pid}', f'"pid": {os.getpid()}')
    write_atomic(root / "holder.json", held_by_another.encode())
    _, said = first.communicate(timeout=60)
    assert first.returncode == -signal.SIGTERM
    assert f"s was taken over by process {os.getpid()} of" in said


def start(script) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-c", script], text=True, env=environment, **pipes)


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
    first = start(script)
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
    record = write_holder(root, pid=4194305)
    holder.SNAKEMAKE_LOCKS.mkdir(parents=True)
    own, others = holder.SNAKEMAKE_LOCKS / "0.output.lock", holder.SNAKEMAKE_LOCKS / "1.output.lock"
    own.write_text("results/s/census/census.json\n")
    others.write_text("results/s2/census/census.json\n")
    assert "was cut off" in holder.look(root).message
    assert (own.exists(), others.exists(), record.exists()) == (True, True, True)
    assert str(holder.clear_if_gone(root)).endswith("Its locks are removed.")
    assert (own.exists(), others.exists(), record.exists()) == (False, True, False)


def test_a_damaged_record_holds_nothing(root):
    root.mkdir(parents=True)
    (root / "holder.json").write_text("{")
    found = holder.clear_if_gone(root)
    assert found.state == "gone"
    assert f"its record, {root}/holder.json, cannot be read" in found.message
    assert not (root / "holder.json").exists()
