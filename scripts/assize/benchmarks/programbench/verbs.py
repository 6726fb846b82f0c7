"""The benchmark's own verbs in the workflow's form, and what both forms share; by hand: byhand.py."""

from pathlib import Path

from assize.benchmarks.programbench import official
from assize.benchmarks.programbench.engine import find_engine, find_images
from assize.benchmarks.programbench.manifest import check_blobs, open_task, read_manifest
from assize.errors import InfrastructureError, UsageError
from assize.records import write_record
from assize.study import Study, repository


def add_options(parser) -> None:
    """Global arguments, of both forms."""
    parser.add_argument("--programbench-root", help="a clean checkout of the official package at the pinned revision")
    parser.add_argument("--evaluator-wheelhouse", help="made by evaluator_wheelhouse.py; must be the calibration's")


def add_study_verbs(verbs, benchmark) -> None:
    images = verbs.add_parser("images", help="are the images of a study's tasks on this node?")
    images.set_defaults(call=lambda arguments: study_images(benchmark, arguments))
    fetch = verbs.add_parser("fetch", help="download the test blobs of a study's tasks, at the dataset's pin")
    fetch.set_defaults(call=lambda arguments: study_fetch(benchmark, arguments))
    for verb in (images, fetch):
        verb.add_argument("--study", required=True, help="results/<study>/study.json")


def _open(benchmark, arguments):
    """(context, manifest, tasks) of a study, without what only an evaluator needs."""
    from assize.adapter import Context

    study = Study.read(arguments.study)
    if benchmark.name not in study.benchmarks:
        raise UsageError("bad_usage", f"{arguments.study}: the study has no benchmark {benchmark.name}")
    context = Context(benchmark, study, arguments.engine, options=arguments)
    manifest = read_manifest(repository(context.terms["manifest"]["path"]))
    if context.terms["tasks"]:
        tasks = repository(context.terms["tasks"])
    else:
        tasks = official.find_official(arguments.programbench_root or context.terms["package"]["root"]).tasks
    return context, [open_task(manifest, tasks, name) for name in study.benchmarks[benchmark.name]["instances"]]


def study_images(benchmark, arguments) -> dict:
    context, tasks = _open(benchmark, arguments)
    engine = find_engine(context.engine or context.terms["sandbox"].get("engine"))
    record = {"schema": "assize.images/1", "engine": engine.name, "images": find_images(engine, tasks)}
    write_record(context.study.root / "runtime" / "images" / f"{benchmark.name}.json", record)
    return {"ok": True, "record": record}


def study_fetch(benchmark, arguments) -> dict:
    from assize.benchmarks.programbench.benchmark import blobs_of

    context, tasks = _open(benchmark, arguments)
    folder = blobs_of(context)
    download_blobs([task.id for task in tasks], folder)
    blobs = {task.id: check_blobs(task, folder) for task in tasks}
    record = {"schema": "assize.fetched/1", "folder": str(folder), "blobs": blobs}
    write_record(context.study.root / "runtime" / "fetched" / f"{benchmark.name}.json", record)
    return {"ok": True, "record": record}


def download_blobs(instances: list[str], folder: Path) -> None:
    """Download the test blobs of some tasks into ``folder``: anonymously, at the pinned revision.

    Raises
    ------
    InfrastructureError : the dataset is out of reach.
    """
    from filelock import FileLock
    from huggingface_hub import snapshot_download

    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        try:
            snapshot_download(
                official.BLOB_REPOSITORY,
                repo_type="dataset",
                revision=official.BLOB_REVISION,
                allow_patterns=[f"{instance}/tests/*" for instance in instances],
                local_dir=folder,
                token=False,
            )
        # The hub's client has errors of many bases; none of them is a result.
        except Exception as error:
            name = f"{official.BLOB_REPOSITORY}@{official.BLOB_REVISION[:12]}"
            raise InfrastructureError(
                "not_fetched",
                f"test blobs ({name}): {type(error).__name__}: {str(error)[:300]}",
                "try again, or set blobs",
            ) from None
