"""Grade the frozen work of a bundle again, here, and compare: what is the same, what changed, what cannot be compared.

A bundle comes from others. Its archive is unpacked like a candidate's, its records are audited before one of them is
used, and the study that is run is resolved anew from its config, by this checkout: nothing in force was taken over.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from assize import audit
from assize.archive import Bounds, Rejected, unpack
from assize.bundle import MANIFEST, project_pins
from assize.differences import differences
from assize.errors import GateClosed, UsageError
from assize.records import read_record, sha256_file, write_atomic, write_record
from assize.signatures import plain
from assize.study import FROZEN, RESOURCE_MODES, RESULTS, Episode, Study, load_config, resolve

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


def lay_out(bundle: Path, mode: str | None, trust: bool = False, other_terms: bool = False) -> Rerun:
    """Unpack a bundle to ``results/<study>-rerun/``, with the frozen work of every episode that can be graded here.

    Called again with the same bundle, it goes on where the first call's run ended.

    Parameters
    ----------
    mode : the resource mode of the profile.
    trust : grade although the study's terms give candidates more than a sandbox's default; see ``_check_trust``.
    other_terms : grade benchmarks too whose terms are not the same here, beyond FREE_TERMS.

    Raises
    ------
    UsageError : the bundle is none, or what it needs is not here; GateClosed : its records do not hold together, or
        ``trust`` or ``other_terms`` is needed.
    """
    sha256 = sha256_file(bundle)
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS, prefix=".bundle-") as temporary:
        unpacked = Path(temporary, ORIGINAL)
        manifest, original = _open(bundle, unpacked)
        config = _config(original, mode)
        study = Study(_resolve(config, bundle, mode))
        if sorted(study.episodes()) != sorted(original.episodes()):
            message = f"{bundle}: the config in its study.json plans other episodes here than study.json has"
            raise UsageError("other_plan", message, "use the project's version that the bundle names")
        terms = {
            name: told_differences(original.benchmarks[name]["terms"], study.benchmarks[name]["terms"])
            for name in study.benchmarks
        }
        _check_trust(study, trust)
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


def _open(bundle: Path, place: Path) -> tuple[dict, Study]:
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
    manifest = read_record(place / MANIFEST, "bundle")
    root = place / "results" / manifest["study"]
    study = Study.read(root / "study.json")
    found = audit.verify(root, manifest["seal"], frozenset(manifest["left_out"]))
    if study.name != manifest["study"]:
        found["broken"].append({"file": MANIFEST, "link": "place", "message": f"its study is {study.name}"})
    if found["broken"]:
        lines = ["  {file}: {link}: {message}".format(**item) for item in found["broken"]]
        message = "\n".join([f"{bundle}: {len(lines)} broken link(s):", *lines]).replace(f"{place}/", "")
        raise GateClosed("broken", message, "it was changed after it was sealed: nothing was run")
    return manifest, study


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
        name: {"solver": FROZEN, "benchmarks": condition["benchmarks"]}
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


def _check_trust(study: Study, trust: bool) -> None:
    """What only a study that one trusts may have: no sandbox, or folders of this machine in it."""
    wishes = []
    for name, section in study.benchmarks.items():
        sandbox = section["terms"]["sandbox"]
        if sandbox["lane"] == "subprocess":
            wishes.append(f"  {name}: lane subprocess: the bundle's candidates would run with no isolation at all")
        if sandbox.get("read_only_paths"):
            wishes.append(f"  {name}: its candidates would see {', '.join(sandbox['read_only_paths'])}")
    if wishes and not trust:
        message = "\n".join(["the bundle asks for more than a sandbox gives:", *wishes])
        raise GateClosed("not_trusted", message, "--trust, if you know and trust who made it")


def _copy_work(original: Study, study: Study, episode: Episode, place: Path) -> None:
    """Copy an episode's frozen work and its records, which then are of this study's terms."""
    source, target = original.episode_folder(episode), place / "episodes" / str(episode)
    target.mkdir(parents=True)
    shutil.copyfile(source / "submission.tar.gz", target / "submission.tar.gz")
    for kind in STAGES:
        record = read_record(source / f"{kind}.json", kind)
        write_record(target / f"{kind}.json", record | {"terms_digest": study.terms_digest(episode.benchmark)})


def profile_mode(profile: Path) -> str | None:
    """The resource mode that a profile asks for with ``config``; None where it says nothing."""
    settings = load_config(profile / "config.yaml").get("config", [])
    pairs = settings.items() if isinstance(settings, dict) else (item.partition("=")[::2] for item in settings)
    mode = dict(pairs).get("resource_mode")
    if mode not in (None, *RESOURCE_MODES):
        raise UsageError("bad_usage", f"{profile}: resource_mode: {mode!r} is not allowed")
    return mode


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
