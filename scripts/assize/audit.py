"""The audit of a finished study by machine: every file hashed again, every record checked, every link followed.

The chain is study -> staged data -> calibration -> admission -> snapshot -> grade -> census: each record names the hash
of what it stands on. The seal pins what no other record does. Nothing is believed that can be derived again.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from assize import admission, census, chain, indictment, seal
from assize.differences import differences
from assize.errors import AssizeError, UsageError
from assize.records import digest, read_record, schema_faults, sha256_file
from assize.study import Episode, Study, beside, receipt_path

EPISODE_RECORDS = ("prepared", "solved", "snapshot", "grade")
# Of a census, what needs no table of harness faults to be counted again, and the rates that follow from it.
COUNTS = ("benchmark", "condition", "count", "passed", "failed", "void")
RATES = ("over_scored", "over_planned")
# What a difference between two census records is shown with, at most.
SHOWN = 5


@dataclass
class Audit:
    """One audit: what was looked at, and every broken link as (file, what is wrong)."""

    study: Study
    broken: list[dict] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    _hashes: dict[Path, str | None] = field(default_factory=dict)

    def miss(self, path, link: str, message: str) -> None:
        self.broken.append({"file": str(path), "link": link, "message": message})

    def count(self, what: str) -> None:
        self.checked[what] = self.checked.get(what, 0) + 1

    def sha256(self, path: Path) -> str | None:
        """Of a file, read once; None where it is missing, unreadable or no file at all (a FIFO would never end)."""
        if path not in self._hashes:
            try:
                self._hashes[path] = sha256_file(path) if path.is_file() else None
            except OSError:
                self._hashes[path] = None
        return self._hashes[path]

    def record(self, path: Path, kind: str) -> dict | None:
        """A record that keeps its schema, or None and a broken link."""
        if path.exists() and not path.is_file():
            self.miss(path, "schema", "it is no file")
            return None
        try:
            found = read_record(path, kind)
        except (UsageError, OSError, UnicodeDecodeError) as error:
            self.miss(path, "schema", str(error))
            return None
        self.count(kind)
        return found

    def same(self, path, link: str, what: str, said, found) -> None:
        if said != found:
            self.miss(path, link, f"{what}: it says {_short(said)}, found is {_short(found)}")

    def terms(self, path, record: dict, benchmark: str) -> None:
        self.same(path, "terms", "terms_digest", record["terms_digest"], self.study.terms_digest(benchmark))

    @cached_property
    def sums(self) -> dict[str, str]:
        return seal.read_sums(self.study.root / seal.SUMS)


def _short(value) -> str:
    text = value[:12] if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) else repr(value)
    return text if len(text) <= 100 else text[:97] + "..."


def verify(root: Path, expected_seal: str | None = None, left_out: frozenset[str] | None = None) -> dict:
    """Audit the study in the folder ``root``.

    Parameters
    ----------
    expected_seal : the seal that was published, to compare with.
    left_out : of a bundle, the sealed files that it may lack. The records of a bundle are checked by themselves:
        against no file of this project or of this machine's staged data. Of its census the rows, counts and rates are
        derived again, and the rest, which its own table of harness faults decides, is not.

    Returns
    -------
    study, seal, ``checked`` (how many of each kind), ``broken`` (file, link and message of each broken link),
    ``unplanned`` (grades of no planned episode, as a condition leaves them that was taken out) and ``exempt`` (what no
    hash covers).

    Raises
    ------
    UsageError : there is no ``study.json``.
    """
    path = root / "study.json"
    try:
        audit = Audit(Study.read(path))
    except UsageError as error:
        if not path.exists():
            raise
        # There is nothing else to check against.
        broken = [{"file": str(path), "link": "schema", "message": error.message}]
        nothing = {"study": root.name, "seal": None, "checked": {}, "unplanned": [], "exempt": [*seal.EXEMPT]}
        return nothing | {"broken": broken}
    whole = left_out is None
    _verify_seal(audit, expected_seal, left_out or frozenset())
    _verify_plan(audit)
    _verify_terms(audit, whole)
    if whole:
        _verify_staged(audit)
    gates, calibrations = _verify_gates(audit)
    files = _Read(audit, gates)
    grades = {episode: _verify_episode(audit, episode, files) for episode in audit.study.episodes()}
    _verify_census(audit, census.Records(grades, tuple(calibrations), gates), whole)
    return {
        "study": audit.study.name,
        "seal": seal.seal_of(audit.study),
        "checked": audit.checked,
        "broken": audit.broken,
        "unplanned": _unplanned(audit.study),
        "exempt": [*seal.EXEMPT],
    }


def _verify_seal(audit: Audit, expected: str | None, left_out: frozenset[str]) -> None:
    root = audit.study.root
    path = root / seal.SUMS
    if expected is not None:
        audit.same(path, "seal", "the seal", expected, seal.seal_of(audit.study))
    try:
        sums = audit.sums
    except UsageError as error:
        audit.miss(path, "seal", error.message)
        return
    there = seal.sealed_files(audit.study)
    own = set(there)
    for name, said in sums.items():
        # A list from others may name any file of this machine: only the study's own are opened.
        found = audit.sha256(root / name) if name in own else None
        if found is None and name in left_out and not (root / name).exists():
            continue
        audit.count("files")
        if found is None:
            audit.miss(root / name, "seal", "sealed, and missing or unreadable now")
        else:
            audit.same(root / name, "seal", "sha256", said, found)
    for name in there:
        if name not in sums:
            audit.miss(root / name, "seal", "it is not in the seal: added since, or the seal is of an earlier run")


def _verify_plan(audit: Audit) -> None:
    """Compare what is planned with the author's config beside it: an episode that was dropped is in no denominator."""
    frozen, path = audit.study.frozen, audit.study.root / "study.json"
    config = frozen["config"]
    faults = schema_faults(config, "study-config")
    for fault in faults:
        audit.miss(path, "plan", f"config.{fault}")
    if faults:
        return
    audit.same(path, "plan", "repeats", frozen["repeats"], config.get("repeats", 1))
    audit.same(path, "plan", "datasets", frozen["datasets"], config.get("datasets", {}))
    audit.same(path, "plan", "benchmarks", sorted(frozen["benchmarks"]), sorted(config["benchmarks"]))
    for name, section in frozen["benchmarks"].items():
        # Where the config lists none, the benchmark's data said which there are.
        listed = config["benchmarks"].get(name, {}).get("instances", section["instances"])
        audit.same(path, "plan", f"instances of {name}", section["instances"], listed)
    planned, meant = (
        {name: _work(item, list(config["benchmarks"])) for name, item in each.items()}
        for each in (frozen["conditions"], config["conditions"])
    )
    audit.same(path, "plan", "conditions", planned, meant)


def _work(condition: dict, benchmarks: list[str]) -> tuple:
    """What a condition hands in, and at what."""
    return condition["solver"], condition.get("of"), sorted(condition.get("benchmarks", benchmarks))


def _unplanned(study: Study) -> list[str]:
    planned = set(study.grades())
    found = (study.root / "episodes").glob("*/*/*/*/grade.json")
    return sorted(str(path.relative_to(study.root)) for path in found if path not in planned)


def _verify_terms(audit: Audit, with_files: bool) -> None:
    for name, section in audit.study.benchmarks.items():
        path = audit.study.root / "study.json"
        audit.same(path, "terms", f"terms_digest of {name}", section["terms_digest"], digest(section["terms"]))
        for pin in _pins(section["terms"]) if with_files else ():
            place = beside(audit.study.root, pin["path"])
            audit.count("pins")
            audit.same(place, "terms", f"sha256 that the terms of {name} pin", pin["sha256"], audit.sha256(place))


def _pins(value) -> Iterator[dict]:
    """Whatever in some terms names a file and its hash."""
    if isinstance(value, dict):
        if isinstance(value.get("path"), str) and isinstance(value.get("sha256"), str):
            yield value
        for item in value.values():
            yield from _pins(item)
    elif isinstance(value, list):
        for item in value:
            yield from _pins(item)


def _verify_staged(audit: Audit) -> None:
    names = dict.fromkeys(name for section in audit.study.benchmarks.values() for name in section["datasets"])
    for name in names:
        declared = audit.study.frozen["datasets"][name]
        place = beside(audit.study.root, audit.study.staged_path(name))
        audit.count("staged")
        audit.same(place, "staged data", f"sha256 of dataset {name}", declared["sha256"], audit.sha256(place))
        receipt = audit.record(receipt_path(place), "receipt")
        if receipt:
            audit.same(receipt_path(place), "receipt", "sha256", receipt["sha256"], declared["sha256"])


def _verify_gates(audit: Audit) -> tuple[dict, list[dict]]:
    """Calibrations and admissions: each gate is decided again from the calibrations that it names."""
    study, records, gates = audit.study, {}, {}
    for name, section in study.benchmarks.items():
        for instance in section["instances"]:
            paths = study.calibrations(name, instance)
            for path in paths:
                if path not in records:
                    records[path] = _verify_calibration(audit, path, name)
            gate_path = study.admission(name, instance)
            gate = audit.record(gate_path, "admission")
            if gate is None:
                continue
            audit.same(gate_path, "place", "instance", (gate["benchmark"], gate["instance"]), (name, instance))
            audit.terms(gate_path, gate, name)
            hashes = [audit.sha256(path) for path in paths]
            audit.same(gate_path, "calibration", "its calibrations", gate["calibrations"], hashes)
            read = [records[path] for path in paths]
            if all(read):
                calibrations: dict[str, list[dict]] = {}
                for record in read:
                    calibrations.setdefault(record["instance"], []).append(record)
                decided = admission.decide(calibrations)
                audit.same(gate_path, "admission", "decision", {key: gate[key] for key in decided}, decided)
            gates[name, instance] = gate
    return gates, [record for record in records.values() if record]


def _verify_calibration(audit: Audit, path: Path, benchmark: str) -> dict | None:
    record = audit.record(path, "calibration")
    if record:
        said = (record["benchmark"], record["instance"], record["repetition"])
        audit.same(path, "place", "calibration", said, (benchmark, path.parent.name, int(path.stem)))
        audit.terms(path, record, benchmark)
    return record


class _Read(chain.Files):
    """The files of a study for its chains, of which the audit has read and hashed most already."""

    def __init__(self, audit: Audit, gates: dict):
        super().__init__(audit.study)
        self.audit, self.gates = audit, gates
        self.snapshots: dict[Episode, dict | None] = {}

    def admission(self, benchmark: str, instance: str) -> dict | None:
        return self.gates.get((benchmark, instance))

    def receipt(self, dataset: str) -> dict | None:
        """Staged data is checked once for all grades, and by its bytes."""
        return None

    def snapshot(self, episode: Episode) -> dict | None:
        return self.snapshots[episode]

    def archive(self, episode: Episode) -> str | None:
        return self.audit.sha256(self.study.episode_folder(episode) / "submission.tar.gz")

    def evidence(self, episode: Episode, name: str) -> str | None:
        return self.audit.sha256(self.study.episode_folder(episode) / name)


def _verify_episode(audit: Audit, episode: Episode, files: _Read) -> dict | None:
    """Follow one episode from its gate to its grade; its grade, if it can be read."""
    folder = audit.study.episode_folder(episode)
    found = {kind: audit.record(folder / f"{kind}.json", kind) for kind in EPISODE_RECORDS}
    for kind, record in found.items():
        if record:
            audit.same(folder / f"{kind}.json", "place", "episode", record["episode"], episode.as_json())
            audit.terms(folder / f"{kind}.json", record, episode.benchmark)
    snapshot, grade, archive = found["snapshot"], found["grade"], folder / "submission.tar.gz"
    files.snapshots[episode] = snapshot
    if snapshot:
        audit.same(archive, "snapshot", "sha256", snapshot["sha256"], audit.sha256(archive))
        audit.count("snapshots")
    if grade:
        for link in chain.links(audit.study, episode, grade, files):
            # Evidence is named file by file.
            if link.state == chain.BROKEN and link.name != chain.EVIDENCE:
                audit.miss(folder / "grade.json", link.name, f"it says {_short(link.value)}: {link.note}")
        for name, said in grade["evidence"].items():
            audit.count("evidence")
            audit.same(folder / name, "evidence", "sha256", said, audit.sha256(folder / name))
        for path in sorted((folder / "evidence").rglob("*")):
            if path.is_file() and str(path.relative_to(folder)) not in grade["evidence"]:
                audit.miss(path, "evidence", "its grade does not name it")
    return grade


def _verify_census(audit: Audit, records: census.Records, whole: bool) -> None:
    """Derive the census again from what was read, and compare: the whole of it, or what its grades alone decide."""
    study = audit.study
    path, rows_path = study.root / "census" / "census.json", study.root / "census" / "grades.csv"
    said = audit.record(path, "census")
    try:
        census.check_one_study(study, records.grades)
    except AssizeError as error:
        audit.miss(study.root, "census", error.message)
    rows = census.as_csv(census.rows(study, records.grades))
    try:
        same = rows_path.read_bytes() == rows
    except OSError as error:
        audit.miss(rows_path, "census", str(error))
    else:
        if not same:
            audit.miss(rows_path, "census", "its rows are not those of the grades")
    if said is None:
        return
    if whole:
        derived = census.aggregate(study, records, indictment.read_rules(), said["allow_void"])
        derived["rules"] = indictment.table_provenance()
    else:
        derived = _counted(census.aggregate(study, records, allow_void=True), said["conditions"])
        said = _counted(said, said["conditions"])
    # What else the record holds comes from no grade: the seal alone pins it.
    unlike = list(differences({key: said.get(key) for key in derived}, derived))
    for place, first, second in unlike[:SHOWN]:
        audit.same(path, "census", place, first, second)
    if len(unlike) > SHOWN:
        audit.miss(path, "census", f"and {len(unlike) - SHOWN} more differences from what its grades give")


def _counted(record: dict, said: dict) -> dict:
    """Of a census, what is counted from its grades alone; a rate only where ``said`` shows it. Pure."""

    def key(line: dict) -> tuple[str, str]:
        return line["benchmark"], line["condition"]

    shown = {key(line): [rate for rate in RATES if line[rate] is not None] for line in said}
    lines = [{name: line[name] for name in (*COUNTS, *shown.get(key(line), ()))} for line in record["conditions"]]
    return {key: record[key] for key in ("study", "study_digest", "terms", "planned")} | {"conditions": lines}
