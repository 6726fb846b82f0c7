"""What the report and the audit page say: the chain of each grade, what must be read first, what a figure can show."""

import json
import re
from xml.etree import ElementTree

import pytest

import report
from assize import audit, census
from assize.chain import BROKEN, CHECKED, UNCHECKED, Files, Link, links
from assize.records import digest, read_record
from assize.report import figures, notices, packing, page, tables
from assize.report.text import script_json, visible
from generated_study import frozen as generated
from generated_study import generate
from report_support import SHA256, cases_of, counted, failed, frozen, graded, incident, passed, void


def record_of(study, grades) -> dict:
    return counted(study, census.Records(grades))


def study_of(bodies: dict[str, dict], conditions=("model",)):
    """A command study in which each instance ends in one way; its grades, its census record, its cases."""
    study = frozen("small", {"command": list(bodies)}, list(conditions))
    grades = {episode: graded(study, episode, bodies[episode.instance]) for episode in study.episodes()}
    record = record_of(study, grades)
    return study, record, cases_of(study, grades, record)


# Text


def test_text_shows_what_it_hides_in_one_line_of_bounded_length():
    assert visible("a\x1b[31m\n\u202eb\u2066\ufeff\ud800é…") == "a\\x1b[31m\\n\\u202eb\\u2066\\ufeff\\ud800é…"
    assert visible("x" * 500, 10) == "x" * 9 + "…"
    assert visible(visible("\u202e\n")) == visible("\u202e\n")


def test_json_in_a_page_cannot_end_its_element():
    value = ["</script><!--", "&amp;", "\u2028\ud800", {"a": None}]
    text = script_json(value)
    assert not re.search(r"[<>&\u2028]", text)
    assert text.isascii()
    assert json.loads(text) == value


# The chain


@pytest.fixture
def finished(tmp_path):
    """A study of two instances on disk, every record in its place."""
    return generate(tmp_path / "results" / "small", generated("small", instances=2, conditions=1))


def chain_of(study) -> dict[str, Link]:
    episode = study.episodes()[0]
    grade = read_record(study.episode_folder(episode) / "grade.json", "grade")
    return {link.name: link for link in links(study, episode, grade, Files(study))}


def test_each_link_of_an_untouched_grade_is_checked(finished):
    found = chain_of(finished)
    assert list(found) == ["terms", "calibration", "admission", "snapshot", "evidence", "verdict"]
    assert {link.state for link in found.values()} == {CHECKED}


@pytest.mark.parametrize(
    ("name", "change", "broken"),
    [
        ("submission.tar.gz", lambda path: path.write_bytes(path.read_bytes() + b"x"), "snapshot"),
        ("submission.tar.gz", lambda path: path.unlink(), "snapshot"),
        ("snapshot.json", lambda path: path.unlink(), "snapshot"),
        ("evidence/grader.log", lambda path: path.write_text("nothing to see"), "evidence"),
        ("evidence/grader.log", lambda path: path.unlink(), "evidence"),
        (
            "{root}/calibration/command/task-00000/2.json",
            lambda path: path.write_text(path.read_text() + " "),
            "calibration",
        ),
        ("{root}/calibration/command/task-00000/1.json", lambda path: path.unlink(), "calibration"),
        ("{root}/admission/command/task-00000.json", lambda path: path.unlink(), "admission"),
    ],
)
def test_a_link_is_broken_where_its_file_was_changed_or_is_gone(finished, name, change, broken):
    folder = finished.episode_folder(finished.episodes()[0])
    change(finished.root / name.format(root=finished.root) if "{root}" in name else folder / name)
    found = chain_of(finished)
    assert found[broken].state == BROKEN
    others = {link.name for link in found.values() if link.state == BROKEN} - {broken}
    # Without its gate, a grade's calibrations cannot be told either.
    assert others == ({"calibration"} if broken == "admission" else set())


def test_other_terms_and_another_pin_than_the_study_s_are_broken(finished):
    section = finished.frozen["benchmarks"]["command"]
    section["terms"]["allocation"] = {"cpus": 1, "memory": "1g"}
    assert chain_of(finished)["terms"].state == BROKEN
    study = frozen("small", {"command": ["a"]}, ["model"])
    episode = study.episodes()[0]
    grade = graded(study, episode, passed(), suite=digest("another"), targets=SHA256)
    found = {link.name: link for link in links(study, episode, grade, Files(study))}
    assert (found["suite"].state, found["suite"].note) == (BROKEN, "the terms pin another suite")
    assert found["targets"].state == UNCHECKED


def test_a_pin_is_held_by_what_was_stated_at_calibration_too(finished):
    """A manifest that the terms pin by its bytes is stated by what was read from it, then as now."""
    episode = finished.episodes()[0]
    grade = read_record(finished.episode_folder(episode) / "grade.json", "grade")
    grade["provenance"]["suite"] = digest("as it was read")
    paths = finished.calibrations("command", episode.instance)

    def state() -> str:
        return next(link.state for link in links(finished, episode, grade, Files(finished)) if link.name == "suite")

    assert state() == BROKEN
    record = json.loads(paths[0].read_text())
    paths[0].write_text(json.dumps(record | {"detail": {"suite": digest("as it was read")}}))
    assert state() == CHECKED


def test_what_cannot_be_read_again_here_is_said_to_be_unchecked():
    study = frozen("small", {"command": ["a"]}, ["model"])
    study.frozen["datasets"] = {"suite": {"filename": "suite.json", "sha256": SHA256, "size": 1, "sources": []}}
    study.benchmarks["command"]["datasets"] = ["suite"]
    episode = study.episodes()[0]
    sandbox = {"lane": "container", "isolated": True, "image": "base", "image_digest": f"sha256:{SHA256}"}
    grade = graded(study, episode, passed(), sandbox=sandbox)
    found = {link.name: link for link in links(study, episode, grade, Files(study))}
    assert found["dataset suite"].state == found["image"].state == UNCHECKED
    assert found["suite"].state == CHECKED


def test_a_judgement_behind_a_barred_gate_is_broken(finished):
    path = finished.admission("command", "task-00000")
    path.write_text(path.read_text().replace('"open"', '"barred"'))
    assert chain_of(finished)["admission"].state == BROKEN


# What is read first


def test_a_sound_study_says_so_and_nothing_else():
    _, record, found = study_of({"a": passed(), "b": failed("AssertionError")})
    record["official"] = {}
    assert [(notice.kind, notice.title) for notice in notices.notices(record, found)] == [
        ("calm", "Nothing is withheld")
    ]


def test_the_indictment_leads_then_broken_chains_then_voids_then_reservations():
    study, grades = incident("one")
    record = record_of(study, grades)
    found = cases_of(study, grades, record)
    found[0]["links"] = [Link("snapshot", BROKEN, SHA256, "gone")]
    record["void_reasons"] = {"infra": ["scicode/one/1/1: the node died"] * 7}
    record["conditions"][0]["void"] = 7
    shown = notices.notices(record, found)
    assert [notice.kind for notice in shown] == ["alarm", "alarm", "warn", "note"]
    first, second = shown[0].items
    assert first.what == "no_target: 251 of 287 failures of scicode, in one"
    assert first.example == "77: 77.1: NameError: name 'target' is not defined"
    assert "stage the h5 file" in first.remedy
    assert second.what == "no_scicode_module: 36 of 287 failures of scicode, in one"
    assert shown[1].title == "The chain of 1 grade is broken"
    assert shown[2].items[0].example.endswith("and 2 more")


def test_a_fault_of_many_conditions_is_one_line_with_their_sum():
    _, record, found = study_of({str(n): failed("OSError: no such file or directory") for n in range(12)}, "abcdef")
    (item,) = notices.notices(record, found)[0].items
    assert re.match(r"\w+: 72 of 72 failures of command, in a, b, c, d and 2 more conditions", item.what)
    assert all(item.flag in packing.flags(case) for case in found)


# What the audit page carries


def unpacked(packed: dict, index: int = 0) -> tuple[list, list]:
    return packed["rows"][index], packed["details"][index]


def test_of_many_checks_the_ones_that_did_not_pass_are_kept():
    checks = [{"id": f"case {n}", "verdict": "pass", "signature": None} for n in range(1000)]
    checks[998] = {"id": "case 998", "verdict": "fail", "signature": "KeyError", "origin": "tests", "seconds": 0.123456}
    study, _, found = study_of({"a": failed("x") | {"checks": checks}})
    packed = packing.pack(study, found, "--profile x")
    _, (_, shown, total, *_) = unpacked(packed)
    assert (len(shown), total) == (packing.CHECKS_SHOWN, 1000)
    texts = [packed["strings"][place] for place in (shown[0][0], shown[0][2], shown[0][3])]
    assert texts == ["case 998", "KeyError", "origin tests; seconds 0.1235"]


def test_an_episode_without_a_grade_has_its_row():
    study = frozen("small", {"command": ["a"]}, ["model"])
    grades = dict.fromkeys(study.episodes())
    found = cases_of(study, grades, record_of(study, grades))
    packed = packing.pack(study, found, "")
    row, detail = unpacked(packed)
    assert packed["strings"][row[5]] == "not_graded"
    assert detail[:5] == [[], [], 0, [], []]
    assert packing.flags(found[0]) == ["not graded"]


def test_strings_that_return_are_carried_once():
    study, _, found = study_of({str(n): failed("the same") for n in range(50)})
    packed = packing.pack(study, found, "")
    assert len(packed["strings"]) == len(set(packed["strings"]))
    assert len(packed["strings"]) < 50 + 60


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("none", "--profile profiles/local --configfile 'config/a study.yaml'"),
        ("slurm", "--profile profiles/slurm --configfile 'config/a study.yaml'"),
        (
            "container",
            "--profile profiles/local --configfile 'config/a study.yaml' --config resource_mode=container attempts=3",
        ),
    ],
)
def test_the_command_that_makes_a_grade_again_asks_for_the_mode_it_was_made_in(mode, options):
    study = frozen("small", {"command": ["a"]}, ["model"])
    study.benchmarks["command"]["terms"]["resource_mode"] = mode
    assert packing.workflow_options(study, "config/a study.yaml") == options


def test_flags_tell_tampering_reward_faults_exposure_and_two_readings():
    body = failed("KeyError", tamper=["frames:1.1", "frames:1.2"], flags=["score_disagrees"], oracle_exposed=True)
    body["checks"][0]["protocol_sensitive"] = True
    _, _, found = study_of({"a": body})
    assert packing.flags(found[0]) == [
        "oracle exposed",
        "protocol-sensitive",
        "reward: score_disagrees",
        "tamper: frames",
    ]


def test_facts_say_where_and_under_what_a_grade_was_made():
    study = frozen("small", {"command": ["a"]}, ["model"])
    slurm = {"job_id": "7_1", "node": "n1", "cpus": 16, "memory_mb": None, "partition": "p", "account": "a"}
    sandbox = {"lane": "subprocess", "isolated": False, "image": None}
    made = {"slurm": slurm, "sandbox": sandbox, "official_targets": False}
    facts = dict(packing.facts(graded(study, study.episodes()[0], passed(), **made)))
    assert facts["Slurm"] == "job 7_1 on n1: 16 CPUs, memory not accounted"
    assert facts["sandbox"] == "subprocess, NOT isolated"
    assert facts["official targets"] == "NO"


# Tables


def test_a_table_is_a_page_of_text_whatever_its_cells_say():
    hostile = "<script>alert(1)</script>\u202e"
    table = tables.Table(hostile, (("a", "mono"),), [(hostile,)] * (tables.ROWS_SHOWN + 3))
    text = page.table_page(frozen("small", {"command": ["a"]}, ["model"]), table)
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e" in text
    assert text.count("<tr>") == 1 + tables.ROWS_SHOWN
    assert "3 more lines" in text


def test_a_column_in_which_nothing_stands_is_left_out():
    table = tables.Table("t", (("a", "text"), ("b", "text"), ("c", "number")), [("x", "", 0), ("y", "", 1)])
    assert table.filled.columns == (("a", "text"), ("c", "number"))
    assert table.filled.rows == [("x", 0), ("y", 1)]


def test_withheld_scores_are_withheld_in_the_table_with_their_reason():
    _, record, _ = study_of({"a": passed(), "b": void("infra", "infra: the node died")})
    (row,) = tables.scores(record).rows
    assert row == ("command", "model", 2, 1, 0, 1, "", "withheld", "withheld", "", "1 of 2 void")


def test_calibrations_that_need_a_look_come_first():
    line = {
        "benchmark": "command",
        "checks": [],
        "flags": [],
        "passed": 2,
        "reasons": [],
        "repetitions": 2,
        "seconds": 1.0,
    }
    lines = [
        line | {"instance": "fine", "status": "open", "flaky": False},
        line | {"instance": "flaky", "status": "open", "flaky": True},
        line | {"instance": "barred", "status": "barred", "flaky": False},
    ]
    table = tables.calibration({"calibrations": lines}, "command")
    assert [row[0] for row in table.rows] == ["barred", "flaky", "fine"]
    assert table.lead == "2 of 3 instances were admitted."


def test_provenance_counts_the_grades_of_each_link():
    study, _, found = study_of({"a": passed(), "b": passed()})
    found[1]["links"] = [Link("snapshot", BROKEN, SHA256, "gone")]
    table = tables.provenance(study, found)
    assert ("command", "pinned: suite.sha256", digest("command"), "", "", "") in table.rows
    assert ("command", "stated by grades: snapshot", "gone", 0, 0, 1) in table.rows
    assert table.lead == "1 of 2 episodes have a broken link."


# Figures


def rows_of(instances: int, conditions=("a", "b"), repeats=1, verdict="pass") -> list[dict]:
    return [
        {"benchmark": "command", "condition": condition, "instance": f"task-{n}", "repeat": str(r), "verdict": verdict}
        for condition in conditions
        for n in range(instances)
        for r in range(1, repeats + 1)
    ]


def lines_of(faulty=()) -> list[dict]:
    return [{"condition": "a", "faults": [{"indicts": True, "episodes": list(faulty)}]}]


@pytest.mark.parametrize(("instances", "blocks"), [(3, 1), (45, 1), (500, 6)])
def test_a_map_of_any_size_names_every_instance_in_letters_that_can_be_read(instances, blocks):
    drawn = figures.verdict_map(rows_of(instances, repeats=2), lines_of(), "verdicts")
    axes = [place for place in drawn.axes if place.axison]
    labels = [label for place in axes for label in place.get_yticklabels()]
    assert len(axes) == blocks
    assert [label.get_text() for label in labels] == [f"task-{n}" for n in range(instances)]
    assert min(label.get_fontsize() for label in labels) >= 7
    # Inches of a row, so that labels do not run into each other.
    assert drawn.get_figheight() / min(instances, 90) > 7 / 72
    ElementTree.fromstring(figures.as_svg(drawn))


def test_a_map_beyond_its_size_says_what_it_leaves_out():
    drawn = figures.verdict_map(rows_of(1000, conditions="a"), lines_of(), "verdicts")
    assert drawn.get_suptitle() == "verdicts; the first 900 of 1000 instances"


def test_a_fault_of_the_harness_is_told_from_an_answer_and_nothing_by_colour_alone():
    rows = rows_of(2, verdict="fail") + rows_of(1, conditions="c") + rows_of(1, conditions="d", verdict="void")
    drawn = figures.verdict_map(rows, lines_of(["command/a/task-0/1"]), "verdicts")
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == list(figures.MEANINGS.values())
    hatches = [patch.get_hatch() for patch in legend.get_patches()]
    assert hatches == [None, None, "////", "xxxx"]
    # Pass and fail differ in lightness, so that a print without colour tells them apart.
    lightness = [sum(patch.get_facecolor()[:3]) for patch in legend.get_patches()]
    assert lightness[1] - lightness[0] > 0.8


def test_scores_show_their_interval_or_why_they_are_withheld():
    _, record, _ = study_of({"a": passed(), "b": failed("KeyError"), "c": void("infra", "x")}, ["model"])
    withheld = record["conditions"][0]
    _, record, _ = study_of({"a": passed(), "b": failed("KeyError")}, ["other"])
    drawn = figures.score_bars([withheld, *record["conditions"]], "scores")
    words = [text.get_text() for text in drawn.axes[0].texts]
    assert words == ["withheld: 1 of 3 void", "50.0%", "50.0%"]
    assert len(drawn.axes[0].containers) == 4  # two bars, each with its interval
    ElementTree.fromstring(figures.as_svg(drawn))


def test_the_same_figure_is_the_same_file():
    first, second = (figures.as_svg(figures.verdict_map(rows_of(5), lines_of(), "verdicts")) for _ in range(2))
    assert first == second


# The command


def test_a_report_breaks_no_seal_and_is_the_same_when_made_again(finished):
    record = read_record(finished.root / "census" / "census.json", "census")

    def make() -> dict[str, bytes]:
        paths = report.report_study(finished, record, "config/study.yaml")
        paths += report.report_benchmark(finished, record, "command")
        return {path: open(path, "rb").read() for path in paths}

    first = make()
    assert len(first) == 11
    assert make() == first
    # Where the page says that more lies, it lies.
    assert [path for _, path in page.more(finished) if not (finished.root / path).is_file()] == []
    assert audit.verify(finished.root)["broken"] == []


def test_an_unknown_benchmark_is_named_with_what_is_allowed(finished):
    from assize.errors import UsageError

    with pytest.raises(UsageError, match="--benchmark magic: not in the study; allowed: command"):
        report.main(["benchmark", "--study", str(finished.root / "study.json"), "--benchmark", "magic"])


# Colours of the pages


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb``. Source: WCAG 2.2."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(scheme):
    blocks = re.findall(r":root \{(.*?)\}", (page.ASSETS / "page.css").read_text(), re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[scheme]))
    behind = {name: ["sheet", f"{name}-wash"] for name in ("pass", "fail", "void", "alarm", "warn")}
    behind |= {"ink": ["paper", "sheet", "wash", "alarm-wash", "warn-wash"], "soft": ["paper", "sheet", "wash"]}
    behind["accent"] = ["paper", "sheet"]
    for text, backgrounds in behind.items():
        for background in backgrounds:
            dark, light = sorted((luminance(colours[text]), luminance(colours[background])))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, background)
