"""The SciCode numbers of a condition: steps and problems over denominators from the manifest. Pure."""

from assize.benchmarks.scicode.benchmark import manifest, split_of

# The given steps have no test cases. Some reports count them: 291 = 288 + 3.
STEPS_WITH_GIVEN = 291


def steps(episode, grade: dict | None) -> tuple[int, int]:
    """(scored steps that passed, scored steps) of one episode."""
    planned = sum(count > 0 for count in manifest()[split_of(episode.instance)][episode.instance])
    return sum(check["verdict"] == "pass" for check in (grade or {"checks": []})["checks"]), planned


def summary(grades: dict) -> dict:
    """Steps and problems passed, by split.

    Parameters
    ----------
    grades : episode -> grade, or None where there is none; the repeats of a problem are all counted.

    Returns
    -------
    split -> ``steps`` and ``problems`` as [passed, planned], ``steps_other_extraction`` (passed under the extraction
    that is not the primary one) and ``protocol_sensitive`` (steps that the two judge from unlike code). ``all`` is over
    both splits where the study has both. ``variant_of_291`` is the whole test split over 291, once.
    """
    totals = {}
    for episode, grade in grades.items():
        split = split_of(episode.instance)
        passed, planned = steps(episode, grade)
        checks = grade["checks"] if grade else []
        for name in (split, "all"):
            line = totals.setdefault(name, dict.fromkeys(_FIELDS, 0))
            line["steps_passed"] += passed
            line["steps"] += planned
            line["problems_passed"] += bool(grade) and grade["verdict"] == "pass"
            line["problems"] += 1
            line["other"] += sum((check.get("other_verdict") or check["verdict"]) == "pass" for check in checks)
            line["sensitive"] += sum(bool(check.get("protocol_sensitive")) for check in checks)
    if len(totals) == 2:
        del totals["all"]
    result = {
        name: {
            "steps": [line["steps_passed"], line["steps"]],
            "problems": [line["problems_passed"], line["problems"]],
            "steps_other_extraction": line["other"],
            "protocol_sensitive": line["sensitive"],
        }
        for name, line in totals.items()
    }
    if "test" in totals and totals["test"]["steps"] == sum(c > 0 for cs in manifest()["test"].values() for c in cs):
        result["test"]["variant_of_291"] = [totals["test"]["steps_passed"], STEPS_WITH_GIVEN]
    return result


_FIELDS = ("steps_passed", "steps", "problems_passed", "problems", "other", "sensitive")
