"""Targets in test_data.h5: the conformance cases D and E of the SciCode protocol, and a second opinion on both."""

import pytest

from scicode_support import ROOT, in_runtime, needs_runtime

pytestmark = needs_runtime

FILE = """
import os, tempfile
import h5py, numpy as np, scipy.sparse as sp
from scicode.parse.parse import process_hdf5_to_tuple
path = os.path.join(tempfile.mkdtemp(), "t.h5")
def read(fill, count=1):
    with h5py.File(path, "w") as file:
        fill(file)
    try:
        return process_hdf5_to_tuple("1.1", count, path)
    except Exception as error:
        return type(error).__name__
"""
COMPARE = """
import numpy as np, scipy.sparse as sp
from scicode.compare.cmp import are_dicts_close, cmp_tuple_or_list
def told(call):
    try:
        return bool(call())
    except Exception as error:
        return type(error).__name__
A = np.array([[1.0, 2.0], [0.0, 3.0]])
"""


def decode(body: str):
    return in_runtime(FILE + body)


def compare(body: str):
    return in_runtime(COMPARE + body)


def test_d1_one_dataset_is_bare_several_are_a_tuple_none_is_empty():
    assert decode("""
def fill(file):
    file["1.1/test1/var1"] = 2.5
    file["1.1/test2/var1"], file["1.1/test2/var2"] = 1, 2
    file.create_group("1.1/test3")
found = read(fill, 3)
result = [float(found[0]), [int(v) for v in found[1]], isinstance(found[1], tuple), found[2] == ()]
""") == [2.5, [1, 2], True, True]


def test_d2_variables_come_in_the_order_of_their_names():
    assert decode("""
def fill(file):
    for i in range(1, 12):
        file[f"1.1/test1/var{i}"] = i
result = [int(v) for v in read(fill)[0]]
""") == [1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9]


def test_d3_a_list_comes_in_that_order_too():
    assert decode("""
def fill(file):
    for i in range(1, 13):
        file[f"1.1/test1/var1/list/var{i}"] = np.full(i, i)
result = [len(v) for v in read(fill)[0]]
""") == [1, 10, 11, 12, 2, 3, 4, 5, 6, 7, 8, 9]


def test_d4_a_string_is_text_and_an_array_of_strings_is_bytes():
    assert decode("""
def fill(file):
    file["1.1/test1/var1"] = "ab"
    file["1.1/test2/var1"] = np.array([b"ab", b"c"])
one, many = read(fill, 2)
result = [one, type(many[0]).__name__]
""") == ["ab", "bytes_"]


def test_d7_a_list_inside_a_list_is_a_type_error():
    assert (
        decode("""
def fill(file):
    file["1.1/test1/var1/list/var1/list/var1"] = 1
result = read(fill)
""")
        == "TypeError"
    )


def test_d8_a_csc_matrix_is_read_back_as_csr():
    assert decode("""
def fill(file, shape=(2, 2)):
    m = sp.csc_matrix(np.arange(1, 1 + shape[0] * shape[1]).reshape(shape))
    group = file.create_group("1.1/test1/var1/sparse_matrix")
    for name in ("data", "indices", "indptr", "shape"):
        group[name] = getattr(m, name)
square = read(fill)[0]
result = [square.format, square.toarray().tolist(), read(lambda file: fill(file, (2, 3)))]
""") == ["csr", [[1, 3], [2, 4]], "ValueError"]


def test_d9_coo_and_bsr_are_read_back_right():
    assert decode("""
from h5file import write_targets
A = np.kron(np.eye(2), np.ones((2, 2)))
def fill(file):
    write_targets(file, "1.1", [sp.coo_matrix(A), sp.bsr_matrix(A, blocksize=(2, 2)), sp.csr_matrix(A)])
result = [[m.format, bool((m.toarray() == A).all())] for m in read(fill, 3)]
""") == [["coo", True], ["bsr", True], ["csr", True]]


def test_d10_an_empty_group_is_none():
    assert decode("""
result = read(lambda file: file.create_group("1.1/test1/var1")) == [None]
""")


def test_d12_a_dict_whose_first_key_is_list_is_an_attribute_error():
    assert (
        decode("""
def fill(file):
    file["1.1/test1/var1/list"] = 1
    file["1.1/test1/var1/more"] = 2
result = read(fill)
""")
        == "AttributeError"
    )


def test_a_dict_has_numbers_for_keys_that_read_as_such():
    assert decode("""
def fill(file):
    group = file.create_group("1.1/test1/var1")
    group["2.5"], group["name"] = 1, "text"
found = read(fill)[0]
result = [sorted(map(str, found)), found["name"], 2.5 in found]
""") == [["2.5", "name"], "text", True]


def test_c8_a_case_without_a_group_is_a_key_error():
    assert decode('result = read(lambda file: file.create_group("1.1/test1"), 2)') == "KeyError"


def test_what_is_written_is_read_back():
    assert decode("""
from h5file import write_targets
ragged, mixed = [np.ones(1), np.ones(2)], {"a": 1.0, "b": sp.csr_matrix(np.eye(2))}
wanted = [3.5, np.arange(4), (1, np.ones(2)), "text", ragged, mixed, True]
found = read(lambda file: write_targets(file, "1.1", wanted), len(wanted))
result = [
    float(found[0]), found[1].tolist(), [int(found[2][0]), found[2][1].tolist()], found[3], [len(v) for v in found[4]],
    sorted(found[5]), bool(found[6]),
]
""") == [3.5, [0, 1, 2, 3], [1, [1.0, 1.0]], "text", [1, 2], ["a", "b"], True]


def test_e1_sequences_are_compared_item_by_item():
    assert compare("""
result = [told(lambda: cmp_tuple_or_list((A, 3.0), [A + 1e-9, 3.0])), told(lambda: cmp_tuple_or_list((1, 2), (1,))),
          told(lambda: cmp_tuple_or_list(3.0, (1,)))]
""") == [True, False, "TypeError"]


def test_e2_shapes_that_broadcast_are_close():
    assert compare("""
one = np.ones((3, 1))
result = [told(lambda: cmp_tuple_or_list((a,), (b,))) for a, b in [(one, np.ones(3)), (1.0, np.ones((3, 3)))]]
""") == [True, True]


def test_e3_arrays_that_do_not_broadcast_raise_and_lists_are_unequal():
    assert compare("""
result = [told(lambda: cmp_tuple_or_list((a,), (b,))) for a, b in [(np.ones(3), np.ones(2)), ([1, 2, 3], [1, 2])]]
""") == ["ValueError", False]


def test_e4_nan_is_close_to_nothing_and_infinity_to_itself():
    assert compare("""
pairs = [(np.nan, np.nan), (np.inf, np.inf), (1e-9, 5e-9)]
result = [told(lambda: cmp_tuple_or_list((a,), (b,))) for a, b in pairs]
""") == [False, True, True]


def test_e5_strings_are_compared_in_a_dict_only():
    found = compare("""
result = [told(lambda: cmp_tuple_or_list(("a",), ("a",))), told(lambda: are_dicts_close({"k": "a"}, {"k": "a"})),
          told(lambda: are_dicts_close({"k": "a"}, {"k": "b"})), told(lambda: are_dicts_close({"k": 1}, {"j": 1}))]
""")
    assert found[0] not in (True, False)
    assert found[1:] == [True, False, False]


def test_e6_sparse_matrices_are_compared_with_their_like():
    assert compare("""
csr, coo, array = sp.csr_matrix(A), sp.coo_matrix(A), sp.csr_array(A)
pairs = [(csr, csr), (coo, coo), (array, csr), (A, csr), (csr, A)]
result = [told(lambda: cmp_tuple_or_list((a,), (b,))) for a, b in pairs]
""")[:2] == [True, True]
    rest = compare("""
csr, array = sp.csr_matrix(A), sp.csr_array(A)
result = [told(lambda: cmp_tuple_or_list((a,), (b,))) for a, b in [(array, csr), (A, csr), (csr, A)]]
""")
    assert all(isinstance(outcome, str) for outcome in rest)


def test_symbols_are_compared_by_name():
    assert compare("""
import sympy
x = sympy.Symbol("x")
result = [told(lambda: are_dicts_close({x: 1.0}, {"x": 1.0})), told(lambda: are_dicts_close({"k": x}, {"k": "x"}))]
""") == [True, True]


OTHERS = ROOT / ".scicode-test" / "inspect_evals" / "scicode"
DIFFERENTIAL = """
import contextlib, importlib.util, io, os, tempfile
import h5py, numpy as np, scipy.sparse as sp
from scicode.compare import cmp
from scicode.parse import parse
def load(name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(OTHERS, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
def told(call, *arguments):
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return call(*arguments)
    except Exception as error:
        return type(error).__name__
"""


@pytest.mark.skipif(not OTHERS.exists(), reason="the second reader is not installed: make setup-scicode-test")
def test_the_decoding_agrees_with_an_independent_reader():
    """Over generated content: every kind of variable, alone and with others, in several shapes and types."""
    assert (
        in_runtime(
            f"OTHERS = {str(OTHERS)!r}"
            + DIFFERENTIAL
            + """
other = load("process_data")
rng = np.random.default_rng(7)
def sparse(group, kind):
    m = sp.random(4, 4, 0.5, format=kind, random_state=int(rng.integers(1 << 30)))
    names = {"coo": ("data", "row", "col"), "bsr": ("data", "indices", "indptr", "blocksize")}
    for name in names.get(kind, ("data", "indices", "indptr")):
        group[name] = getattr(m, name)
    group["shape"] = m.shape
def variable(parent, name):
    kind = rng.integers(9)
    if kind == 0: parent[name] = float(rng.normal())
    elif kind == 1: parent[name] = rng.normal(size=rng.integers(0, 4, size=rng.integers(1, 4)))
    elif kind == 2: parent[name] = rng.integers(0, 9, size=3)
    elif kind == 3: parent[name] = "text"
    elif kind == 4: parent[name] = rng.normal(size=2) + 1j
    elif kind == 5:
        for i in range(1, int(rng.integers(2, 14))): parent[f"{name}/list/var{i}"] = rng.normal(size=i)
    elif kind == 6: sparse(parent.create_group(f"{name}/sparse_matrix"), rng.choice(["csr", "csc", "coo", "bsr"]))
    elif kind == 7:
        for key in ("1", "2.5", "key"): parent[f"{name}/{key}"] = rng.normal(size=2)
        parent[f"{name}/word"] = "text"
    else: sparse(parent.create_group(f"{name}/m/sparse_matrix"), "csr"); parent[f"{name}/x"] = 1.0
def same(a, b):
    if type(a) is not type(b): return False
    if isinstance(a, dict): return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)): return len(a) == len(b) and all(map(same, a, b))
    if sp.issparse(a): return a.shape == b.shape and (a != b).nnz == 0
    return np.array_equal(a, b)
os.chdir(tempfile.mkdtemp())
cases = 300
with h5py.File("t.h5", "w") as file:
    for case in range(1, cases + 1):
        group = file.create_group(f"1.1/test{case}")
        for i in range(1, int(rng.integers(1, 13)) + 1): variable(group, f"var{i}")
other.H5PY_FILE = "t.h5"
result = [case for case, (a, b) in enumerate(zip(parse.process_hdf5_to_tuple("1.1", cases, "t.h5"),
          other.process_hdf5_to_tuple("1.1", cases))) if not same(a, b)]
"""
        )
        == []
    )


@pytest.mark.skipif(not OTHERS.exists(), reason="the second reader is not installed: make setup-scicode-test")
def test_the_comparisons_agree_with_an_independent_version():
    """But for a COO or BSR matrix first in a tuple, which the official code compares and the other one cannot."""
    assert (
        in_runtime(
            f"OTHERS = {str(OTHERS)!r}"
            + DIFFERENTIAL
            + """
other = load("test_util")
a = np.array([[1.0, 2.0], [0.0, 3.0]])
arrays = [sp.csr_matrix(a), sp.csc_matrix(a), sp.csr_array(a), a, a + 1e-10, a + 1, a[:1], np.arange(3), np.arange(2)]
scalars = ["a", b"x", True, False, 1, 1.0, 2, None, np.nan, np.inf, 1j]
values = [*arrays, *scalars, [1, 2], (1, 2), {"k": 1}, {"k": "x"}, {}, [], [[1], [1, 2]]]
differ = []
for i, v in enumerate(values):
    for j, w in enumerate(values):
        for name in ("cmp_tuple_or_list", "are_dicts_close"):
            pair = ((v,), (w,)) if name == "cmp_tuple_or_list" else ({"k": v}, {"k": w})
            mine, theirs = told(getattr(cmp, name), *pair), told(getattr(other, name), *pair)
            if str(mine) != str(theirs): differ.append([name, i, j, str(mine), str(theirs)])
for i, v in enumerate(values):
    for j, w in enumerate(values):
        mine, theirs = told(cmp.cmp_tuple_or_list, v, w), told(other.cmp_tuple_or_list, v, w)
        if str(mine) != str(theirs): differ.append(["bare", i, j, str(mine), str(theirs)])
result = differ
"""
        )
        == []
    )
