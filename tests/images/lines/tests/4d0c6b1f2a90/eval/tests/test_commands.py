"""Every command, on ordinary text."""

import subprocess

import pytest

POEM = "one fish\ntwo fish\n\n\nred  fish\nblue fish\n"

CASES = {
    "number": (["number"], "a\nb\n", "     1  a\n     2  b\n"),
    "reverse": (["reverse"], "a\nb\nc\n", "c\nb\na\n"),
    "flip": (["flip"], "abc\nde\n", "cba\ned\n"),
    "sort": (["sort"], "b\na\nB\n10\n9\n", "10\n9\nB\na\nb\n"),
    "nsort": (["nsort"], "10 x\n9\nnone\n-1.5\n", "-1.5\nnone\n9\n10 x\n"),
    "unique": (["unique"], "a\nb\na\nb\nc\n", "a\nb\nc\n"),
    "head": (["head", "2"], POEM, "one fish\ntwo fish\n"),
    "tail": (["tail", "1"], POEM, "blue fish\n"),
    "upper": (["upper"], "aB1\n", "AB1\n"),
    "lower": (["lower"], "aB1\n", "ab1\n"),
    "count": (["count"], POEM, "6 8 34\n"),
    "trim": (["trim"], "  a b \t\nc\n", "a b\nc\n"),
    "squeeze": (["squeeze"], POEM, "one fish\ntwo fish\n\nred  fish\nblue fish\n"),
    "wrap": (["wrap", "9"], "the quick  brown fox\n", "the quick\nbrown fox\n"),
    "field": (["field", "2"], "a b c\nd\n", "b\n\n"),
    "join": (["join", ", "], "a\nb\nc\n", "a, b, c\n"),
    "freq": (["freq"], POEM, "4 fish\n1 blue\n1 one\n1 red\n1 two\n"),
    "replace": (["replace", "fish", "cat"], "fish fish\nno\n", "cat cat\nno\n"),
    "rot13": (["rot13"], "Hello, z\n", "Uryyb, m\n"),
    "indent": (["indent", "3"], "a\n\nb\n", "   a\n\n   b\n"),
    "match": (["match", "re"], POEM, "red  fish\n"),
    "without": (["without", "fish"], "a fish\nb\n", "b\n"),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_command(name):
    arguments, text, expected = CASES[name]
    done = subprocess.run(["./executable", *arguments], input=text, capture_output=True, text=True, timeout=5)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
