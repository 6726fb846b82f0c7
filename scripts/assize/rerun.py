"""Grade the frozen work of a bundle again, here, and compare: what is the same, what changed, what cannot be compared.

A bundle comes from others. Its archive is unpacked like a candidate's, its records are audited before one of them is
used, and the study that is run is resolved anew from its config, by this checkout: nothing in force was taken over.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assize import audit, seal
from assize.archive import Bounds, Rejected, unpack
from assize.benchmarks import load_benchmark
from assize.bundle import MANIFEST, data_files, project_pins, strangers
from assize.differences import differences
from assize.errors import GateClosed, InfrastructureError, UsageError
from assize.records import read_record, schema_faults, sha256_file, write_atomic, write_record
from assize.signatures import plain
from assize.study import FROZEN, RESULTS, Episode, Study, repository, resolve, solver_of

# A study of thousands of episodes; a bomb stops here.
BOUNDS = Bounds(members=1_000_000, bytes=64 << 30)
ORIGINAL = "original"
CONFIG = "config.yaml"
COMPARISON = "comparison.json"
STAGES = ("prepared", "solved", "snapshot")
# Who grades it again may have another cluster, or none.
FREE_TERMS = {"resource_mode"}
# What a grade is compared by, beside the verdicts of its checks. Times, nodes and wordings are no verdicts.
JUDGED = ("verdict", "valid", "score", "analysis_score", "scoring_status", "tamper", "flags")


@dataclass(frozen=True)
class Rerun:
    """A study laid out to be graded again: ``study`` here, ``original`` as it was, and in which terms they differ."""

    original: Study
    study: Study
    bundle: str
    manifest: dict
    terms: dict[str, list[dict]]

    @property
    def config(self) -> Path:
        return self.study.root / CONFIG


def lay_out(
    bundle: Path, mode: str | None, trust: bool = False, other_terms: bool = False, published: str | None = None
) -> Rerun:
    """Unpack a bundle to ``results/<study>-rerun/``, with the frozen work of every episode that can be graded here.

    Called again with the same bundle, it goes on where the first call's run ended.

    Parameters
    ----------
    mode : the resource mode of the profile.
    trust : grade although the study asks for more than data by hash and a sandbox; see ``wishes``.
    other_terms : grade benchmarks too whose terms are not the same here, beyond FREE_TERMS.
    published : the seal that was published with the study's numbers, to compare with.

    Raises
    ------
    UsageError : the bundle is none, or what it needs is not here; GateClosed : its records do not hold together, or
        ``trust`` or ``other_terms`` is needed.
    """
    sha256 = sha256_file(bundle)
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS, prefix=".bundle-") as temporary:
        unpacked = Path(temporary, ORIGINAL)
        manifest, original = _open(bundle, unpacked, published)
        config = _config(original, mode)
        # First of all: to resolve a config reads what it names.
        check_trust(config, trust)
        study = Study(_resolve(config, bundle, mode))
        if sorted(study.episodes()) != sorted(original.episodes()):
            message = f"{bundle}: the config in its study.json plans other episodes here than study.json has"
            raise UsageError("other_plan", message, "use the project's version that the bundle names")
        terms = {
            name: told_differences(original.benchmarks[name]["terms"], study.benchmarks[name]["terms"])
            for name in study.benchmarks
        }
        _check_terms(terms, other_terms)
        text = _as_yaml(config, sha256)
        if study.root.exists():
            if not (study.root / CONFIG).exists() or (study.root / CONFIG).read_bytes() != text:
                raise UsageError("exists", f"{study.root}: it is no rerun of this bundle", "move it away, or remove it")
        else:
            place = Path(temporary, "study")
            place.mkdir()
            for episode in study.episodes():
                _copy_work(original, study, episode, place)
            unpacked.rename(place / ORIGINAL)
            write_atomic(place / CONFIG, text)
            place.rename(study.root)
    original = Study.read(study.root / ORIGINAL / "results" / original.name / "study.json")
    return Rerun(original, study, sha256, manifest, terms)


def _open(bundle: Path, place: Path, published: str | None) -> tuple[dict, Study]:
    """Unpack a bundle into the new folder ``place`` and audit what is in it."""
    place.mkdir()
    try:
        with open(bundle, "rb") as file:
            unpack(file, place, BOUNDS)
        links = [path for path in place.rglob("*") if path.is_symlink()]
        if links:
            raise Rejected(f"{links[0].relative_to(place)} is a link, and a bundle has none")
    except Rejected as reason:
        raise UsageError("bad_bundle", f"{bundle}: {reason}", "have it sent again, by someone you know") from None
    except OSError as error:
        message = f"{bundle}: it could not be unpacked below {RESULTS}/: {error}"
        hint = f"make room there, or more quota, or let {RESULTS}/ be a link to where there is room"
        raise InfrastructureError("cannot_unpack", message, hint) from error
    manifest = read_record(place / MANIFEST, "bundle")
    root = place / "results" / manifest["study"]
    study = Study.read(root / "study.json")
    sealed = seal.read_sums(root / seal.SUMS)
    found = audit.verify(root, published or manifest["seal"], frozenset(data_files(study, sealed)))
    found["broken"] += _foreign(study, manifest, sealed, place)
    if found["broken"]:
        lines = ["  {file}: {link}: {message}".format(**item) for item in found["broken"]]
        message = "\n".join([f"{bundle}: {len(lines)} broken link(s):", *lines]).replace(f"{place}/", "")
        raise GateClosed("broken", message, "it was changed after it was sealed: nothing was run")
    return manifest, study


def _foreign(study: Study, manifest: dict, sealed: dict[str, str], place: Path) -> list[dict]:
    """What in a bundle is not as this project bundles a study, each as a broken link."""
    names = [path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()]
    foreign = strangers(study, seal.sealed_files(study), names)
    items = [(name, "place", "no bundle of this study has such a file") for name in foreign]
    if study.name != manifest["study"]:
        items.append((MANIFEST, "place", f"its study is {study.name}"))
    if manifest["seal"] != seal.seal_of(study):
        items.append((MANIFEST, "seal", "it is the seal of another study"))
    other = sorted(set(manifest["left_out"]) ^ set(data_files(study, sealed)))
    items += [(MANIFEST, "left_out", f"{name}: only benchmark data is left out, and all of it") for name in other]
    return [{"file": file, "link": link, "message": message} for file, link, message in items]


def _resolve(config: dict, bundle: Path, mode: str | None) -> dict:
    try:
        return resolve(config, f"{bundle}: its study", mode)
    except UsageError as error:
        hint = "a file of its project that is not here is in the bundle, below inputs/: look at it, then put it there"
        raise UsageError(error.code, error.message, hint) from None


def _config(original: Study, mode: str | None) -> dict:
    """The config of the rerun: the author's, with each condition's work taken as it was frozen."""
    config = dict(original.frozen["config"])
    conditions = {
        name: {"solver": FROZEN, "of": solver_of(condition), "benchmarks": condition["benchmarks"]}
        for name, condition in original.frozen["conditions"].items()
    }
    if mode:
        config.pop("resource_mode", None)
    return config | {"name": f"{original.name}-rerun", "conditions": conditions}


def _as_yaml(config: dict, sha256: str) -> bytes:
    import yaml

    return f"# Made by reproduce.py from the bundle {sha256}\n{yaml.safe_dump(config, sort_keys=True)}".encode()


def told_differences(bundle, here) -> list[dict]:
    """For the comparison: where the bundle's value and this checkout's differ. Pure."""
    return [{"what": what, "bundle": one, "here": other} for what, one, other in differences(bundle, here)]


def _check_terms(terms: dict[str, list[dict]], other_terms: bool) -> None:
    """Refuse to compare what was not judged by the same rules, unless that is what is wanted."""
    unlike = [
        f"  {name}: {line['what']}: {line['bundle']!r} in the bundle, {line['here']!r} here"
        for name, lines in terms.items()
        for line in lines
        if line["what"] not in FREE_TERMS
    ]
    if unlike and not other_terms:
        raise GateClosed(
            "other_terms",
            "\n".join(["the study would be graded under other terms than it was:", *unlike]),
            "use the project's version that the bundle names; or --other-terms, to see what they change",
        )


def check_trust(config: dict, trust: bool) -> None:
    """Refuse what only a study that one trusts may have."""
    found = [f"  {wish}" for wish in wishes(config)]
    if found and not trust:
        message = "\n".join(["the bundle asks for more than data by hash and a sandbox:", *found])
        raise GateClosed("not_trusted", message, "--trust, if you know and trust who made it")


def wishes(config: dict) -> Iterator[str]:
    """No sandbox, folders of this machine, its user's name on another one, or files that the bundle itself brings.

    Of a config that keeps its schema. A section that breaks its own is refused when it is resolved.
    """
    for name, section in config["benchmarks"].items():
        benchmark = load_benchmark(name)
        if schema_faults(section, benchmark.schema):
            continue
        sandbox = section.get("sandbox", {})
        if sandbox.get("lane") == "subprocess":
            yield f"{name}: lane subprocess: the bundle's candidates would run with no isolation at all"
        if sandbox.get("read_only_paths"):
            yield f"{name}: its candidates would see {', '.join(sandbox['read_only_paths'])}"
        for key, folder in benchmark.host_folders(section).items():
            yield f"{name}: {key}: it would use the folder {folder} of this machine"
    for name, declaration in config.get("datasets", {}).items():
        for source in declaration["sources"]:
            if "ssh" in source:
                yield f"datasets.{name}: it would be fetched by ssh, as you, from {source['ssh']}"
    for key, text in _texts(config):
        if _below_results(text):
            yield f"{key}: {text}: a path below {RESULTS}/, where the bundle itself is laid out"


def _below_results(text: str) -> bool:
    """Whether a text, read as a path, leads there. One with a NUL is no path to anything."""
    places = () if "\0" in text else (text, repository(text))
    return any(Path(os.path.realpath(RESULTS)) in Path(os.path.realpath(place)).parents for place in places)


def sources(study: Study) -> list[str]:
    """For whoever runs it: where the data of a rerun comes from, one line a dataset."""
    from assize.staging.sources import describe

    return [
        f"{name}: its bytes, by sha256, from: {'; '.join(map(describe, declaration['sources']))}"
        for name, declaration in study.frozen["datasets"].items()
    ]


def _texts(value, key: str = "") -> Iterator[tuple[str, str]]:
    """(key path, text) of every text in a config."""
    if isinstance(value, str):
        yield key, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from _texts(item, f"{key}.{name}".removeprefix("."))


def _copy_work(original: Study, study: Study, episode: Episode, place: Path) -> None:
    """Copy an episode's frozen work and its records, which then are of this study's terms."""
    source, target = original.episode_folder(episode), place / "episodes" / str(episode)
    target.mkdir(parents=True)
    shutil.copyfile(source / "submission.tar.gz", target / "submission.tar.gz")
    for kind in STAGES:
        record = read_record(source / f"{kind}.json", kind)
        write_record(target / f"{kind}.json", record | {"terms_digest": study.terms_digest(episode.benchmark)})


def compare(rerun: Rerun) -> dict:
    """The comparison record of a rerun that has ended."""
    identical, changed, not_comparable = 0, [], []
    for episode in rerun.original.episodes():
        paths = [study.episode_folder(episode) / "grade.json" for study in (rerun.original, rerun.study)]
        first = read_record(paths[0], "grade")
        second = read_record(paths[1], "grade") if paths[1].exists() else None
        why = incomparable(first, second)
        if why:
            not_comparable.append({"episode": str(episode), "why": why})
        elif lines := told_differences(judged(first), judged(second)):
            files = {"original": str(paths[0]), "rerun": str(paths[1])}
            changed.append({"episode": str(episode), "differences": lines, **files})
        else:
            identical += 1
    return {
        "schema": "assize.comparison/1",
        "study": rerun.original.name,
        "bundle": rerun.bundle,
        "seal": rerun.manifest["seal"],
        "planned": len(rerun.original.episodes()),
        "pins": _pin_differences(rerun.manifest),
        "terms": rerun.terms,
        "identical": identical,
        "changed": changed,
        "not_comparable": not_comparable,
    }


def _pin_differences(manifest: dict) -> list[dict]:
    here = project_pins()
    return told_differences({key: manifest[key] for key in here}, here)


def judged(grade: dict) -> dict:
    """What of a grade is a judgement. Pure."""
    return {key: grade[key] for key in JUDGED} | {"checks": {item["id"]: item["verdict"] for item in grade["checks"]}}


def incomparable(first: dict, second: dict | None) -> str | None:
    """Why two grades of the same work cannot be compared, or None. Pure.

    Work that was never handed in is void in both, which is the same judgement.
    """
    if second is None:
        return "it was not graded again: see the log"
    if first["provenance"]["snapshot"] != second["provenance"]["snapshot"]:
        return "another snapshot was graded"
    for name, grade in (("the original", first), ("the rerun", second)):
        if grade["verdict"] == "void" and grade["scoring_status"] != "no_submission":
            return f"{name} is void: {plain(grade['reason'])}"
    return None
