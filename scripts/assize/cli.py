"""What every command shares: one JSON object on stdout, words on stderr, exit statuses that mean something."""

# An old Python must get as far as the doctor's finding that it is old.
from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import traceback

from assize.errors import AssizeError, UsageError


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are errors like any other: as JSON, with exit status 2."""

    def error(self, message):
        raise UsageError("bad_usage", f"{self.prog}: {message}", self.format_usage().strip())


def amount_of_memory(text: str) -> str:
    """An argument that says how much memory: a whole number and m or g, for MiB and GiB."""
    if not re.fullmatch(r"[1-9][0-9]*[mgMG]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no amount of memory; for example 512m or 30g")
    return text


def log(message: str) -> None:
    """A line for the person who watches."""
    print(message, file=sys.stderr, flush=True)


def _fail(code: str, message: str, hint: str):
    log(f"error: {message}")
    print(json.dumps({"ok": False, "error": {"code": code, "message": message, "hint": hint}}, sort_keys=True))
    raise SystemExit(3) from None


def run(main, argv=None) -> None:
    """Call ``main(argv)``, print the JSON object that it returns (None prints nothing), and exit.

    Exit statuses: 0 done, 2 bad usage or input, 3 infrastructure (an error of this program's own too), 4 a closed gate;
    143 ended by SIGTERM, after sandboxes were taken down and temporary files removed.
    """

    def terminate(number, frame):
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, terminate)
    try:
        result = main(sys.argv[1:] if argv is None else argv)
    except AssizeError as error:
        log(f"error: {error.message}" + (f"\n{error.hint}" if error.hint else ""))
        print(json.dumps(error.as_json(), sort_keys=True))
        raise SystemExit(error.exit_status) from None
    except BrokenPipeError:
        raise SystemExit(3) from None
    except OSError as error:
        # A full disk, a lost mount, a missing permission: the machine's fault, and worth another attempt.
        _fail("os_error", f"infra: {error}", "check the disk, its quota and permissions")
    except Exception as error:
        log(traceback.format_exc())
        _fail("unexpected", f"{type(error).__name__}: {error}", "an error of this program's own: report it, as above")
    if result is not None:
        # Escaped: what a record quotes of a candidate may be no UTF-8.
        print(json.dumps(result, sort_keys=True))
    raise SystemExit(0)
