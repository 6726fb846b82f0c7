"""The cases of a study, for its pages: each grade with all that is said of it elsewhere."""

from assize import census
from assize.chain import Files, links
from assize.report.notices import fault_flag
from assize.study import Study


def read_cases(study: Study, grades: dict, record: dict) -> list[dict]:
    """``cases`` with the chain of each grade: reads the records that it stands on, and hashes every snapshot."""
    files = Files(study)
    return cases(study, grades, record, lambda episode, grade: links(study, episode, grade, files))


def cases(study: Study, grades: dict, record: dict, chain) -> list[dict]:
    """One case an episode: its grade, its row of the census, its signatures and harness faults, its chain. Pure.

    ``chain`` gives the links of (episode, grade).
    """
    signatures: dict[str, list[str]] = {}
    for line in record["signatures"]:
        for name in line["episodes"]:
            signatures.setdefault(name, []).append(line["signature"])
    faults: dict[str, set[str]] = {}
    for line in record["conditions"]:
        for fault in line["faults"]:
            for name in fault["episodes"]:
                faults.setdefault(name, set()).add(fault_flag(fault["rule"]))
    return [
        {
            "episode": episode,
            "grade": grade,
            "row": census.row(study, episode, grade),
            "signatures": list(dict.fromkeys(signatures.get(str(episode), ()))),
            "faults": sorted(faults.get(str(episode), ())),
            "links": chain(episode, grade) if grade else [],
        }
        for episode, grade in grades.items()
    ]
