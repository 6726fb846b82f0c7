"""The image of the container lane: built where it is missing or stale, named by its digest, never pulled.

A short name that was never built falls through to a registry (exit 125), so the tag is looked up before any run.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from assize import engines
from assize.benchmarks.scicode.benchmark import IMAGE as TAG
from assize.benchmarks.scicode.court import LOCK, lock_digest
from assize.errors import InfrastructureError
from assize.records import ROOT

BASE = "localhost/assize-base:bookworm"
CONTAINERFILE = ROOT / "envs" / "scicode.Containerfile"
LABEL = "assize.scicode.lock"
# What the official package needs from its own repository, at the protocol's pin.
OFFICIAL = "scicode @ git+https://github.com/scicode-bench/SciCode@e3158ea011d4235245a547460d3688d7ccbf9900"


def add_verb(verbs, parser_class) -> None:
    images = verbs.add_parser("images", help="the image of the container lane")
    kinds = images.add_subparsers(dest="images_verb", required=True, parser_class=parser_class)
    ensure_ = kinds.add_parser("ensure", help=f"build {TAG} where it is missing or of another lock; print its digest")
    ensure_.add_argument("--base", default=BASE, help="a local image with Python 3.11 or 3.12; nothing is pulled")
    ensure_.add_argument(
        "--official", action="store_true", help="with the official scicode package (needs git, network)"
    )
    ensure_.set_defaults(call=lambda arguments: ensure(arguments.engine, arguments.base, arguments.official))


def ensure(engine: str | None = None, base: str = BASE, official: bool = False) -> dict:
    """Build the image unless it is there with this lock, and look its digest up.

    Raises
    ------
    InfrastructureError : there is no engine or no base image, or the build failed.
    """
    asked, engine = engines.asked_for(engine), engines.find_engine(engine)
    if engine is None:
        raise InfrastructureError("lane_missing", f"images: {asked} is not installed here", "install podman or docker")
    wanted = lock_digest() + ("+official" if official else "")
    found = inspect(engine, TAG)
    built = not found or (found["Config"].get("Labels") or {}).get(LABEL) != wanted
    if built:
        if not inspect(engine, base):
            raise InfrastructureError(
                "missing_image", f"images: {engine} has no image {base}", "build or load it first"
            )
        build(engine, base, wanted, official)
        found = inspect(engine, TAG)
    return {"ok": True, "image": TAG, "digest": engines.image_digest(found), "built": built, "lock": wanted}


def inspect(engine: str, image: str) -> dict | None:
    """What the engine knows of a local image; None where it has none."""
    done = engines.call(engine, "image", "inspect", image, check=False)
    return json.loads(done.stdout)[0] if done.returncode == 0 else None


def build(engine: str, base: str, lock: str, official: bool) -> None:
    version = _call(
        [engine, "run", "--rm", "--pull=never", "--network=none", base, "python3", "-c", _VERSION], "python of the base"
    ).strip()
    with tempfile.TemporaryDirectory(prefix="assize-image-") as folder:
        packages = Path(folder, "packages")
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--target",
            str(packages),
        ]
        binary = ["--python-version", version, "--only-binary", ":all:", "--no-compile"]
        _call([*pip, *binary, "--require-hashes", "--requirement", str(LOCK)], "packages")
        if official:
            _call([*pip, OFFICIAL], "official package")
        command = [engine, "build", "--pull=never", "--network=none", "--file", str(CONTAINERFILE), "--tag", TAG]
        _call([*command, "--build-arg", f"BASE={base}", "--label", f"{LABEL}={lock}", folder], "build")


_VERSION = "import sys; print('.'.join(map(str, sys.version_info[:2])))"


def _call(command: list[str], what: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise InfrastructureError("image_not_built", f"images: {what}: {done.stderr.strip()[-800:]}")
    return done.stdout
