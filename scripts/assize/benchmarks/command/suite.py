"""Suites of command-graded tasks (kind ``agent-learning.bench-suite.v1``, grading ``command``)."""

from dataclasses import dataclass
from pathlib import Path

from assize.archive import Rejected, check_file_map
from assize.errors import UsageError
from assize.records import schema_faults, sha256_file, strict_json

KIND = "agent-learning.bench-suite.v1"


@dataclass(frozen=True)
class Task:
    """One task. Maps are path -> content; ``timeout_s`` bounds the build and the grader, each."""

    id: str
    instruction: str
    grader_cmd: str
    grader_files: dict[str, str]
    reference_files: dict[str, str]
    files: dict[str, str]
    build: str | None
    timeout_s: float | None
    language: str | None
    image: str | None
    canary: str | None


@dataclass(frozen=True)
class Suite:
    name: str
    version: str
    modality: str
    sha256: str
    tasks: dict[str, Task]


def read_suite(path, sha256: str | None = None) -> Suite:
    """Read and check a suite.

    Raises
    ------
    UsageError : the file is missing, not strict JSON, not the pinned one, or breaks the form; every fault is named by
        task and field.
    """
    try:
        found = sha256_file(path)
        content = strict_json(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError("missing_suite", f"{path}: no such suite") from None
    except ValueError as error:
        raise UsageError("bad_suite", f"{path}: not a suite: {error}") from None
    if sha256 is not None and found != sha256:
        raise UsageError("other_suite", f"{path}: sha256 is {found}, the study's terms say {sha256}")
    faults = suite_faults(content)
    if faults:
        lines = "\n".join(f"  {fault}" for fault in faults)
        raise UsageError("bad_suite", f"{path}: {len(faults)} fault(s):\n{lines}")
    tasks = {}
    for raw in content["tasks"]:
        optional = {key: raw.get(key) for key in ("build", "timeout_s", "language", "image", "canary")}
        required = {key: raw[key] for key in ("id", "instruction", "grader_cmd", "grader_files", "reference_files")}
        tasks[raw["id"]] = Task(files=raw.get("files", {}), **required, **optional)
    return Suite(content["name"], str(content.get("version", "")), content.get("modality", "coding"), found, tasks)


def suite_faults(content) -> list[str]:
    """Every fault of a suite's content, each with the task's id and the field. Pure."""
    faults = [_with_task_id(fault, content) for fault in schema_faults(content, "suite")]
    if faults:
        return faults
    seen = set()
    for raw in content["tasks"]:
        if raw["id"] in seen:
            faults.append(f"task {raw['id']}: id: it is given twice")
        seen.add(raw["id"])
        for field in ("files", "grader_files", "reference_files"):
            try:
                check_file_map(raw.get(field, {}))
            except Rejected as reason:
                faults.append(f"task {raw['id']}: {field}: {reason}")
    return faults


def _with_task_id(fault: str, content) -> str:
    """``tasks.3.build: ...`` as ``task <id>: build: ...``."""
    path, _, sentence = fault.partition(": ")
    parts = path.split(".")
    if parts[0] != "tasks" or len(parts) < 2:
        return fault
    raw = content["tasks"][int(parts[1])]
    name = raw.get("id") if isinstance(raw, dict) else None
    field = ".".join(parts[2:])
    return f"task {name or 'number ' + parts[1]}: {field + ': ' if field else ''}{sentence}"
