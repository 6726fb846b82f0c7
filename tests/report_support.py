"""What the tests of the report share: studies made of grades alone, on no disk, and a real browser."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from assize import adapter, census, indictment
from assize.chain import CHECKED, Link
from assize.records import digest
from assize.report.cases import cases as cases_with
from assize.study import Episode, Study

# Of any archive: these studies lie on no disk.
SHA256 = "5a" * 32
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")


def frozen(name: str, benchmarks: dict[str, list[str]], conditions: list[str], repeats: int = 1) -> Study:
    """A study of these instances, as ``study.json`` has it."""
    sections = {}
    for benchmark, instances in benchmarks.items():
        terms = {
            "allocation": {"cpus": 16, "memory": "30g"},
            "benchmark": benchmark,
            "protocol_version": "1",
            "resource_mode": "none",
            "sandbox": {"lane": "bubblewrap"},
            "suite": {"path": "suite.json", "sha256": digest(benchmark)},
        }
        sections[benchmark] = {
            "datasets": [],
            "files": [],
            "instances": instances,
            "minutes": 5,
            "repetitions": 1,
            "terms": terms,
            "terms_digest": digest(terms),
        }
    names = list(benchmarks)
    work = {benchmark: dict.fromkeys(instances, digest("work")) for benchmark, instances in benchmarks.items()}
    return Study(
        {
            "schema": "assize.study/1",
            "name": name,
            "benchmarks": sections,
            "conditions": {c: {"solver": "noop", "benchmarks": names, "work": work} for c in conditions},
            "repeats": repeats,
            "datasets": {},
        }
    )


def graded(study: Study, episode: Episode, body: dict, **provenance) -> dict:
    """A grade of an episode: ``body`` is what a benchmark says of it."""
    terms = study.terms_digest(episode.benchmark)
    return {
        "schema": "assize.grade/2",
        "episode": episode.as_json(),
        "terms_digest": terms,
        "checks": [],
        "tamper": [],
        "flags": [],
        "detail": {},
        "oracle_exposed": False,
        "evidence": {},
        **body,
        "provenance": {
            "terms": terms,
            "snapshot": SHA256,
            "calibration": digest([]),
            "protocol_version": "1",
            "versions": {"python": "3.11.7"},
            "sandbox": {"lane": "bubblewrap", "isolated": True, "image": None, "image_digest": None},
            "resource_mode": "none",
            "slurm": None,
            "attempt": 1,
            "command": f"python scripts/{episode.benchmark}_adapter.py grade --study results/{study.name}/study.json",
            "suite": digest(episode.benchmark),
            **provenance,
        },
        "timing": {"started": "2026-11-30T12:00:00Z", "seconds": 1.25},
    }


def passed(**more) -> dict:
    checks = [{"id": "case 1", "verdict": "pass", "signature": None}]
    body = {"verdict": "pass", "valid": True, "score": 1.0, "analysis_score": 1.0, "scoring_status": "passed"}
    return body | {"reason": "1 of 1 checks pass", "checks": checks} | more


def failed(*signatures: str, **more) -> dict:
    checks = [
        {"id": f"case {number}", "verdict": "fail", "signature": signature}
        for number, signature in enumerate(signatures, 1)
    ]
    return adapter.failed("failed", f"0 of {len(checks)} checks pass") | {"checks": checks} | more


void = adapter.void


def counted(study: Study, records: census.Records) -> dict:
    record = census.aggregate(study, records, indictment.read_rules())
    return record | {"rules": indictment.table_provenance()}


def cases_of(study: Study, grades: dict[Episode, dict | None], record: dict) -> list[dict]:
    """The cases of a study that lies on no disk: each grade with one link, checked."""
    link = Link("snapshot", CHECKED, SHA256, "submission.tar.gz, hashed again, and snapshot.json")
    return cases_with(study, grades, record, lambda episode, grade: [link])


def incident(condition: str = "first-live-run") -> tuple[Study, dict[Episode, dict]]:
    """The historic incident: 0% of SciCode's test split, 251 times no target and 36 times no scicode module.

    One of the 288 steps passed: it compares nothing. Source: the protocol's census.
    """
    from assize.benchmarks.scicode.benchmark import manifest

    test = manifest()["test"]
    study = frozen("incident", {"scicode": list(test)}, [condition])
    kinds = iter(
        ["NameError: name 'target' is not defined"] * 251 + ["ModuleNotFoundError: No module named 'scicode'"] * 36
    )
    grades = {}
    for episode in study.episodes():
        scored = [number for number, cases in enumerate(test[episode.instance], 1) if cases]
        checks = [_incident_check(f"{episode.instance}.{number}", next(kinds, None)) for number in scored]
        good = sum(check["verdict"] == "pass" for check in checks)
        body = adapter.failed("not_solved", f"{good} of {len(checks)} steps pass") | {"checks": checks}
        grades[episode] = graded(study, episode, body, official_targets=False, official_runtime=False)
    return study, grades


def _incident_check(number: str, signature: str | None) -> dict:
    verdict = "fail" if signature else "pass"
    return {
        "id": number,
        "verdict": verdict,
        "signature": signature,
        "phase": "tests",
        "origin": "tests",
        "fault": None,
    }


@contextmanager
def browser():
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright

    # As root, as in CI, Chromium starts without its own sandbox or not at all.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            yield chromium
        finally:
            chromium.close()


class Opened:
    """A page from a file, and all that it complained of, asked for from a network, or popped up."""

    def __init__(self, chromium, path: Path, fragment: str = "", **options):
        self.complaints, self.requests = [], []
        options = {"viewport": {"width": 1440, "height": 900}} | options
        self.page = chromium.new_context(**options).new_page()
        self.page.on("console", self._told)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._asked)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(f"{path.as_uri()}{fragment}")

    def _told(self, message) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _asked(self, dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def count(self) -> str:
        return self.page.inner_text("#count")

    def choose(self, facet: str, value: str) -> None:
        self.page.select_option(f"#by-{facet}", value)

    def rows(self) -> list[str]:
        """The rows that exist, as text."""
        return self.page.locator(".case").all_inner_texts()

    def detail(self) -> str:
        return self.page.inner_text("#detail")
