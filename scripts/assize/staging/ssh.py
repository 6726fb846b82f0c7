"""Command lines for ssh: the one place that knows how a remote command is quoted."""

import os
import shlex

from assize.errors import UsageError

# Without the last two a host that vanishes would hold a job until its time limit.
DEFAULT = "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15"


def command(host: str, argv: list[str]) -> list[str]:
    """The local command that runs ``argv`` on ``host`` (``host`` or ``user@host``), each word of it quoted.

    The environment variable ASSIZE_SSH (``ssh -p 2222 -i key``) replaces the default ssh and its options.
    Raises UsageError when the host could be read as an option, or ASSIZE_SSH cannot be split into words.
    """
    if any(not piece or piece.startswith("-") for piece in host.split("@")):
        raise UsageError("bad_host", f"{host!r} is not a host", "write host or user@host")
    try:
        ssh = shlex.split(os.environ.get("ASSIZE_SSH") or DEFAULT)
    except ValueError as error:
        raise UsageError("bad_usage", f"ASSIZE_SSH cannot be split into words: {error}") from None
    return [*ssh, host, shlex.join(argv)]


def last_words(stderr: bytes, status: int) -> str:
    """Why a remote command failed: the last line of its stderr, or else its exit status."""
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else f"exit status {status}"
