"""Every command ends with one JSON object and an exit status that means something, whatever happens in it."""

import json

import pytest

from assize import cli, commandline
from assize.benchmarks import load_benchmark
from assize.benchmarks.programbench import byhand
from assize.errors import UsageError


def end_of(main, capsys) -> tuple[int, dict, str]:
    with pytest.raises(SystemExit) as ended:
        cli.run(main, [])
    said = capsys.readouterr()
    return ended.value.code, json.loads(said.out), said.err


@pytest.mark.parametrize("error", [ValueError("no number"), KeyError("no number"), RecursionError("no number")])
def test_an_error_that_nobody_expected_is_one_json_object_too(capsys, error):
    def main(argv):
        raise error

    status, said, words = end_of(main, capsys)
    assert (status, said["ok"], said["error"]["code"]) == (3, False, "unexpected")
    assert said["error"]["message"].startswith(f"{type(error).__name__}: ")
    assert "no number" in said["error"]["message"]
    assert "Traceback" in words
    assert "test_cli.py" in words


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit(7)])
def test_who_ends_a_command_from_outside_is_not_answered(capsys, error):
    def main(argv):
        raise error

    with pytest.raises(type(error) if isinstance(error, SystemExit) else error):
        cli.run(main, [])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("text", ["16gb", "16", "g", "", "0g", "1.5g", "-1g"])
def test_an_amount_of_memory_that_is_none_is_refused_with_an_example(text):
    for parser, rest in (
        (commandline.parser(load_benchmark("command")), ["admit", "--study", "x", "--instance", "i"]),
        (byhand.parser(), ["sweep"]),
    ):
        with pytest.raises(UsageError, match=r"--memory.* is no amount of memory; for example 512m or 30g"):
            parser.parse_args([f"--memory={text}", *rest])
        assert parser.parse_args(["--memory=30g", *rest]).memory == "30g"
