"""The ProgramBench numbers of a condition: the mean fraction of tests, and how many tasks are nearly resolved. Pure."""

# As the official package has it (``programbench.submission``).
NEAR_RESOLVED = 0.95


def summary(grades: dict) -> dict:
    """The mean ``analysis_score`` over what was scored, and over all that was planned.

    Parameters
    ----------
    grades : episode -> grade, or None where there is none.

    Returns
    -------
    ``mean_score`` (None where nothing was scored), ``mean_score_over_planned`` (what was not scored counts as 0, as on
    the official leaderboard), ``near_resolved`` as [reached, planned].
    """
    scores = [grade["analysis_score"] for grade in grades.values() if grade and grade["valid"]]
    return {
        "score": {
            "mean_score": round(sum(scores) / len(scores), 4) if scores else None,
            "mean_score_over_planned": round(sum(scores) / len(grades), 4),
            "near_resolved": [sum(score >= NEAR_RESOLVED for score in scores), len(grades)],
        }
    }
