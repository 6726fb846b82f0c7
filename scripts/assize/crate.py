"""The RO-Crate of a bundle: a Workflow Run Crate, so that a reader who does not know Assize finds their way.

Source: https://w3id.org/ro/wfrun/workflow/0.5, on RO-Crate 1.1 and Workflow RO-Crate 1.0.
"""

import json

from assize.records import read_record
from assize.study import Study

PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}
TERMS = "https://w3id.org/ro/terms/workflow-run/context"
# Folder or file of the study -> what it is. All files have their hash in the list of the seal.
FOLDERS = {
    "calibration": "Gradings of the references and canaries, before any candidate was graded",
    "admission": "For each instance, whether its calibration opened the gate",
    "episodes": "For each episode, the frozen work (submission.tar.gz), its grade (grade.json) and the evidence for it",
}
RESULTS = {
    "census/census.json": "The aggregate over all planned episodes, with the harness-fault check",
    "census/grades.csv": "One row for each planned episode",
    "census/SHA256SUMS": "The sha256 of every file that the numbers stand on; its own is the seal",
}
FORMATS = {".json": "application/json", ".csv": "text/csv", ".md": "text/markdown", ".yaml": "application/yaml"}


def crate(study: Study, names: list[str], version: str) -> bytes:
    """The metadata file of a bundle that holds the files ``names``: the same bytes for the same study.

    ``version`` is the project's.
    """
    from rocrate.rocrate import ROCrate

    made, times = ROCrate(version="1.1"), _times(study)
    workflow = _workflow(made, version)
    # After the workflow, which names its own profile alone.
    _root(made, study, times[1])
    planned = _plan(made, workflow, study)
    results = _results(made, study)
    workflow["hasPart"] = [_file(made, name) for name in names if name.startswith("rules/")]
    _rest(made, names)
    _grading(made, study.name, times, workflow, planned, results)
    metadata = made.metadata.generate()
    metadata["@graph"].sort(key=lambda entity: entity["@id"])
    return json.dumps(metadata, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def _root(made, study: Study, published: str) -> None:
    """The crate itself: what it is of, and by which profiles it says so."""
    made.name = f"Graded study {study.name}"
    made.description = (
        f"Grades of {len(study.frozen['conditions'])} conditions at {', '.join(study.benchmarks)}, with the frozen "
        "work, the evidence and the calibrations that they stand on. scripts/reproduce.py of Assize grades it again."
    )
    made.datePublished = published
    made.metadata.extra_contexts.append(TERMS)
    made.license = _add(made, "#license", "CreativeWork", name="The terms of the benchmarks and of the work's authors")
    profiles = [_add(made, url, "CreativeWork", name=name, version=of) for url, (name, of) in PROFILES.items()]
    made.root_dataset["conformsTo"] = profiles


def _workflow(made, version: str):
    return made.add_workflow(
        dest_path="Snakefile",
        main=True,
        lang="snakemake",
        properties={
            "name": "Assize",
            "description": "A Snakemake workflow that grades coding-benchmark studies",
            "version": version,
            "encodingFormat": "text/plain",
        },
    )


def _plan(made, workflow, study: Study):
    """The frozen study, as the one parameter of the workflow."""
    parameter = _add(made, "#study", "FormalParameter", additionalType="File", name="study", valueRequired=True)
    for entity, kind in ((workflow, "ComputationalWorkflow"), (parameter, "FormalParameter")):
        url = f"https://bioschemas.org/profiles/{kind}/1.0-RELEASE"
        entity["conformsTo"] = _add(made, url, "CreativeWork", name=kind, version="1.0-RELEASE")
    workflow["input"] = parameter
    planned = _file(made, f"results/{study.name}/study.json", "The study, frozen with all its pins")
    planned["exampleOfWork"] = parameter
    return planned


def _results(made, study: Study) -> list:
    inside = f"results/{study.name}"
    files = [_file(made, f"{inside}/{name}", words) for name, words in RESULTS.items()]
    return files + [
        made.add_dataset(dest_path=f"{inside}/{name}/", properties={"name": name, "description": words})
        for name, words in FOLDERS.items()
    ]


def _rest(made, names: list[str]) -> None:
    """What else lies in the bundle, but for the workflow, which is there already."""
    for name in names:
        if name != "Snakefile" and (name.startswith(("envs/", "inputs/", "config/")) or "/" not in name):
            entity = _file(made, name)
            if name == "README.md":
                entity["about"] = made.root_dataset


def _grading(made, name: str, times: tuple[str, str], workflow, planned, results: list) -> None:
    """The one run of the workflow that the bundle is of."""
    action = _add(
        made,
        f"#grading-{name}",
        "CreateAction",
        name=f"The grading of study {name}",
        description="Calibration of the references, then the grading of every episode's frozen work, then the census",
        startTime=times[0],
        endTime=times[1],
        actionStatus="http://schema.org/CompletedActionStatus",
    )
    action["instrument"], action["object"], action["result"] = workflow, planned, results
    made.root_dataset["mentions"] = action


def _add(made, identifier: str, kind: str, **properties):
    from rocrate.model import ContextEntity

    return made.add(ContextEntity(made, identifier, {"@type": kind, **properties}))


def _file(made, name: str, words: str | None = None):
    suffix = name[name.rfind(".") :] if "." in name else ""
    properties = {"name": words or name, "encodingFormat": FORMATS.get(suffix, "text/plain")}
    return made.add_file(dest_path=name, properties=properties)


def _times(study: Study) -> tuple[str, str]:
    """(when its first grade began, when its last one began), UTC: facts of the study, not of the bundling."""
    times = sorted(read_record(path, "grade")["timing"]["started"] for path in study.grades())
    return tuple(time.replace("Z", "+00:00") for time in (times[0], times[-1]))
