"""Sending a file to another host over ssh, whole or not at all."""

import re
import secrets
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path, PurePosixPath

from assize import records
from assize.cli import log
from assize.errors import InfrastructureError, UsageError
from assize.staging import ssh
from assize.staging.progress import meter

CHUNK = 1 << 20  # bytes

# One line each, and no "!": the login shell there, which hands them to sh, may be a csh.
SUM = 'if [ -f "$1" ]; then sha256sum < "$1"; elif [ -e "$1" ]; then echo irregular; else echo absent; fi'
# A connection that breaks ends cat too, but then the sum is another one and the temporary file goes. PIPE is trapped
# because the complaint then finds nobody at the other end, which would end sh before its clean-up.
PUT = (
    "trap 'rm -f -- \"$2\"' EXIT; trap 'exit 1' HUP INT TERM PIPE; "
    'cat > "$2" || exit 1; sum=$(sha256sum < "$2") || exit 1; '
    'if [ "${sum%% *}" = "$3" ]; then mv -f -- "$2" "$1"; '
    'else echo "the bytes that arrived have sha256 ${sum%% *}" >&2; exit 1; fi'
)


def push(file, target: str) -> dict:
    """Make ``target`` (``HOST:PATH``) the same as the local ``file``; nothing is sent where it is so already.

    Returns
    -------
    dict : ``sent`` (whether bytes had to be sent), ``bytes`` (of the file), ``sha256``, ``target``.

    Raises
    ------
    UsageError : there is no such local file, or ``target`` is not ``HOST:PATH``.
    InfrastructureError : the other host is out of reach, cannot store the file, or stored something else.
    """
    file, (host, path) = Path(file), split_target(target)
    if not file.is_file():
        raise UsageError("bad_input", f"{file}: no such file")
    try:
        sha256, size = records.sha256_file(file), file.stat().st_size
        sent = remote_sha256(host, path) != sha256
        if sent:
            _send(file, size, host, path, sha256)
            arrived = remote_sha256(host, path)
            if arrived != sha256:
                raise InfrastructureError("push_failed", f"{target} has sha256 {arrived} after the push, not {sha256}")
        else:
            log(f"{target}: the same already")
    except OSError as error:
        raise InfrastructureError("push_failed", f"{file} to {target}: {error}") from error
    return {"sent": sent, "bytes": size, "sha256": sha256, "target": target}


def split_target(target: str) -> tuple[str, str]:
    """Host and path of ``HOST:PATH``; an IPv6 address stands in brackets."""
    match = re.fullmatch(r"((?:[^@:]+@)?)(?:\[([^\]]+)\]|([^:\[\]]+)):(.+)", target)
    if not match:
        raise UsageError("bad_target", f"{target!r} is not HOST:PATH", "for example node7:/scratch/data.h5")
    return match[1] + (match[2] or match[3]), match[4]


def remote_sha256(host: str, path: str) -> str | None:
    """sha256 (64 hex digits) of a regular file on ``host``, None where there is nothing.

    Raises UsageError when ``path`` is a folder or a device, InfrastructureError when the host does not say.
    """
    ran = subprocess.run(
        ssh.command(host, ["sh", "-c", SUM, "sh", path]), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    # The last line: start-up files of the login shell may print lines of their own before it.
    answer = ran.stdout.decode(errors="replace").strip().rpartition("\n")[2]
    if ran.returncode == 0 and answer == "absent":
        return None
    if ran.returncode == 0 and answer == "irregular":
        raise UsageError("bad_target", f"{host}:{path} is not a file", "name the file that the copy shall become")
    if ran.returncode or not re.match(r"[0-9a-f]{64}\b", answer):
        why = ssh.last_words(ran.stderr, ran.returncode)
        raise InfrastructureError("push_failed", f"{host}: no sha256 of {path}: {why}")
    return answer[:64]


def _send(file: Path, size: int, host: str, path: str, sha256: str) -> None:
    place = PurePosixPath(path)
    aside = str(place.with_name(f".{place.name}.{secrets.token_hex(4)}.push"))
    command = ssh.command(host, ["sh", "-c", PUT, "sh", path, aside, sha256])
    with tempfile.TemporaryFile() as errors, open(file, "rb") as local:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            # A host that stops reading says why on its stderr.
            with suppress(BrokenPipeError), process.stdin:
                _pump(local, process.stdin, meter(f"{file.name} to {host}", size))
        except BaseException:
            process.kill()
            raise
        finally:
            process.wait()
        if process.returncode:
            errors.seek(0)
            why = ssh.last_words(errors.read(), process.returncode)
            raise InfrastructureError("push_failed", f"{file} to {host}:{path}: {why}")


def _pump(local, remote, progress) -> None:
    done = 0
    try:
        while chunk := local.read(CHUNK):
            remote.write(chunk)
            done += len(chunk)
            progress.update(done)
    finally:
        progress.close()
