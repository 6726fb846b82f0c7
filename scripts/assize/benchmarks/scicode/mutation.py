"""A reference with known wrong steps: the control that shows that wrong answers are told from right ones. Pure."""

import ast

EVERY = 3


def is_mutated(position: int) -> bool:
    """Whether the scored step at this position of its split (from 0) is one of the known third."""
    return position % EVERY == EVERY - 1


def mutated(code: str) -> str:
    """The function with each number that it returns moved, so that its result is wrong and of the same shape."""
    tree = ast.parse(code)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
    _Returns().visit(function)
    function.body.insert(_after_docstring(function), ast.parse(_MOVED).body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


_MOVED = """
def moved(value):
    if isinstance(value, dict):
        return {key: moved(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(moved(item) for item in value)
    return value * 3 + 1
"""


def _after_docstring(function: ast.FunctionDef) -> int:
    return int(ast.get_docstring(function, clean=False) is not None)


class _Returns(ast.NodeTransformer):
    """``return X`` as ``return moved(X)``, not in functions inside."""

    depth = 0

    def visit_FunctionDef(self, node):
        self.depth += 1
        if self.depth == 1:
            self.generic_visit(node)
        self.depth -= 1
        return node

    def visit_Lambda(self, node):
        return node

    def visit_Return(self, node):
        if node.value is not None:
            node.value = ast.Call(ast.Name("moved", ast.Load()), [node.value], [])
        return node
