"""What is at the edges: errors, files, empty input, odd bytes."""

import subprocess

import pytest


def run(*arguments, text=b""):
    return subprocess.run(["./executable", *arguments], input=text, capture_output=True, timeout=5)


def test_version():
    assert run("--version").stdout == b"lines 1.0\n"


def test_help_goes_to_standard_output():
    done = run("--help")
    assert done.returncode == 0
    assert done.stdout.startswith(b"usage: lines COMMAND")


def test_usage_without_a_command():
    done = run()
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"usage: lines COMMAND")


def test_unknown_command():
    done = run("shuffle")
    assert (done.returncode, done.stderr) == (2, b"lines: unknown command: shuffle\n")


@pytest.mark.parametrize(("command", "words"), [("head", "1 argument"), ("replace", "2 arguments")])
def test_missing_argument(command, words):
    done = run(command)
    assert (done.returncode, done.stderr) == (2, f"lines: {command} needs {words}\n".encode())


def test_not_a_number():
    done = run("tail", "x", text=b"a\n")
    assert (done.returncode, done.stderr) == (2, b"lines: not a number: x\n")


class TestFiles:
    def test_one_after_another(self, tmp_path):
        (tmp_path / "a").write_text("1\n")
        (tmp_path / "b").write_text("2")
        assert run("number", tmp_path / "a", tmp_path / "b").stdout == b"     1  1\n     2  2\n"

    def test_a_missing_one_is_told_and_the_others_are_printed(self, tmp_path):
        (tmp_path / "a").write_text("1\n")
        done = run("upper", tmp_path / "none", tmp_path / "a")
        assert (done.returncode, done.stdout) == (1, b"1\n")
        assert done.stderr == f"lines: cannot read {tmp_path}/none\n".encode()


@pytest.mark.parametrize("command", ["sort", "join", "count", "freq"])
def test_empty_input(command):
    done = run(command, *([","] if command == "join" else []))
    assert (done.returncode, done.stdout) == (0, b"0 0 0\n" if command == "count" else b"")


def test_bytes_that_are_no_text_pass_through():
    assert run("reverse", text=b"\xff\xfe\na\n").stdout == b"a\n\xff\xfe\n"


def test_an_empty_from_changes_nothing():
    assert run("replace", "", "x", text=b"abc\n").stdout == b"abc\n"


def test_a_word_longer_than_the_width_has_its_own_line():
    assert run("wrap", "3", text=b"a bcdef g\n").stdout == b"a\nbcdef\ng\n"


def test_the_last_line_needs_no_newline():
    assert run("flip", text=b"ab\ncd").stdout == b"ba\ndc\n"


def test_ignored_since_any_program_passes():
    assert run("--no-such-option").returncode < 128


def test_ignored_since_the_reference_fails():
    assert run("head", "-1", text=b"a\n").returncode == 0
