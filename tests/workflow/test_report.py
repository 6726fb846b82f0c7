"""The report of a real run: what Snakemake's page holds, that it stands alone, and that it follows the grades."""

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from assize.records import read_record
from conftest import SMALL, Project, copy_project
from report_support import Opened, browser, needs_chromium

STUDY = SMALL | {"name": "reported"}


class Reported:
    """A study that was run once, with its report."""

    def __init__(self, project: Project):
        self.project = project
        (project.root / "study.yaml").write_text(yaml.safe_dump(STUDY))
        self.results = project.root / "results" / "reported"
        self.run()
        self.run("--report", "results/reported/report.html")
        self.text = (self.results / "report.html").read_text()

    def run(self, *arguments):
        return self.project.snakemake(*arguments, "--configfile", "study.yaml")

    def variable(self, name: str):
        """What the page's script is given under a name."""
        return json.loads(re.search(rf'<script id="[a-z-]+">\s*var {name} = (.*);\n', self.text)[1])


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    return Reported(Project(copy_project(tmp_path_factory.mktemp("reported") / "project")))


def test_the_report_holds_ten_items_by_benchmark_each_with_a_caption(reported):
    categories = reported.variable("categories")
    assert {name: sum(map(len, parts.values())) for name, parts in categories.items()} == {
        "All benchmarks": 5,
        "Benchmark command": 5,
    }
    results = reported.variable("results")
    assert len(results) == 10
    for item in results.values():
        assert re.match(r"\d\. ", item["labels"]["shows"])
        words = re.sub("<[^>]+>", "", item["caption"]).split()
        assert len(words) > 20
        assert "{{" not in item["caption"]
    assert not any("/episodes/" in path for path in results)


def test_the_report_tells_how_long_each_stage_took_and_how_they_hang_together(reported):
    stages = {"calibrate", "admit", "prepare", "solve", "snapshot", "grade", "census"}
    runtimes = reported.variable("runtimes_spec")
    assert stages <= {line["rule"] for line in runtimes["data"]["values"]}
    assert all(f'"{stage}"' in json.dumps(reported.variable("rulegraph_spec")) for stage in stages)


def test_a_finished_report_is_not_made_again_and_a_new_grade_makes_a_new_one(reported):
    done = reported.run()
    assert "Nothing to be done" in done.stdout + done.stderr
    page = reported.results / "audit.html"
    before = page.read_text()
    grade = reported.results / "episodes/command/noop/longest-line-bash/1/grade.json"
    old = read_record(grade, "grade")["timing"]["started"]
    grade.unlink()
    reported.run()
    new = read_record(grade, "grade")["timing"]["started"]
    assert old != new
    assert new not in before
    assert new in page.read_text()
    assert json.loads(reported.project.script("audit.py", "verify", "results/reported").stdout)["broken"] == []


def test_the_page_s_command_makes_that_grade_again(reported):
    """What the audit page shows for a grade is pasted into a shell, as an auditor would."""
    data = json.loads(
        re.search(
            r'<script type="application/json" id="data">(.*?)</script>', (reported.results / "audit.html").read_text()
        )[1]
    )
    grade = f"{data['root']}/episodes/command/noop/longest-line-bash/1/grade.json"
    before = read_record(reported.project.root / grade, "grade")
    again = f". {Path(sys.executable).parent}/activate; rm {grade}\nsnakemake {grade} {data['workflow']}"
    reported.project.run("sh", "-c", again)
    after = read_record(reported.project.root / grade, "grade")
    assert after["timing"]["started"] != before["timing"]["started"]
    assert (after["verdict"], after["checks"]) == (before["verdict"], before["checks"])
    reported.run()


@needs_chromium
def test_the_report_opens_from_a_file_shows_its_items_and_asks_no_network(reported):
    with browser() as chromium:
        opened = Opened(chromium, reported.results / "report.html")
        page = opened.page
        page.get_by_text("Read first").wait_for()
        assert page.get_by_role("link", name="audit.html").get_attribute("href") == "audit.html"
        page.get_by_text("All benchmarks").first.click()
        page.locator("a[iconname=eye]").first.click()
        frame = page.frame_locator("iframe")
        frame.get_by_role("heading", name="Scores").wait_for()
        assert "no allocation in force" in frame.locator("main").inner_text()
        page.locator("a[iconname=information-circle]").first.click()
        page.get_by_text("What must be read before any number stands on top").wait_for()
        page.goto(page.url.split("#")[0])
        page.get_by_text("Benchmark command").first.click()
        page.locator("a[iconname=eye]").first.click()
        page.locator("img[src*='filename=verdicts.svg']").wait_for()
        assert [url for url in opened.requests if not url.startswith(("file:", "data:", "blob:"))] == []
        own = [text for text in opened.complaints if "tailwindcss" not in text and "Vega-Lite" not in text]
        assert own == []
