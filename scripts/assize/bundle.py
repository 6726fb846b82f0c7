"""A finished study as one archive that others can check and grade again: the same bytes for the same study.

It holds every sealed record, snapshot and piece of evidence, the receipts of staged data, the workflow and its locks,
and an RO-Crate that says what is what. It does not hold the benchmarks' data, staged or derived: that is fetched again,
by hash, from where the study had it.
"""

import posixpath
import tomllib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from assize import audit, seal
from assize.archive import pack
from assize.crate import crate
from assize.errors import GateClosed
from assize.records import ROOT, check, digest, dump, sha256_file
from assize.study import Study, repository

MANIFEST = "bundle.json"
README_NAME = "README.md"
CRATE = "ro-crate-metadata.json"
WORKFLOW = ("Snakefile", "rules/*.smk", "report/*.rst", "envs/*.lock", "config/harness-faults.yaml", "CITATION.cff")
CODE = ("Snakefile", "rules/*.smk", "scripts/**/*", "config/harness-faults.yaml", "config/schemas/*.json")

README = """# The study {name}, graded with Assize

`results/{name}/census/` holds the numbers and the rows that they are counted from; `results/{name}/episodes/` each
episode's frozen work (`submission.tar.gz`), its grade and the evidence. `ro-crate-metadata.json` says what is what.

- Seal of the study: `{seal}`, the sha256 of `results/{name}/census/SHA256SUMS`. Compare it with what was published.
- Hashes: `cd results/{name} && sha256sum --check --ignore-missing census/SHA256SUMS`.
- Grade it again, in a checkout of Assize: `python scripts/reproduce.py rerun BUNDLE --profile profiles/local`.

The benchmarks' own data is not in here: a rerun fetches it by hash. `inputs/` holds what else the study read.
"""


def write_bundle(root: Path, output: Path) -> dict:
    """Bundle the study in the folder ``root``.

    Returns
    -------
    The bundle's manifest.

    Raises
    ------
    GateClosed : the audit of the study finds a broken link: others would find it too.
    """
    found = audit.verify(root)
    if found["broken"]:
        message = f"{root}: {len(found['broken'])} broken link(s), the first: {_told(found['broken'][0])}"
        raise GateClosed("broken", message, f"see: python scripts/audit.py verify {root}", found)
    study = Study.read(root / "study.json")
    members, left_out = _members(study)
    manifest = {
        "schema": "assize.bundle/1",
        "study": study.name,
        "seal": seal.seal_of(study),
        "left_out": left_out,
        **project_pins(),
    }
    check(manifest, "bundle", output)
    members[MANIFEST] = dump(manifest)
    members[README_NAME] = README.format(name=study.name, seal=manifest["seal"]).encode()
    members[CRATE] = crate(study, sorted(members), manifest["project"]["version"])
    output.parent.mkdir(parents=True, exist_ok=True)
    aside = output.with_name(f".{output.name}.part")
    with open(aside, "wb") as file:
        pack(members, file)
    aside.replace(output)
    return manifest


def _told(item: dict) -> str:
    return "{file}: {link}: {message}".format(**item)


def _members(study: Study) -> tuple[dict[str, Path | bytes], list[str]]:
    """(name in the archive -> file, the sealed files that are left out). A sealed name is relative to the study."""
    sealed = seal.sealed_files(study)
    left_out = data_files(study, sealed)
    kept = [seal.SUMS, *sorted(set(sealed) - set(left_out))]
    members: dict[str, Path | bytes] = {_inside(study, name): study.root / name for name in kept}
    for pattern in WORKFLOW:
        members |= {_name(path): path for path in ROOT.glob(pattern)}
    for section in study.benchmarks.values():
        members |= {_input(name): repository(name) for name in section["files"]}
    return members, left_out


def _inside(study: Study, name: str) -> str:
    return posixpath.normpath(f"results/{study.name}/{name}")


def _input(name: str) -> str:
    return f"inputs/{name}"


def data_files(study: Study, sealed: Iterable[str]) -> list[str]:
    """Of the sealed files, the benchmarks' data: what a bundle does not hold, and the only files that it may lack."""
    staged = set(seal.staged_files(study))
    # Targets derived at calibration, wheels of an evaluator: of these folders the records say enough.
    return [
        name
        for name in sealed
        if name in staged or (name.startswith(("calibration/", "runtime/")) and not name.endswith(".json"))
    ]


def strangers(study: Study, sealed: Iterable[str], names: Iterable[str]) -> list[str]:
    """Of a bundle's files, those that no bundle has: nothing hashes them, so nobody answers for them. Pure."""
    known = {_inside(study, name) for name in (seal.SUMS, *sealed)} | {MANIFEST, README_NAME, CRATE}
    known |= {_input(name) for section in study.benchmarks.values() for name in section["files"]}
    return sorted(name for name in set(names) - known if not any(_matches(name, pattern) for pattern in WORKFLOW))


def _matches(name: str, pattern: str) -> bool:
    path = PurePosixPath(name)
    return len(path.parts) == len(PurePosixPath(pattern).parts) and path.match(pattern)


def project_pins() -> dict:
    """What of this checkout can change a verdict: its version, its code as one digest, and each lock's sha256."""
    code = sorted(path for pattern in CODE for path in ROOT.glob(pattern) if path.is_file())
    return {
        "project": {
            "version": tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"],
            "code": digest({_name(path): sha256_file(path) for path in code if "__pycache__" not in path.parts}),
        },
        "locks": {_name(path): sha256_file(path) for path in sorted(ROOT.glob("envs/*.lock"))},
    }


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
