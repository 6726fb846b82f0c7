"""The audit page in a real Chromium, opened from a file as an auditor opens it."""

import random
import socket

import pytest

from assize import census
from assize.records import read_record, write_atomic
from assize.report import page
from conftest import wait_for
from generated_study import frozen as generated
from generated_study import generate
from report import report_study
from report_support import (
    SHA256,
    Opened,
    browser,
    cases_of,
    counted,
    failed,
    frozen,
    graded,
    incident,
    needs_chromium,
    passed,
    void,
)

pytestmark = needs_chromium

# What a candidate may raise, write and name its files, to reach the browser of the one who audits it.
HOSTILE = (
    "</script><script>window.owned = 1</script>",
    "<img src=x onerror='window.owned = 1'>",
    '"><svg onload=window.owned=1>',
    "<!--<script>",
    "{{ 7 * 7 }} {% raw %}",
    "\u202epass\u202c \x1b[31m \x00 \u200b",
    "javascript:window.owned=1",
    "]]>&lt;b&gt;",
)
NAMES = (
    "evidence/grader.log",
    "evidence/page.html",
    'evidence/"><img src=x onerror=window.owned=1>.log',
    "evidence/a b#c?d.log",
    "../../../../../etc/passwd",
    "javascript:window.owned=1",
    "/etc/passwd",
)


@pytest.fixture(scope="module")
def chromium():
    with browser() as started:
        yield started


def write_page(folder, study, grades):
    """The page of grades that lie on no disk."""
    record = counted(study, census.Records(grades))
    path = folder / "audit.html"
    write_atomic(path, page.audit_page(study, record, cases_of(study, grades, record), "config/x.yaml").encode())
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Two benchmarks, two conditions, every verdict."""
    study = frozen("small", {"command": ["a", "b"], "scicode": ["29", "38"]}, ["good", "bad"])
    grades = {}
    for episode in study.episodes():
        body = (
            passed()
            if episode.condition == "good"
            else failed("ValueError: no", "KeyError: 'x'", tamper=["frames:case 1"])
        )
        if (episode.condition, episode.instance) == ("bad", "b"):
            body = void("no_submission", "no submission for task b")
        grades[episode] = graded(study, episode, body)
    return write_page(tmp_path_factory.mktemp("small"), study, grades)


def test_filters_search_and_order_narrow_the_list_and_say_how_far(chromium, small):
    opened = Opened(chromium, small)
    assert opened.count() == "8 grades"
    opened.choose("benchmark", "command")
    assert opened.count() == "4 of 8 grades"
    opened.choose("condition", "bad")
    assert opened.count() == "2 of 8 grades"
    opened.choose("verdict", "void")
    assert len(opened.rows()) == 1
    assert "no submission for task b" in opened.rows()[0]
    # A choice that would leave nothing cannot be made, and says so.
    option = opened.page.locator("#by-flag option[value='tamper: frames']")
    assert option.inner_text() == "tamper: frames (0)"
    assert option.is_disabled()
    opened.page.click("#clear")
    assert opened.count() == "8 grades"
    opened.choose("flag", "tamper: frames")
    assert opened.count() == "3 of 8 grades"
    opened.choose("signature", "KeyError: 'x'")
    assert opened.count() == "3 of 8 grades"
    opened.page.click("#clear")
    opened.page.fill("#search", f"good/38 {SHA256[:20]}")
    wait_for(lambda: opened.count().startswith("1 of"))
    assert "38" in opened.rows()[0]
    opened.page.fill("#search", "nothing is like this")
    wait_for(lambda: opened.count().startswith("0 of"))
    assert "No grade is like that" in opened.page.inner_text("#list")
    opened.page.click("#clear")
    opened.page.select_option("#order", "verdict")
    verdicts = [row.split()[1] for row in opened.rows()]
    assert verdicts == sorted(verdicts)
    assert opened.complaints == []


def test_a_click_opens_a_grade_with_all_that_it_stands_on(chromium, tmp_path):
    study = generate(tmp_path / "results" / "one", generated("one", instances=2, conditions=1), lambda episode: "fail")
    report_study(study, read_record(study.root / "census" / "census.json", "census"), "config/studies/one.yaml")
    path = study.root / "audit.html"
    opened = Opened(chromium, path)
    assert not opened.page.is_visible("#detail")
    opened.page.locator(".case").first.click()
    text = opened.detail()
    for part in ("fail", "failed: why", "AssertionError: task-00000 != 3", "Chain: 6 of 6 links checked"):
        assert part in text
    assert opened.page.locator(".chain .checked").count() == 6
    again = f"snakemake {study.root}/episodes/command/condition-0/task-00000/1/grade.json --profile profiles/local"
    assert f"{again} --configfile config/studies/one.yaml" in text
    assert f"rm {study.root}/episodes/command/condition-0/task-00000/1/grade.json" in text
    assert "python scripts/command_adapter.py grade" in text
    # Links lead to the files beside the page.
    with opened.page.context.expect_page() as shown:
        opened.page.get_by_role("link", name="evidence/grader.log").click()
    assert shown.value.inner_text("body").strip() == "command/condition-0/task-00000/1: fail"
    opened.page.get_by_role("button", name="Close").click()
    assert not opened.page.is_visible("#detail")
    assert opened.complaints == []


def test_a_link_to_an_episode_opens_its_grade_whatever_was_filtered(chromium, small):
    opened = Opened(chromium, small, "#scicode/bad/38/1")
    assert "bad / 38 / 1" in opened.detail()
    opened.choose("condition", "good")
    opened.page.evaluate("location.hash = '#command/bad/b/1'")
    wait_for(lambda: "bad / b / 1" in opened.detail())
    assert opened.count() == "8 grades"
    assert opened.page.locator(".case[aria-selected=true]").inner_text().split()[1] == "void"
    opened.page.evaluate("location.hash = '#command/bad/<img src=x>/1'")
    wait_for(lambda: "No such grade" in opened.count())
    opened.page.evaluate("location.hash = '#%E0%A4%A/x'")
    wait_for(lambda: "%E0%A4%A" in opened.count())
    assert opened.complaints == []


def test_it_can_be_used_with_the_keyboard_alone(chromium, small):
    opened = Opened(chromium, small)
    keyboard = opened.page.keyboard
    keyboard.press("/")
    keyboard.type("command")
    wait_for(lambda: opened.count().startswith("4 of"))
    opened.page.focus("#list")
    keyboard.press("ArrowDown")
    keyboard.press("Enter")
    assert "good / b / 1" in opened.detail()
    assert opened.page.evaluate("document.activeElement.id") == "detail-title"
    keyboard.press("Escape")
    assert not opened.page.is_visible("#detail")
    assert opened.page.evaluate("document.activeElement.id") == "list"
    keyboard.press("End")
    active = opened.page.get_attribute("#list", "aria-activedescendant")
    assert opened.page.locator(f"#{active}").get_attribute("aria-posinset") == "4"
    unlabelled = "[...document.querySelectorAll('input, select')].filter((field) => !field.labels.length).length"
    assert opened.page.evaluate(unlabelled) == 0
    assert opened.complaints == []


def test_what_a_candidate_wrote_is_text_and_nothing_else(chromium, tmp_path):
    study = frozen("hostile", {"command": ["a", "b"]}, ["bad"])
    grades = {}
    for episode in study.episodes():
        body = failed(*HOSTILE, tamper=list(HOSTILE), flags=list(HOSTILE))
        body["checks"] = [
            check | {"id": text, "origin": text} for check, text in zip(body["checks"], HOSTILE, strict=True)
        ]
        body |= {"reason": " ".join(HOSTILE), "detail": {text: text for text in HOSTILE}}
        if episode.instance == "b":
            body = void("infra", " ".join(HOSTILE))
        body["evidence"] = dict.fromkeys(NAMES, SHA256)
        grades[episode] = graded(study, episode, body, command=" ".join(HOSTILE))
    opened = Opened(chromium, write_page(tmp_path, study, grades))
    for row in range(2):
        opened.page.locator(".case").nth(row).click()
        assert "<img src=x onerror='window.owned = 1'>" in opened.detail()
    # A button of a notice finds the grades that it speaks of, whatever the flag is called.
    for button in opened.page.locator(".notice button").all():
        button.click()
        assert opened.count() == "1 of 2 grades"
    opened.page.locator(".case").first.click()
    # What turns or hides text is written out.
    assert "\\u202epass\\u202c \\x1b[31m \\x00 \\u200b" in opened.detail()
    assert "{{ 7 * 7 }}" in opened.detail()
    opened.page.wait_for_timeout(300)
    assert opened.page.evaluate("typeof window.owned") == "undefined"
    assert opened.page.locator("img, iframe, object, embed, main svg:not(.bar)").count() == 0
    links = {link.inner_text(): link for link in opened.page.locator(".files a").all()}
    hrefs = [link.evaluate("link => link.href") for link in links.values()]
    assert all(href.startswith((tmp_path / "episodes/command/bad/a/1").as_uri()) for href in hrefs)
    assert {name for name in NAMES if name not in links} == {"../../../../../etc/passwd", "/etc/passwd"}
    saved = {name for name, link in links.items() if link.get_attribute("download") is not None}
    assert {"evidence/page.html", "javascript:window.owned=1"} <= saved
    assert "evidence/grader.log" not in saved
    assert opened.requests == [(tmp_path / "audit.html").as_uri()]
    assert opened.complaints == []


def test_the_page_runs_no_script_but_its_own_and_asks_no_network(chromium, small, tmp_path):
    """Even where a page was tampered with, its policy holds: what was added does not run and reaches nobody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/"
        added = f"<script>window.owned = 1</script><img src='{address}'><script src='{address}'></script>"
        (tmp_path / "audit.html").write_text(small.read_text().replace("</main>", f"{added}</main>"))
        opened = Opened(chromium, tmp_path / "audit.html")
        opened.page.wait_for_timeout(300)
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert opened.page.evaluate("typeof window.owned") == "undefined"
    assert len(opened.complaints) == 3
    assert all("Content Security Policy" in complaint for complaint in opened.complaints)


def test_the_incident_is_led_by_its_indictment_and_no_rate_is_shown(chromium, tmp_path):
    study, grades = incident()
    opened = Opened(chromium, write_page(tmp_path, study, grades))
    assert opened.page.locator("main > *").first.get_attribute("class") == "notice alarm"
    first = opened.page.inner_text(".notice >> nth=0")
    assert "The harness is indicted: no number of scicode is shown" in first
    assert "no_target: 251 of 287 failures" in first
    assert "no_scicode_module: 36 of 287 failures" in first
    scores = opened.page.inner_text(".scores tbody")
    assert "withheld" in scores
    assert "%" not in scores
    opened.page.locator(".notice button").first.click()
    shown = sum(any("target" in (check["signature"] or "") for check in grade["checks"]) for grade in grades.values())
    assert opened.count() == f"{shown} of 65 grades"
    assert opened.complaints == []


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """5,000 grades, as unlike each other as grades are."""
    study = frozen("large", {"command": [f"task-{n:03d}" for n in range(500)]}, ["a", "b", "c", "d", "e"], repeats=2)
    chance = random.Random(1)
    kinds = [f"ValueError: shape {kind} at {kind}" for kind in "abcdefghijklmnopqrstuvwxyz"]
    grades = {}
    for episode in study.episodes():
        body = passed() if chance.random() < 0.5 else failed(*chance.sample(kinds, 4))
        grades[episode] = graded(study, episode, body, snapshot=f"{chance.getrandbits(256):064x}")
    return write_page(tmp_path_factory.mktemp("large"), study, grades)


def test_five_thousand_grades_are_a_short_list_of_rows_and_soon_on_the_screen(chromium, large, record_property):
    opened = Opened(chromium, large)
    opened.page.wait_for_selector(".case")
    painted = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    record_property("audit page of 5,000 grades: first paint, ms", round(opened.page.evaluate(painted)))
    loaded = "performance.getEntriesByType('navigation')[0].loadEventEnd"
    record_property("audit page of 5,000 grades: loaded, list included, ms", round(opened.page.evaluate(loaded)))
    record_property("audit page of 5,000 grades: MB", round(large.stat().st_size / 1e6, 2))
    timed = """() => { const start = performance.now(); const choice = document.getElementById('by-condition');
      choice.value = 'c'; choice.dispatchEvent(new Event('change')); return performance.now() - start; }"""
    record_property("audit page of 5,000 grades: a filter, ms", round(opened.page.evaluate(timed)))
    assert opened.count() == "1000 of 5000 grades"
    opened.page.click("#clear")
    for place in (0.0, 0.37, 1.0):
        opened.page.evaluate(f"document.getElementById('list').scrollTop = {place} * 1e7")
        opened.page.wait_for_timeout(100)
        assert 0 < opened.page.locator(".case").count() < 60
    assert opened.page.locator(".case").last.get_attribute("aria-posinset") == "5000"
    assert opened.page.evaluate("document.querySelectorAll('*').length") < 1500
    assert opened.complaints == []


def test_a_narrow_window_shows_one_thing_at_a_time_and_scrolls_only_down(chromium, small):
    opened = Opened(chromium, small, viewport={"width": 390, "height": 800}, color_scheme="dark")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    opened.page.locator(".case").nth(1).click()
    box = opened.page.locator("#detail").bounding_box()
    assert (box["width"], box["height"]) == (390, 800)
    opened.page.get_by_role("button", name="Close").click()
    assert opened.page.locator(".case").first.is_visible()
    assert opened.complaints == []


def test_on_paper_the_chosen_grades_are_a_table(chromium, small):
    opened = Opened(chromium, small)
    opened.choose("condition", "bad")
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    opened.page.emulate_media(media="print")
    table = opened.page.inner_text("#printed")
    assert "4 grades" in table
    assert "command/bad/b/1" in table
    assert not opened.page.is_visible("#list")
    opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened.page.locator("#printed tr").count() == 0
