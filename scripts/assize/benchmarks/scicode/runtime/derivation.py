"""From a test case to the value that it compares with ``target``. Pure: for targets derived from reference code."""

import ast

DERIVED = "__derived_target__"


def deriving_case(case: str) -> str:
    """The case with each assertion on ``target`` turned into assignments of what it should be compared with.

    The compared value is the other argument of the call, or the other side of the ``==``, that ``target`` stands in.
    Running the result sets ``DERIVED`` to a dict: None -> the whole target, or i -> ``target[i]``. A case without
    ``target`` is left as it is.

    Raises
    ------
    ValueError : ``target`` is used in a way that tells no value.
    """
    tree = ast.parse(case)
    tree.body = [statement for old in tree.body for statement in _replaced(old)]
    return ast.unparse(ast.fix_missing_locations(tree))


def _replaced(statement: ast.stmt) -> list[ast.stmt]:
    if not _mentions_target(statement):
        return [statement]
    if not isinstance(statement, ast.Assert):
        raise ValueError(f"target is used outside an assertion: {ast.unparse(statement)[:200]}")
    parts = dict(_compared(statement.test))
    if not parts:
        raise ValueError(f"no value is compared with target: {ast.unparse(statement)[:200]}")
    values = ast.Dict([ast.Constant(index) for index in parts], list(parts.values()))
    return [ast.Assign([ast.Name(DERIVED, ast.Store())], values)]


def _mentions_target(node: ast.AST) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "target" for item in ast.walk(node))


def _compared(test: ast.expr):
    """(index or None, expression) of each value that is compared with ``target`` or ``target[index]``."""
    for node in ast.walk(test):
        if isinstance(node, ast.Call):
            pair = node.args[:2]
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            pair = [node.left, node.comparators[0]]
        else:
            continue
        for this, other in (pair, pair[::-1]) if len(pair) == 2 else ():
            if isinstance(this, ast.Name) and this.id == "target":
                yield None, other
            elif _is_item(this):
                yield this.slice.value, other


def _is_item(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "target"
        and isinstance(node.slice, ast.Constant)
    )


def derived_value(parts: dict | None):
    """The target that ``deriving_case`` found: the whole, or a tuple of its items; True where none is used."""
    if parts is None:
        return True
    if None in parts:
        return parts[None]
    return tuple(parts[index] for index in range(len(parts)))
