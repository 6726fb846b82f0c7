"""``test_data.h5`` files: write targets in the official format, cut out some steps, list what is there."""

import sys


def write_targets(file, step: str, targets: list) -> None:
    """Write the targets of a step's cases under ``<step>/test<i>/var<j>``: a tuple is several variables."""
    for number, target in enumerate(targets, 1):
        group = file.create_group(f"{step}/test{number}")
        for index, value in enumerate(target if isinstance(target, tuple) else (target,), 1):
            _write(group, f"var{index}", value)


def _write(group, name: str, value) -> None:
    import numpy as np
    import scipy.sparse

    if scipy.sparse.issparse(value):
        _write_sparse(group.create_group(f"{name}/sparse_matrix"), value)
    elif isinstance(value, dict):
        members = group.create_group(name)
        for key, item in value.items():
            if scipy.sparse.issparse(item):
                _write_sparse(members.create_group(f"{key}/sparse_matrix"), item)
            else:
                members.create_dataset(str(key), data=item)
    elif isinstance(value, list | tuple) and _is_ragged(value):
        members = group.create_group(f"{name}/list")
        for index, item in enumerate(value, 1):
            members.create_dataset(f"var{index}", data=item)
    elif isinstance(value, str):
        group.create_dataset(name, data=value)
    else:
        group.create_dataset(name, data=np.asarray(value))


def _is_ragged(value) -> bool:
    """Whether a sequence is no array of numbers."""
    import numpy as np

    try:
        return np.asarray(value).dtype == object
    except ValueError:
        return True


def _write_sparse(group, matrix) -> None:
    """The members by which the reader tells the formats apart: row and col (COO), blocksize (BSR), else compressed."""
    group.create_dataset("data", data=matrix.data)
    group.create_dataset("shape", data=matrix.shape)
    if matrix.format == "coo":
        group.create_dataset("row", data=matrix.row)
        group.create_dataset("col", data=matrix.col)
    else:
        compressed = matrix if matrix.format in ("csr", "csc", "bsr") else matrix.tocsr()
        group.create_dataset("indices", data=compressed.indices)
        group.create_dataset("indptr", data=compressed.indptr)
        if matrix.format == "bsr":
            group.create_dataset("blocksize", data=matrix.blocksize)


def cut(source: str, target: str, steps: list[str]) -> None:
    """Copy the groups of some steps, and the file's attributes, to a new file. A step that is not there is left out."""
    import h5py

    with h5py.File(source, "r") as old, h5py.File(target, "w") as new:
        for name, value in old.attrs.items():
            new.attrs[name] = value
        for step in steps:
            if step in old:
                old.copy(step, new)


def join(target: str, sources: list[str]) -> None:
    """Put the groups of several files into one new file, marked as derived: it holds no official targets."""
    import h5py

    with h5py.File(target, "w") as new:
        new.attrs["derived"] = True
        new.attrs["derived_from"] = "the ground_truth_code of the dev split"
        for source in sources:
            with h5py.File(source, "r") as old:
                for step in old:
                    old.copy(step, new)


def survey(source: str, cases: dict[str, int]) -> dict:
    """Which cases of ``cases`` (step -> number of cases) are missing or unreadable, and the file's attributes."""
    import h5py
    from scicode.parse.parse import process_hdf5_to_tuple

    faults = []
    with h5py.File(source, "r") as file:
        attributes = {name: str(value) for name, value in file.attrs.items()}
        missing = [f"{s}/test{i}" for s, n in cases.items() for i in range(1, n + 1) if f"{s}/test{i}" not in file]
    absent = {name.split("/")[0] for name in missing}
    for step, count in cases.items():
        if step in absent:
            continue
        try:
            process_hdf5_to_tuple(step, count, source)
        except Exception as error:
            faults.append(f"{step}: {type(error).__name__}: {error}")
    return {"attributes": attributes, "missing": missing, "unreadable": faults, "cases": sum(cases.values())}


def main(arguments: list[str]) -> None:
    """``cut SOURCE TARGET STEP...``, ``join TARGET SOURCE...`` or ``survey SOURCE CASES.json`` (prints JSON)."""
    import json
    import os

    verb, first, *rest = arguments
    if verb == "cut":
        cut(first, rest[0], rest[1:])
    elif verb == "join":
        join(first, rest)
    else:
        sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "standin"))
        with open(rest[0]) as file:
            print(json.dumps(survey(first, json.load(file))))


if __name__ == "__main__":
    main(sys.argv[1:])
