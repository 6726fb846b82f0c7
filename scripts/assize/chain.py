"""The chain of one grade, link by link, for a reader: what it states, and whether that was compared just now.

``links`` is pure; ``Files`` reads, and hashes each file once. What is too large to read again for every page (staged
data, images) is said to be unchecked, never passed over: ``assize.audit`` reads everything, and looks at whole studies.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assize.adapter import judged_before_grading
from assize.records import digest, read_record, sha256_file
from assize.study import Episode, Study, beside, receipt_path

CHECKED, UNCHECKED, BROKEN = STATES = ("checked", "unchecked", "broken")
_HASH = re.compile(r"[0-9a-f]{64}")
EVIDENCE = "evidence"
# A grader that exits 0 beside a lower score has passed the work, and the grade is flagged so.
SCORE_DISAGREES = "score_disagrees"


@dataclass(frozen=True)
class Link:
    """One link: what was stated, its state (one of STATES), and in ``note`` what it was compared with."""

    name: str
    state: str
    value: str
    note: str


@dataclass(frozen=True)
class Calibration:
    """A calibration record as it lies there: its own sha256, and every hash that it states."""

    sha256: str
    states: frozenset[str]


class Files:
    """The files that the grades of a study stand on. Whoever has read them already says so by other methods."""

    def __init__(self, study: Study):
        self.study = study
        self.admission = cache(self.admission)
        self.calibrations = cache(self.calibrations)
        self.receipt = cache(self.receipt)
        self._calibration = cache(_calibration_at)

    def calibrations(self, benchmark: str, instance: str) -> list[Calibration | None]:
        """Each calibration that the gate depends on (None: it is gone)."""
        return [self._calibration(path) for path in self.study.calibrations(benchmark, instance)]

    def admission(self, benchmark: str, instance: str) -> dict | None:
        return _record(self.study.admission(benchmark, instance), "admission")

    def receipt(self, dataset: str) -> dict | None:
        return _record(receipt_path(beside(self.study.root, self.study.staged_path(dataset))), "receipt")

    def snapshot(self, episode: Episode) -> dict | None:
        return _record(self.study.episode_folder(episode) / "snapshot.json", "snapshot")

    def archive(self, episode: Episode) -> str | None:
        """sha256 of the frozen work, read now."""
        path = self.study.episode_folder(episode) / "submission.tar.gz"
        return sha256_file(path) if path.is_file() else None

    def evidence(self, episode: Episode, name: str) -> str | None:
        """sha256 of one file of a grade's evidence, read now."""
        path = self.study.episode_folder(episode) / name
        return sha256_file(path) if path.is_file() else None


def _record(path: Path, name: str) -> dict | None:
    return read_record(path, name) if path.is_file() else None


def _calibration_at(path: Path) -> Calibration | None:
    if not path.is_file():
        return None
    data = path.read_bytes()
    return Calibration(hashlib.sha256(data).hexdigest(), frozenset(_HASH.findall(data.decode(errors="replace"))))


def links(study: Study, episode: Episode, grade: dict, files: Files) -> list[Link]:
    """The chain from the study to one grade, in the order in which its links were made."""
    section = study.benchmarks[episode.benchmark]
    provenance = grade["provenance"]
    gate = files.admission(episode.benchmark, episode.instance)
    calibrations = files.calibrations(episode.benchmark, episode.instance)
    snapshot = files.snapshot(episode)
    own = {key: value for key, value in provenance.items() if key not in ("terms", "snapshot", "calibration")}
    pins = {key: value for key, value in own.items() if isinstance(value, str) and _HASH.fullmatch(value)}
    return [
        _terms(section, grade),
        *(_staged(study, name, files.receipt(name)) for name in section["datasets"]),
        *(_pin(name, value, section["terms"], calibrations) for name, value in pins.items()),
        _calibration(provenance, gate, calibrations),
        _gate(section, grade, gate),
        _snapshot(provenance, snapshot, files.archive(episode)),
        *_image(provenance["sandbox"]),
        *_evidence(grade["evidence"], {name: files.evidence(episode, name) for name in grade["evidence"]}),
        _verdict(grade, gate, snapshot),
    ]


def _terms(section: dict, grade: dict) -> Link:
    terms, provenance = section["terms"], grade["provenance"]
    stated = {grade["terms_digest"], provenance["terms"], section["terms_digest"]}
    if stated != {digest(terms)}:
        return Link("terms", BROKEN, grade["terms_digest"], "not the digest of the terms in study.json")
    told = {key: provenance[key] for key in ("resource_mode", "protocol_version")}
    told["lane"] = provenance["sandbox"].get("lane")
    meant = {**terms, "lane": terms["sandbox"]["lane"]}
    unlike = [f"{key}: {value}, and {meant[key]} in the terms" for key, value in told.items() if value != meant[key]]
    if unlike:
        return Link("terms", BROKEN, grade["terms_digest"], "; ".join(unlike))
    return Link("terms", CHECKED, grade["terms_digest"], "the digest of the terms in study.json, which it was made by")


def _staged(study: Study, name: str, receipt: dict | None) -> Link:
    pinned = study.frozen["datasets"][name]["sha256"]
    if receipt is None:
        return Link(f"dataset {name}", UNCHECKED, pinned, "there is no receipt here")
    if receipt["sha256"] != pinned:
        return Link(f"dataset {name}", BROKEN, pinned, f"the receipt says {receipt['sha256']}")
    return Link(f"dataset {name}", CHECKED, pinned, "the receipt of its staging; the file was not read again")


def _pin(name: str, value: str, terms: dict, calibrations: list[Calibration | None]) -> Link:
    pinned = set(_HASH.findall(str(terms.get(name, ""))))
    if value in pinned:
        return Link(name, CHECKED, value, f"pinned in the terms as {name}")
    # The terms may pin a file by its bytes, where the records state what was read from it.
    if any(value in record.states for record in calibrations if record):
        return Link(name, CHECKED, value, "the same at calibration")
    if pinned:
        return Link(name, BROKEN, value, f"the terms pin another {name}")
    return Link(name, UNCHECKED, value, "stated by the grade; nothing here pins it")


def _calibration(provenance: dict, gate: dict | None, calibrations: list[Calibration | None]) -> Link:
    stated = provenance["calibration"]
    if gate is None:
        return Link("calibration", BROKEN, stated, "there is no admission record")
    if digest(gate["calibrations"]) != stated:
        return Link("calibration", BROKEN, stated, "the gate stands on other calibrations now")
    if None in calibrations:
        return Link("calibration", BROKEN, stated, f"{calibrations.count(None)} calibration record(s) are gone")
    if gate["calibrations"] != [record.sha256 for record in calibrations]:
        return Link("calibration", BROKEN, stated, "a calibration record was changed after it was admitted")
    return Link("calibration", CHECKED, stated, f"{len(calibrations)} calibration record(s), hashed again")


def _gate(section: dict, grade: dict, gate: dict | None) -> Link:
    if gate is None:
        return Link("admission", BROKEN, "missing", "there is no admission record")
    if gate["terms_digest"] != section["terms_digest"]:
        return Link("admission", BROKEN, gate["status"], "of other terms than the study's")
    if gate["status"] == "barred" and grade["verdict"] != "void":
        return Link("admission", BROKEN, gate["status"], "judged although calibration barred the instance")
    return Link(
        "admission", CHECKED, gate["status"], "; ".join(gate["reasons"]) or "calibration passed under these terms"
    )


def _snapshot(provenance: dict, record: dict | None, archive: str | None) -> Link:
    stated = provenance["snapshot"]
    if record is None or record["sha256"] != stated:
        return Link("snapshot", BROKEN, stated, "snapshot.json is missing or names another archive")
    if archive is None:
        return Link("snapshot", BROKEN, stated, "submission.tar.gz is gone")
    if archive != stated:
        return Link("snapshot", BROKEN, stated, f"submission.tar.gz is now {archive}")
    return Link("snapshot", CHECKED, stated, "submission.tar.gz, hashed again, and snapshot.json")


def _image(sandbox: dict) -> list[Link]:
    if not sandbox.get("image_digest"):
        return []
    return [Link("image", UNCHECKED, sandbox["image_digest"], f"{sandbox.get('image')}: stated by the engine")]


def _evidence(stated: dict[str, str], found: dict[str, str | None]) -> list[Link]:
    if not stated:
        return []
    count = f"{len(stated)} file(s)"
    other = [
        f"{name} is {'gone' if found[name] is None else 'another'}" for name in stated if found[name] != stated[name]
    ]
    if other:
        return [Link(EVIDENCE, BROKEN, count, "; ".join(other))]
    return [Link(EVIDENCE, CHECKED, count, "each file, hashed again")]


def _verdict(grade: dict, gate: dict | None, snapshot: dict | None) -> Link:
    """What was judged before any grader ran has one outcome; a pass has the full score, or a flag that it has not."""
    verdict, status = grade["verdict"], grade["scoring_status"]
    meant = judged_before_grading(snapshot, gate) if snapshot and gate else None
    if meant and (verdict, status) != (meant["verdict"], meant["scoring_status"]):
        told = f"{status}; by its gate and snapshot it is {meant['verdict']}, {meant['scoring_status']}"
        return Link("verdict", BROKEN, verdict, told)
    if verdict == "pass" and grade["analysis_score"] != 1.0 and SCORE_DISAGREES not in grade["flags"]:
        return Link("verdict", BROKEN, verdict, f"with a score of {grade['analysis_score']:.4g}")
    return Link("verdict", CHECKED, verdict, "no other than its gate, snapshot and score allow")
