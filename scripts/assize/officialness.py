"""How official a study is: what its grades say of targets, runtime, images, isolation and limits. Pure.

A benchmark states each of its claims in the provenance of a grade as ``official_<what>``: true or false. Nothing is
inferred here.
"""

from collections import Counter
from collections.abc import Iterable

CLAIM = "official_"


def officialness(grades: Iterable[dict]) -> dict[str, dict]:
    """Benchmark -> what its judged grades say, counted.

    Returns
    -------
    ``judged``; ``claims`` (what -> ``{"true": n, "false": n}``); ``lanes``, ``isolated``, ``images`` (by digest),
    ``resource_modes``, ``protocol_versions`` and ``code`` (the digest of what judged) (value -> grades).
    """
    found: dict[str, dict] = {}
    for grade in grades:
        if grade["verdict"] == "void":
            continue
        line = found.setdefault(grade["episode"]["benchmark"], _nothing())
        provenance, sandbox = grade["provenance"], grade["provenance"]["sandbox"]
        line["judged"] += 1
        for key, value in {**sandbox, **provenance}.items():
            if key.startswith(CLAIM) and isinstance(value, bool):
                line["claims"].setdefault(key.removeprefix(CLAIM), Counter())[_word(value)] += 1
        line["lanes"][_word(sandbox.get("lane"))] += 1
        line["isolated"][_word(sandbox.get("isolated"))] += 1
        line["images"][_word(sandbox.get("image_digest"))] += 1
        line["resource_modes"][provenance["resource_mode"]] += 1
        line["protocol_versions"][_word(provenance.get("protocol_version"))] += 1
        line["code"][_word(provenance["versions"].get("assize"))] += 1
    return {
        benchmark: {
            **line,
            "claims": {
                name: {"true": count["true"], "false": count["false"]} for name, count in line["claims"].items()
            },
        }
        for benchmark, line in found.items()
    }


def _nothing() -> dict:
    counters = ("lanes", "isolated", "images", "resource_modes", "protocol_versions", "code")
    return {"judged": 0, "claims": {}} | {name: Counter() for name in counters}


def _word(value) -> str:
    return {True: "true", False: "false", None: "none"}.get(value, str(value))


def reservations(official: dict[str, dict]) -> list[str]:
    """In words: what in these grades is not official, not isolated, or not of one piece."""
    found = []
    for benchmark, line in official.items():
        for name, count in line["claims"].items():
            if count["false"]:
                found.append(f"{benchmark}: {name} not official in {count['false']} of {line['judged']} grades")
        if line["isolated"].get("false"):
            found.append(f"{benchmark}: not isolated in {line['isolated']['false']} of {line['judged']} grades")
        if line["resource_modes"].get("none"):
            found.append(
                f"{benchmark}: no allocation in force in {line['resource_modes']['none']} of {line['judged']} grades"
            )
        if len(line["code"]) > 1:
            counts = ", ".join(f"{count} by {code[:12]}" for code, count in line["code"].items())
            found.append(f"{benchmark}: this workflow's code changed between its grades: {counts}")
    return found
