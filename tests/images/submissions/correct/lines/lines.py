#!/usr/bin/env python3
"""lines, written anew from its README."""

import re
import sys
from collections import Counter

USAGE = """usage: lines COMMAND [ARGUMENT...] [FILE...]
commands: see README.md
"""
NUMBERED = ("head", "tail", "wrap", "field", "indent")


def fail(message):
    sys.stderr.write(message + "\n")
    raise SystemExit(2)


def words(line):
    return [word for word in re.split(r"[ \t]", line) if word]


def wrap(lines, width):
    out = []
    for line in lines:
        rows = [""]
        for word in words(line):
            if rows[-1] and len(rows[-1]) + 1 + len(word) > width:
                rows.append("")
            rows[-1] += f" {word}" if rows[-1] else word
        out += rows
    return out


def rot13(line):
    def moved(match):
        letter = match[0]
        return chr(ord(letter) + (13 if letter.lower() < "n" else -13))

    return re.sub("[A-Za-z]", moved, line)


def leading(line):
    match = re.match(r"\s*[-+]?(\d+\.?\d*|\.\d+)", line)
    return float(match[0]) if match else 0.0


def squeeze(lines):
    return [line for line, before in zip(lines, ["x", *lines], strict=False) if line or before]


def ascii_case(line, low, high, by):
    return "".join(chr(ord(c) + by) if low <= c <= high else c for c in line)


def field(line, number):
    found = words(line)
    return found[max(number, 1) - 1] if len(found) >= number else ""


def frequencies(lines):
    counted = Counter(word for line in lines for word in words(line))
    return [f"{times} {word}" for word, times in sorted(counted.items(), key=lambda item: (-item[1], item[0]))]


COMMANDS = {
    "number": (0, lambda lines: [f"{number:6d}  {line}" for number, line in enumerate(lines, 1)]),
    "reverse": (0, lambda lines: lines[::-1]),
    "flip": (0, lambda lines: [line[::-1] for line in lines]),
    "sort": (0, sorted),
    "nsort": (0, lambda lines: sorted(lines, key=lambda line: (leading(line), line))),
    "unique": (0, lambda lines: list(dict.fromkeys(lines))),
    "head": (1, lambda lines, number: lines[:number]),
    "tail": (1, lambda lines, number: lines[max(0, len(lines) - number) :]),
    "upper": (0, lambda lines: [ascii_case(line, "a", "z", -32) for line in lines]),
    "lower": (0, lambda lines: [ascii_case(line, "A", "Z", 32) for line in lines]),
    "count": (0, lambda lines: [f"{len(lines)} {sum(len(words(line)) for line in lines)} {sum(map(len, lines))}"]),
    "trim": (0, lambda lines: [line.strip(" \t\n\v\f\r") for line in lines]),
    "squeeze": (0, squeeze),
    "wrap": (1, wrap),
    "field": (1, lambda lines, number: [field(line, number) for line in lines]),
    "join": (1, lambda lines, text: [text.join(lines)] if lines else []),
    "freq": (0, frequencies),
    "replace": (2, lambda lines, old, new: [line.replace(old, new) if old else line for line in lines]),
    "rot13": (0, lambda lines: [rot13(line) for line in lines]),
    "indent": (1, lambda lines, number: [" " * number + line if line else line for line in lines]),
    "match": (1, lambda lines, text: [line for line in lines if text in line]),
    "without": (1, lambda lines, text: [line for line in lines if text not in line]),
}


def read(names):
    data, status = b"", 0
    for name in names:
        try:
            with open(name, "rb") as file:
                content = file.read()
        except OSError:
            sys.stderr.write(f"lines: cannot read {name}\n")
            status = 1
            continue
        data += content if content.endswith(b"\n") or not content else content + b"\n"
    if not names:
        data = sys.stdin.buffer.read()
    text = data.decode("latin-1")
    return (text.removesuffix("\n").split("\n") if text else []), status


def main(command=None, *rest):
    if command == "--version":
        return print("lines 1.0")
    if command == "--help":
        return print(USAGE, end="")
    if command is None:
        fail(USAGE.rstrip())
    if command not in COMMANDS:
        fail(f"lines: unknown command: {command}")
    wanted, work = COMMANDS[command]
    if len(rest) < wanted:
        fail(f"lines: {command} needs {wanted} argument{'s' if wanted > 1 else ''}")
    arguments = [text.encode(errors="surrogateescape").decode("latin-1") for text in rest[:wanted]]
    if command in NUMBERED:
        if not re.fullmatch("[0-9]+", arguments[0]):
            fail(f"lines: not a number: {arguments[0]}")
        arguments[0] = int(arguments[0])
    lines, status = read(rest[wanted:])
    sys.stdout.buffer.write("".join(f"{line}\n" for line in work(lines, *arguments)).encode("latin-1"))
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
