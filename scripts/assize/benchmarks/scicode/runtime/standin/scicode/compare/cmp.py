"""Stand-in for ``scicode.compare.cmp``: comparisons of a step's results with their targets.

The candidate's value comes first. Odd results are the official ones (the protocol's conformance cases E): a pair that
NumPy cannot compare raises, and a raise is a failed case.
"""

import numpy as np
import scipy.sparse
import sympy

_SPARSE = (
    scipy.sparse.csr_matrix,
    scipy.sparse.csc_matrix,
    scipy.sparse.bsr_matrix,
    scipy.sparse.coo_matrix,
)


def process_symbol_in_dict(symbols: dict) -> dict:
    """The dict with each SymPy symbol, as a key or as a value, replaced by its name."""
    named = {}
    for key, value in symbols.items():
        text = str(value) if isinstance(value, sympy.Symbol) else value
        named[str(key) if isinstance(key, sympy.Symbol) else key] = text
    return named


def are_dicts_close(dict1: dict, dict2: dict, atol: float = 1e-8, rtol: float = 1e-5) -> bool:
    """Whether two dicts have the same keys and close values; strings must be equal."""
    dict1, dict2 = process_symbol_in_dict(dict1), process_symbol_in_dict(dict2)
    if dict1.keys() != dict2.keys():
        return False
    for key, value in dict1.items():
        other = dict2[key]
        if isinstance(value, str | sympy.Symbol):
            close = value == other
        elif isinstance(value, _SPARSE):
            close = np.allclose(value.toarray(), other.toarray(), atol=atol, rtol=rtol)
        else:
            close = _allclose_or_equal(value, other, atol=atol, rtol=rtol)
        if not close:
            return False
    return True


def are_csc_matrix_close(matrix1, matrix2) -> bool:
    """Whether two sparse matrices are close as dense ones, whatever their formats. A dense argument raises."""
    return np.allclose(matrix1.toarray(), matrix2.toarray())


def cmp_tuple_or_list(var1, var2) -> bool:
    """Whether two sequences are as long as each other and close item by item."""
    if len(var1) != len(var2):
        return False
    for item1, item2 in zip(var1, var2, strict=True):
        if isinstance(item1, dict):
            close = are_dicts_close(item1, item2)
        elif isinstance(item1, _SPARSE):
            close = are_csc_matrix_close(item1, item2)
        elif isinstance(item1, bool):
            close = item1 == item2
        else:
            close = _allclose_or_equal(item1, item2)
        if not close:
            return False
    return True


def _allclose_or_equal(value, other, **tolerance) -> bool:
    """Close where shapes agree or broadcast, else equal. What NumPy cannot subtract raises."""
    try:
        return np.allclose(value, other, **tolerance)
    except ValueError:
        return value == other
