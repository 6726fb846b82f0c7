"""Failure signatures: how something failed, in one line that two runs of one fault share. Pure.

Paths, addresses, times, line numbers and numbers are folded; kept are the type of the exception and, of a traceback,
the innermost frame of a library: the one that lies at the same place in every project.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

# A text may be a candidate's whole output: only so much of it is read, and only so much is kept.
MAX_READ = 20_000
MAX_KEPT = 200
EXAMPLES = 3

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_FRAME = re.compile(r'^\s*File "([^"]+)", line \d+(?:, in (\S+))?', re.MULTILINE)
_LIBRARY = re.compile(r"/(?:site-packages|dist-packages|python3\.\d+)/(?!site-packages|dist-packages)(.+)$")
_EXCEPTION = re.compile(
    r"^(?:E\s+)?((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Warning|Exit|Interrupt|Iteration)\b.*)"
)
# What a traceback ends with: Python's own names of exceptions have no ending in common.
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?=:|$)")
# The frame that a one-line signature was given by whoever saw the traceback.
_GIVEN_FRAME = re.compile(r" @ ([\w./+-]+\.py:[\w.<>]+)$")
_RELATIVE_PATH = re.compile(r"(?<![\w./+<-])[\w.+-]+(?:/[\w.+-]+)+")
# A part of a path that is another one in each run: a temporary name, a number of a run or a job.
_VARYING_PART = re.compile(r"tmp[\w.-]*|[A-Za-z][\w.]*[-_]\d+|[A-Za-z][\w.-]*\d{4,}[\w.-]*")
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_FOLDS = (
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<address>"),
    (re.compile(rf"\b\d{{4}}-\d\d-\d\d(?:[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?)?(?!\w)"), "<time>"),
    (re.compile(rf"\b{_CLOCK}(?!\w)"), "<time>"),
    (re.compile(r"(?<![\w./<])(?:\.{1,2}|~)?/[^\s'\"`:;,()<>\[\]]+"), "<path>"),
    (re.compile(r"(?<=<path>):\d+(?::\d+)?"), ":<n>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b"), "<hex>"),
    (re.compile(r"\b(?=[0-9A-F]*\d)(?=[0-9A-F]*[A-F])[0-9A-F]{8,}\b"), "<hex>"),
)
# The number of an exit status, a signal or an errno is no detail: it is the kind of the failure.
_KIND = (
    r"\b(?:exit(?:ed|s)?|return(?:ed|s)?|status|rc|signal|errno)(?:[ _]?(?:status|code|with))*[ =:(]+-?\d+\b(?!\.\d)"
)
# Whole numbers, or none: else the first digits of one would do. A unit that is written to it stays.
_UNIT = r"(?:[nuµm]?s|secs?|mins?|h|[KMGTP]?i?B|[KMGTP]|x|j|[KMG]?Hz)"
_NUMBER = re.compile(
    rf"({_KIND})|(?<!\w)[-+]?(?>(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:E[-+]?\d+)?)(?={_UNIT}?(?!\w))", re.IGNORECASE
)
_NUMBERS = re.compile(r"<n>(?:[\s,;x*+-]+<n>)+")


@dataclass(frozen=True)
class Failure:
    """One thing that failed or was not judged: a failed check, or a grade whose checks do not say why.

    ``reads`` is where ``text`` comes from: ``check`` (the signature of a failed check), ``grade`` (the reason of a fail
    none of whose checks has a signature) or ``void`` (the reason of a grade that was not judged).
    """

    reads: str
    episode: str
    benchmark: str
    condition: str
    instance: str
    text: str
    signature: str
    status: str
    check: str | None = None
    origin: str | None = None
    phase: str | None = None
    fault: str | None = None

    @property
    def example(self) -> str:
        where = f"{self.instance}: {self.check}" if self.check else self.instance
        return plain(f"{where}: {self.text[:MAX_KEPT]}")


def plain(text: str) -> str:
    """One line that is safe to print: what a candidate made is no terminal's command."""
    return " ".join("".join(c if c.isprintable() else " " for c in _ANSI.sub("", text)).split())


def normalise(text: str | None) -> str:
    """The signature of what was printed or recorded of a failure: one line, at most MAX_KEPT characters.

    Of a traceback, or of pytest's ``E`` lines, it is the exception and the innermost library frame, written
    ``ValueError: message @ numpy/linalg/_linalg.py:solve``; one that is written so already keeps its frame. Of anything
    else it is the text itself, folded.
    """
    text = _ANSI.sub("", (text or "")[-MAX_READ:])
    lines = [line for line in map(plain, text.splitlines()) if line]
    if not lines:
        return "no word of why"
    given = _GIVEN_FRAME.search(lines[0]) if len(lines) == 1 else None
    if given:
        shown, frame = lines[0][: given.start()], given[1][: MAX_KEPT // 2]
    else:
        shown, frame = _exception(text, lines) or " ".join(lines), _library_frame(text)
    suffix = f" @ {frame}" if frame else ""
    return _fold(shown)[: MAX_KEPT - len(suffix)] + suffix


def _exception(text: str, lines: list[str]) -> str | None:
    """The line that names the exception, of a text of several lines."""
    if len(lines) < 2:
        return None
    *_, after = _FRAME.split(text)
    # Below the innermost frame what is indented is its source; what is not is the exception.
    for line in after.splitlines()[1:] if after != text else ():
        if line and not line[0].isspace():
            if _RAISED.match(line):
                return plain(line)
            break
    raised = [match[1] for line in lines if (match := _EXCEPTION.match(line))]
    return raised[-1] if raised else None


def _library_frame(text: str) -> str | None:
    """The innermost one of the last traceback: those before it are of exceptions that led to this one."""
    for path, function in reversed(_FRAME.findall(text.rpartition("Traceback (most recent call last)")[2])):
        found = _LIBRARY.search(path)
        if found:
            return f"{found[1]}:{function or '<module>'}"[: MAX_KEPT // 2]
    return None


def _fold(text: str) -> str:
    for pattern, name in _FOLDS:
        text = pattern.sub(name, text)
    text = _RELATIVE_PATH.sub(lambda match: "<path>" if _varies(match[0]) else match[0], text)
    text = _NUMBER.sub(lambda match: match[1] or "<n>", text)
    text = _NUMBERS.sub("<n>...", text)
    return " ".join(text.split())


def _varies(path: str) -> bool:
    return any(_VARYING_PART.fullmatch(part) for part in path.split("/"))


def failures(grades: Iterable[dict]) -> list[Failure]:
    """What failed, and what was not judged, in some grades."""
    return [failure for grade in grades for failure in _of_grade(grade)]


def _of_grade(grade: dict) -> list[Failure]:
    episode = grade["episode"]
    common = {
        "episode": "{benchmark}/{condition}/{instance}/{repeat}".format(**episode),
        **{key: episode[key] for key in ("benchmark", "condition", "instance")},
        "status": grade["scoring_status"],
    }
    if grade["verdict"] == "pass":
        return []
    failed = [check for check in grade["checks"] if check["verdict"] == "fail"]
    # A grader that only names what failed says more in the grade's reason than in so many empty signatures.
    if grade["verdict"] == "void" or not any(check.get("signature") for check in failed):
        reads, text = ("void" if grade["verdict"] == "void" else "grade"), grade["reason"] or ""
        return [Failure(reads, text=text, signature=f"{grade['scoring_status']}: {normalise(text)}", **common)]
    return [
        Failure(
            "check",
            text=check.get("signature") or "",
            signature=normalise(check.get("signature")),
            check=check["id"],
            **{key: check.get(key) for key in ("origin", "phase", "fault")},
            **common,
        )
        for check in failed
    ]


def table(found: Iterable[Failure], rules: dict[Failure, str]) -> list[dict]:
    """The signature table of a study: the most frequent first.

    Parameters
    ----------
    found : of all grades of the study.
    rules : failure -> the harness-fault rule that claims it.

    Returns
    -------
    For each signature of a benchmark (told apart by the origin that raised it and by whether it was judged):
    count, how many in each condition, the affected episodes, examples as they were written, and the rule.
    """
    groups: dict[tuple, list[Failure]] = {}
    for failure in found:
        key = (failure.benchmark, failure.signature, failure.origin or "", failure.reads, rules.get(failure) or "")
        groups.setdefault(key, []).append(failure)
    lines = []
    for (benchmark, signature, origin, reads, rule), members in groups.items():
        lines.append(
            {
                "benchmark": benchmark,
                "signature": signature,
                "origin": origin or None,
                "reads": reads,
                "rule": rule or None,
                "count": len(members),
                "conditions": dict(sorted(Counter(member.condition for member in members).items())),
                "episodes": sorted({member.episode for member in members}),
                "examples": [member.example for member in members[:EXAMPLES]],
            }
        )
    return sorted(lines, key=lambda line: (-line["count"], line["benchmark"], line["signature"], line["origin"] or ""))
