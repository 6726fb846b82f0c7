"""Records on disk: canonical JSON, checked against its schema, written whole or not at all."""

import hashlib
import json
import os
import tempfile
from functools import cache
from pathlib import Path

from assize.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "config" / "schemas"


def canonical(value) -> bytes:
    """The one byte form of a JSON value: sorted keys, no spaces, UTF-8; NaN raises ValueError."""
    return _utf8(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False))


def _utf8(text: str) -> bytes:
    """JSON text as bytes. A lone surrogate, which a candidate may print, is no UTF-8: it becomes JSON's own escape."""
    return text.encode(errors="backslashreplace")


def digest(value) -> str:
    """sha256 (64 hex digits) of the canonical form of a JSON value."""
    return hashlib.sha256(canonical(value)).hexdigest()


def sha256_file(path) -> str:
    """sha256 (64 hex digits) of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomic(path, data: bytes, mode: int = 0o644) -> None:
    """Write ``data`` beside ``path``, fsync, then rename: a reader sees the old file or the new one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def strict_json(text: str):
    """Parse JSON as the standard has it: NaN, Infinity and a key given twice raise ValueError."""

    def unique(pairs):
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            raise ValueError(f"a key is given twice: {sorted(k for k in set(keys) if keys.count(k) > 1)}")
        return dict(pairs)

    def reject(constant):
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=reject)
    except RecursionError:
        raise ValueError("nested too deeply") from None


@cache
def _validator(name: str):
    import jsonschema
    import referencing

    def load(uri):
        return json.loads((SCHEMAS / uri).read_text())

    registry = referencing.Registry(
        retrieve=lambda uri: referencing.Resource.from_contents(load(uri)),
    )
    return jsonschema.Draft202012Validator(load(f"{name}.schema.json"), registry=registry)


def _describe(error) -> tuple[str, str]:
    """Key path and one sentence for a jsonschema error."""
    path = ".".join(str(part) for part in error.absolute_path) or "(top level)"
    shown = json.dumps(error.instance, default=str)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    rule, allowed = error.validator, error.validator_value
    if rule == "additionalProperties" and isinstance(error.instance, dict):
        known = sorted(error.schema.get("properties", {}))
        unknown = sorted(set(error.instance) - set(known))
        return path, f"unknown key {', '.join(unknown)}; allowed: {', '.join(known)}"
    if rule == "required":
        missing = [key for key in allowed if key not in error.instance]
        return path, f"missing {', '.join(missing)}; required: {', '.join(allowed)}"
    if rule == "enum":
        return path, f"{shown} is not allowed; allowed: {', '.join(map(str, allowed))}"
    if rule == "type":
        allowed = allowed if isinstance(allowed, str) else " or ".join(allowed)
        return path, f"{shown} has the wrong type; allowed: {allowed}"
    note = error.schema.get("description", "")
    return path, f"{shown} is not allowed; allowed: {rule} {json.dumps(allowed)}" + (f" ({note})" if note else "")


def schema_faults(value, name: str) -> list[str]:
    """All the faults of ``value`` against ``config/schemas/<name>.schema.json``, as ``key.path: sentence``."""
    faults = set()
    for error in _validator(name).iter_errors(value):
        leaves = [error]
        while leaves:
            leaf = leaves.pop()
            if leaf.context and leaf.validator in ("anyOf", "oneOf"):
                # Of several alternatives, the one that got furthest is what the author meant.
                depth = max(len(item.absolute_path) for item in leaf.context)
                leaves += [item for item in leaf.context if len(item.absolute_path) == depth]
            else:
                faults.add("{}: {}".format(*_describe(leaf)))
    return sorted(faults)


def check(value, name: str, source) -> None:
    """Raise UsageError with every fault of ``value``, which came from the file ``source``."""
    faults = schema_faults(value, name)
    if faults:
        lines = "\n".join(f"  {fault}" for fault in faults)
        raise UsageError("bad_record", f"{source}: {len(faults)} fault(s) against schema {name}:\n{lines}")


def _schema_name(record: dict) -> str:
    return str(record.get("schema", "")).removeprefix("assize.").split("/")[0]


def dump(record: dict) -> bytes:
    """The bytes of a record's file."""
    return _utf8(json.dumps(record, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)) + b"\n"


def write_record(path, record: dict) -> None:
    """Check a record against the schema it names (``assize.<name>/<version>``), then write it."""
    check(record, _schema_name(record), path)
    write_atomic(path, dump(record))


def read_record(path, name: str) -> dict:
    """Read a record of the kind ``name``.

    Raises
    ------
    UsageError : the file is missing, is not strict JSON, is of another kind or breaks its schema.
    """
    try:
        record = strict_json(Path(path).read_text())
    except FileNotFoundError:
        raise UsageError("missing_record", f"{path}: no such {name} record") from None
    except ValueError as error:
        raise UsageError("bad_record", f"{path}: not a {name} record: {error}") from None
    check(record, name, path)
    return record
