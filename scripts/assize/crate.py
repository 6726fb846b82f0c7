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

    inside, (started, ended) = f"results/{study.name}", _times(study)
    made = ROCrate(version="1.1")
    made.name = f"Graded study {study.name}"
    made.description = (
        f"Grades of {len(study.frozen['conditions'])} conditions at {', '.join(study.benchmarks)}, with the frozen "
        "work, the evidence and the calibrations that they stand on. scripts/reproduce.py of Assize grades it again."
    )
    made.datePublished = ended
    made.metadata.extra_contexts.append(TERMS)
    made.license = _add(made, "#license", "CreativeWork", name="The terms of the benchmarks and of the work's authors")
    workflow = made.add_workflow(
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
    # After the workflow, which names its own profile alone.
    profiles = [_add(made, url, "CreativeWork", name=name, version=of) for url, (name, of) in PROFILES.items()]
    made.root_dataset["conformsTo"] = profiles
    told = f"{inside}/study.json", "The study, frozen with all its pins"
    parameter = _add(made, "#study", "FormalParameter", additionalType="File", name="study", valueRequired=True)
    for entity, kind in ((workflow, "ComputationalWorkflow"), (parameter, "FormalParameter")):
        url = f"https://bioschemas.org/profiles/{kind}/1.0-RELEASE"
        entity["conformsTo"] = _add(made, url, "CreativeWork", name=kind, version="1.0-RELEASE")
    workflow["input"] = parameter
    planned = _file(made, *told)
    planned["exampleOfWork"] = parameter
    results = [_file(made, f"{inside}/{name}", words) for name, words in RESULTS.items()]
    workflow["hasPart"] = [_file(made, name) for name in names if name.startswith("rules/")]
    for name in names:
        if name.startswith(("envs/", "inputs/", "config/")) or "/" not in name:
            # The workflow is there already.
            entity = None if name == "Snakefile" else _file(made, name)
            if name == "README.md":
                entity["about"] = made.root_dataset
    folders = [
        made.add_dataset(dest_path=f"{inside}/{name}/", properties={"name": name, "description": words})
        for name, words in FOLDERS.items()
    ]
    action = _add(
        made,
        f"#grading-{study.name}",
        "CreateAction",
        name=f"The grading of study {study.name}",
        description="Calibration of the references, then the grading of every episode's frozen work, then the census",
        startTime=started,
        endTime=ended,
        actionStatus="http://schema.org/CompletedActionStatus",
    )
    action["instrument"], action["object"], action["result"] = workflow, planned, [*results, *folders]
    made.root_dataset["mentions"] = action
    metadata = made.metadata.generate()
    metadata["@graph"].sort(key=lambda entity: entity["@id"])
    return json.dumps(metadata, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"


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
