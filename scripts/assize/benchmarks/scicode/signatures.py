"""SciCode's harness faults by their signatures. Source: the protocol's census; the shared signature is everyone's.

The first live run of a harness read "0% pass": 251 times the first of these and 36 times the second.
"""

from assize.indictment import Signature

_NOT_THE_CANDIDATES = ("dependencies", "tests", "harness")

HARNESS_FAULTS = (
    Signature(
        "no_target",
        "the targets do not reach the tests: stage the h5 file and name it in `targets`, then `targets check`",
        r"^NameError: name 'target' is not defined",
        ("tests", "harness"),
    ),
    Signature(
        "no_scicode_module",
        "the sandbox lacks the scicode package: build the image or the runtime again (make setup-scicode)",
        r"^ModuleNotFoundError: No module named 'scicode",
        _NOT_THE_CANDIDATES,
    ),
    Signature(
        "import_error",
        "the runtime lacks what the problem's dependencies or tests import: build it from envs/scicode.lock",
        r"^(ImportError|ModuleNotFoundError): ",
        _NOT_THE_CANDIDATES,
    ),
    Signature(
        "h5_unreadable",
        "a case has no readable target: run `targets check` on the h5 file",
        r"",
        ("harness",),
    ),
    Signature(
        "declared_name",
        "a name that a header of the problem declares was lost on the way to the tests: audit extraction and context",
        fault="declared_name",
    ),
    Signature("fence_line", "a Markdown fence was in the code that ran: audit the fence stripping", fault="fence_line"),
)
# Under ``special: official`` the official code itself loses these (13.8-13.14, 62.x).
LOST_OFFICIALLY = ("Maxwell", "Block", "EnlargedBlock")
