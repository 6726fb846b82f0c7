"""From a response to code: the conformance cases A (script) and B (function) of the SciCode protocol."""

import ast
import re

import pytest

from assize.benchmarks.scicode.extraction import extract_function, extract_script, has_fence, target_name
from assize.benchmarks.scicode.runtime.standin.scicode.parse.parse import extract_function_name, get_function_from_code
from scicode_support import HOSTILE_TEXTS

HEADER = "def f(x):\n    '''Doc.'''"


def fails_to_compile(code: str) -> type:
    with pytest.raises(SyntaxError) as caught:
        compile(code, "step", "exec")
    return caught.type


def test_a1_of_two_blocks_the_first_counts():
    text = "One:\n```python\ndef f(x): return 1\n```\nTwo:\n```python\ndef f(x): return 2\n```\n"
    assert "return 1" in extract_script(text).code
    assert "return 2" not in extract_script(text).code


def test_a2_an_unclosed_fence_goes_to_the_end():
    assert extract_script("Hm.\n```python\ndef f(x):\n    return 7\n").code.strip() == "def f(x):\n    return 7"


@pytest.mark.parametrize("tag", ["Python", "py", "PYTHON", "python3", " python"])
def test_a3_a_fence_is_stripped_whatever_its_tag_looks_like(tag):
    """Officially a bare ``Python`` line remains, which is a NameError: stripping properly is the law here."""
    code = extract_script(f"```{tag}\ndef f(x):\n    return x\n```").code
    assert code.strip() == "def f(x):\n    return x"
    assert not has_fence(code)


def test_a4_prose_without_a_fence_is_kept_and_does_not_parse():
    code = extract_script("Here is the function you asked for:\ndef f(x): return x").code
    assert code.startswith("Here is")
    assert fails_to_compile(code) is SyntaxError


def test_a5_what_follows_an_import_on_its_line_is_lost():
    code = extract_script("```python\nimport numpy as np; K = 2\ndef f(x): return K\n```").code
    assert "K = 2" not in code
    assert "return K" in code


def test_a6_an_import_over_several_lines_breaks():
    text = "```python\nfrom math import (\n    pi,\n    e,\n)\ndef f(x): return pi\n```"
    assert fails_to_compile(extract_script(text).code) is IndentationError


def test_a7_an_import_inside_a_body_is_removed():
    code = extract_script("```python\ndef f(x):\n    import math\n    return math.pi\n```").code
    assert "import" not in code
    assert compile(code, "step", "exec")


def test_a8_a_guarded_import_leaves_an_empty_try():
    code = extract_script("```python\ntry:\n    import cupy\nexcept ImportError:\n    cupy = None\n```").code
    assert fails_to_compile(code) is IndentationError


@pytest.mark.parametrize("text", [None, "", "  \n"])
def test_a11_nothing_is_a_fail_and_never_a_crash(text):
    for extracted in (extract_script(text), extract_function(text, HEADER)):
        assert extracted.code is None
        assert extracted.fault == "empty response"


def test_b1_only_the_function_is_kept_and_all_of_it():
    text = '''```python
import numpy as np
K = 2
def helper(x): return K
# a comment
@np.vectorize
def f(x: int = 3, *, y: float = 1.5) -> float:
    """Doc."""
    return helper(x)  # why
print(f(1))
```'''
    code = extract_function(text, HEADER).code
    tree = ast.parse(code)
    assert [node.name for node in tree.body] == ["f"]
    assert "@np.vectorize" in code
    assert "x: int=3" in code
    assert "-> float" in code
    assert ast.get_docstring(tree.body[0]) == "Doc."
    assert "#" not in code


def test_b2_of_two_functions_with_one_name_the_first_counts():
    assert "return 1" in get_function_from_code("def f(x): return 1\ndef f(x): return 2", "f")


def test_b3_a_method_counts_only_where_no_function_outside_has_the_name():
    method = "class A:\n    def f(self): return 1\n"
    assert "return 2" in get_function_from_code(method + "def f(x): return 2", "f")
    assert get_function_from_code(method, "f") == "def f(self):\n    return 1"


@pytest.mark.parametrize("code", ["async def f(x): return 1", "f = lambda x: 1", "def g(x): return 1", "x = 1"])
def test_b4_no_such_function_is_none_and_a_fail(code):
    assert get_function_from_code(code, "f") is None
    assert extract_function(code, HEADER).fault == "no function f"
    assert get_function_from_code(None, "f") is None


@pytest.mark.parametrize("code", ["def f(x) return 1", "def f(x): return '\0'", "    def f(x): return 1\ny = 1"])
def test_b5_what_does_not_parse_comes_back_as_it_is(code):
    assert get_function_from_code(code, "f") == code
    assert extract_function(code, HEADER).code == code


@pytest.mark.parametrize("header", ["class X:\n    y = 1", "def f[T](x): pass", ""])
def test_b8_a_header_without_a_name_is_a_value_error_officially(header):
    with pytest.raises(ValueError, match="name not found"):
        extract_function_name(header)


def test_b8_a_nameless_header_is_a_fail_with_that_signature():
    assert extract_function("def f(x): pass", "def f[T](x): pass").fault.startswith("ValueError: ")


def test_b9_a_def_in_prose_before_the_header_gives_the_name():
    assert extract_function_name("Use def g( as a helper.\ndef f(x):") == "g"


def test_a_class_header_asks_for_the_class_and_never_for_its_init():
    header = "class Slater:\n    def __init__(self, alpha):\n        '''Doc.'''"
    assert extract_function_name(header) == "__init__"
    assert target_name(header) == "Slater"
    code = extract_function(
        "class Slater:\n    def __init__(self, a): self.a = a\n    def value(self): return 1", header
    ).code
    assert code.startswith("class Slater")
    assert "def value" in code


def test_the_function_is_found_in_whichever_block_holds_it():
    text = "```bash\npip install x\n```\n```python\nK = 1\n```\n```python\ndef f(x): return 5\n```"
    assert "return 5" in extract_function(text, HEADER).code
    broken = "```python\ndef f(x) return\n```\n```python\ndef f(x): return 5\n```"
    assert "return 5" in extract_function(broken, HEADER).code


def test_an_untagged_fence_is_stripped_too():
    assert extract_script("```\ndef f(x): return 1\n```").code.strip() == "def f(x): return 1"
    assert "return 1" in extract_function("```\ndef f(x): return 1\n```", HEADER).code


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_what_python_cannot_take_apart_comes_back_as_it_is_and_stops_no_grade(text):
    """Officially too: whatever taking it apart raises is printed, and the text is returned."""
    assert get_function_from_code(text, "f") == text
    fenced = f"```python\n{text}```"
    assert extract_function(fenced, HEADER).code == text
    assert extract_script(fenced).code == text


def test_lines_that_are_removed_are_the_official_ones():
    official = re.compile(r"^\s*(?:import |from .*\simport\s).*", re.MULTILINE)
    lines = ("import a", "  import a", "from a import b", "from a import", "from a", "imports = 1", "", " \t\x0c", "x")
    texts = ["\n".join((a, b, c, "", d)) for a in lines for b in lines for c in lines for d in lines]
    assert [extract_script(text).code for text in texts if text.strip()] == [
        official.sub("", text) for text in texts if text.strip()
    ]


def test_a_response_of_blank_lines_is_read_once():
    """The official expression reads what is left of them from each: for the largest response, years."""
    assert extract_script("\n" * (1 << 20) + "x = 1").code.strip() == "x = 1"
