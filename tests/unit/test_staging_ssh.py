"""Staging from, and pushing to, a real sshd on the loopback, with keys and a configuration of its own."""

import contextlib
import getpass
import hashlib
import json
import os
import random
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assize.errors import InfrastructureError, UsageError
from assize.staging import push as push_module
from assize.staging import ssh, stage
from assize.staging.push import push, split_target

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "stage.py"
BYTES = random.Random(0).randbytes(3_000_000)
SHA256 = hashlib.sha256(BYTES).hexdigest()
AWKWARD = 'it\'s a "file" $(touch pwned) ;&|.bin'


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_key(path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


def configured(folder, port):
    """An sshd_config with which root and an ordinary user alike can serve themselves."""
    user_key = make_key(folder / "user_key")
    shutil.copy(f"{user_key}.pub", folder / "authorized_keys")
    options = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": make_key(folder / "host_key"),
        "AuthorizedKeysFile": folder / "authorized_keys",
        "PidFile": folder / "sshd.pid",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
    }
    config = folder / "sshd_config"
    config.write_text("".join(f"{key} {value}\n" for key, value in options.items()))
    return config, user_key


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    """The ssh command (for ASSIZE_SSH) that reaches an sshd of this test."""
    server = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if not server or not shutil.which("ssh"):
        pytest.skip("sshd or ssh is not installed")
    if os.getuid() == 0:
        # Where sshd has never run as a service, root has to make the folder that it drops its privileges into.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    folder, port = tmp_path_factory.mktemp("sshd"), free_port()
    config, user_key = configured(folder, port)
    log = folder / "log"
    process = subprocess.Popen([server, "-D", "-f", config, "-E", log], stdin=subprocess.DEVNULL)
    command = (
        f"ssh -F none -p {port} -i {user_key} -l {getpass.getuser()} -o BatchMode=yes -o IdentitiesOnly=yes"
        f" -o StrictHostKeyChecking=no -o UserKnownHostsFile={folder}/known_hosts -o LogLevel=ERROR"
    )
    try:
        wait_for(process, port)
        login = subprocess.run(
            [*shlex.split(command), "127.0.0.1", "true"], capture_output=True, text=True, check=False
        )
        if login.returncode:
            pytest.skip(f"this user cannot log in to its own sshd: {login.stderr}{log.read_text()}")
        yield command
    finally:
        process.terminate()
        process.wait()


def wait_for(process, port):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)


@pytest.fixture
def host(sshd, monkeypatch):
    monkeypatch.setenv("ASSIZE_SSH", sshd)
    return "127.0.0.1"


@pytest.fixture
def local(tmp_path):
    path = tmp_path / "local.bin"
    path.write_bytes(BYTES)
    return path


@pytest.fixture
def remote(tmp_path):
    """A folder that the tests use as one on the other host."""
    folder = tmp_path / "remote folder"
    folder.mkdir()
    return folder


def declare(*sources):
    return {"filename": "data.bin", "sha256": SHA256, "size": len(BYTES), "sources": list(sources)}


def test_a_file_is_staged_over_ssh_whatever_its_name(host, remote, tmp_path):
    (remote / AWKWARD).write_bytes(BYTES)
    source = {"ssh": host, "path": str(remote / AWKWARD)}
    output = tmp_path / "staged" / "data.bin"
    assert stage(declare(source), "data", output)["source"] == source
    assert output.read_bytes() == BYTES
    assert not Path("~/pwned").expanduser().exists()


def test_an_ssh_source_that_fails_says_why_and_the_next_is_tried(host, remote, tmp_path, local, capsys):
    (remote / "endless").symlink_to("/dev/zero")
    (remote / "short").write_bytes(BYTES[:-1])
    failing = [{"ssh": host, "path": str(remote / name)} for name in ("missing", "endless", "short")]
    output = tmp_path / "staged" / "data.bin"
    stage(declare(*failing, {"file": str(local)}), "data", output)
    log = capsys.readouterr().err
    assert f"ssh {host} path {remote}/missing: cat: '{remote}/missing': No such file" in log.replace(
        "cat: /", "cat: '/"
    )
    assert f"ssh {host} path {remote}/endless: got more than 3000000 bytes" in log
    assert f"ssh {host} path {remote}/short: got sha256" in log
    assert output.read_bytes() == BYTES


def test_a_push_sends_once_and_then_nothing(host, remote, local):
    target = f"{host}:{remote}/{AWKWARD}"
    expected = {"sent": True, "bytes": len(BYTES), "sha256": SHA256, "target": target}
    assert push(local, target) == expected
    assert (remote / AWKWARD).read_bytes() == BYTES
    stamp = (remote / AWKWARD).stat().st_mtime_ns
    assert push(local, target) == {**expected, "sent": False}
    assert (remote / AWKWARD).stat().st_mtime_ns == stamp
    assert [path.name for path in remote.iterdir()] == [AWKWARD]


def test_a_push_replaces_a_file_that_differs(host, remote, local):
    (remote / "data.bin").write_bytes(BYTES[:-1])
    assert push(local, f"{host}:{remote}/data.bin")["sent"]
    assert (remote / "data.bin").read_bytes() == BYTES


def test_bytes_that_are_lost_on_the_way_replace_nothing(host, remote, local, monkeypatch):
    (remote / "data.bin").write_bytes(b"old")

    def lossy(source, sink, progress):
        sink.write(source.read()[:-1])
        progress.close()

    monkeypatch.setattr(push_module, "_pump", lossy)
    lost = hashlib.sha256(BYTES[:-1]).hexdigest()
    with pytest.raises(InfrastructureError, match=f"the bytes that arrived have sha256 {lost}"):
        push(local, f"{host}:{remote}/data.bin")
    assert (remote / "data.bin").read_bytes() == b"old"
    assert [path.name for path in remote.iterdir()] == ["data.bin"]


def test_a_connection_that_breaks_leaves_nothing_behind(host, remote, local, monkeypatch):
    def broken(source, sink, progress):
        sink.write(source.read(1_000_000))
        progress.close()
        raise OSError("the disk here fails")

    monkeypatch.setattr(push_module, "_pump", broken)
    with pytest.raises(InfrastructureError, match="the disk here fails"):
        push(local, f"{host}:{remote}/data.bin")
    deadline = time.monotonic() + 10
    while any(remote.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(remote.iterdir()) == []


def test_the_remote_half_tidies_up_though_nobody_hears_its_complaint(tmp_path):
    listener, complaint = os.pipe()
    os.close(listener)
    words = ["sh", "-c", push_module.PUT, "sh", tmp_path / "data.bin", tmp_path / "aside", SHA256]
    ran = subprocess.run(words, input=BYTES[:-1], stderr=complaint, check=False)
    os.close(complaint)
    assert ran.returncode == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_changes_right_after_the_push_is_found(host, remote, local, monkeypatch):
    send = push_module._send

    def spoiled(*arguments):
        send(*arguments)
        (remote / "data.bin").write_bytes(b"spoiled")

    monkeypatch.setattr(push_module, "_send", spoiled)
    with pytest.raises(
        InfrastructureError, match=f"has sha256 {hashlib.sha256(b'spoiled').hexdigest()} after the push"
    ):
        push(local, f"{host}:{remote}/data.bin")


def test_a_folder_there_is_not_a_target(host, remote, local):
    with pytest.raises(UsageError, match="is not a file"):
        push(local, f"{host}:{remote}")
    assert list(remote.iterdir()) == []


def test_a_missing_folder_there_is_told_in_the_words_of_the_host(host, remote, local):
    with pytest.raises(InfrastructureError, match=r"(?i)no such file|nonexistent"):
        push(local, f"{host}:{remote}/none/data.bin")


def test_an_unreachable_host_is_infrastructure(local, monkeypatch):
    monkeypatch.setenv("ASSIZE_SSH", f"ssh -F none -o BatchMode=yes -p {free_port()}")
    with pytest.raises(InfrastructureError, match="refused"):
        push(local, "127.0.0.1:/tmp/never")


def test_push_as_a_command_prints_one_json_object_and_plain_progress(host, remote, local):
    command = [sys.executable, SCRIPT, "push", local, f"{host}:{remote}/data.bin"]
    for sent in (True, False):
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran
        (line,) = ran.stdout.splitlines()
        assert json.loads(line) == {
            "ok": True,
            "sent": sent,
            "bytes": len(BYTES),
            "sha256": SHA256,
            "target": f"{host}:{remote}/data.bin",
        }
        assert ("3,000,000 of 3,000,000 bytes (100%)" in ran.stderr) is sent
        assert "\x1b" not in ran.stderr


@pytest.mark.parametrize(
    ("target", "host_and_path"),
    [
        ("node7:/scratch/a b", ("node7", "/scratch/a b")),
        ("me@node7:data:1", ("me@node7", "data:1")),
        ("[::1]:/x", ("::1", "/x")),
        ("me@[fe80::1]:x", ("me@fe80::1", "x")),
    ],
)
def test_host_and_path_of_a_target(target, host_and_path):
    assert split_target(target) == host_and_path


@pytest.mark.parametrize("target", ["node7", "node7:", ":/x", ""])
def test_a_target_without_host_or_path_is_bad_usage(target):
    with pytest.raises(UsageError):
        split_target(target)


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "me@-oProxyCommand=x", "-l@node7", "", "me@", "@node7"])
def test_a_host_that_ssh_could_read_as_an_option_is_refused(host):
    with pytest.raises(UsageError, match="is not a host"):
        ssh.command(host, ["true"])


def test_each_word_of_a_remote_command_is_quoted(monkeypatch):
    monkeypatch.setenv("ASSIZE_SSH", "ssh -i 'my key'")
    assert ssh.command("me@node7", ["cat", "--", "a b"]) == ["ssh", "-i", "my key", "me@node7", "cat -- 'a b'"]


def test_an_unbalanced_quote_in_assize_ssh_is_bad_usage(monkeypatch):
    monkeypatch.setenv("ASSIZE_SSH", "ssh -i 'my key")
    with pytest.raises(UsageError, match="ASSIZE_SSH"):
        ssh.command("node7", ["true"])
