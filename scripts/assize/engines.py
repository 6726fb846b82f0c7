"""What podman and docker have in common: which is there, how it is called, and what it says of an image."""

import shutil
import subprocess

from assize.errors import InfrastructureError

ENGINES = ("podman", "docker")
# Seconds until an engine that says nothing counts as hanging.
PATIENCE_S = 120


def find_engine(name: str | None = None) -> str | None:
    """The engine asked for, or else the first that is installed; None where it is not here."""
    return next((engine for engine in ([name] if name else ENGINES) if shutil.which(engine)), None)


def asked_for(name: str | None) -> str:
    """What ``find_engine`` looked for, in words."""
    return name or " or ".join(ENGINES)


def call(
    engine: str, *arguments: str, check: bool = True, timeout: float = PATIENCE_S, **options
) -> subprocess.CompletedProcess:
    """One call of an engine; ``options`` are those of ``subprocess.run``. It reads nothing where there is no ``input``.

    Raises
    ------
    InfrastructureError : it takes longer than ``timeout`` seconds, or fails where ``check`` says that it must not.
    """
    if "input" not in options:
        options["stdin"] = subprocess.DEVNULL
    try:
        done = subprocess.run([engine, *arguments], capture_output=True, timeout=timeout, **options)
    except subprocess.TimeoutExpired:
        raise InfrastructureError("engine_hangs", f"{engine} {arguments[0]}: no answer in {timeout:g} s") from None
    if check and done.returncode:
        raise InfrastructureError("engine_failed", f"{engine} {' '.join(arguments[:2])}: {complaint(done)}")
    return done


def complaint(done: subprocess.CompletedProcess) -> str:
    """The end of what a call said on stderr."""
    text = done.stderr if isinstance(done.stderr, str) else done.stderr.decode(errors="replace")
    return text.strip()[-500:]


def image_id(facts: dict) -> str:
    """The id of an image, of what ``image inspect`` says of it. Pure."""
    return f"sha256:{facts['Id'].removeprefix('sha256:')}"


def image_digest(facts: dict, published: list[str] | tuple[str, ...] = ()) -> str:
    """The digest of an image, of what ``image inspect`` says of it; else the first under which it was ``published``, or
    its id where it never had a digest (built here, not pulled). Pure."""
    return facts.get("Digest") or next(iter(published), image_id(facts))
