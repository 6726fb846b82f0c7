"""The three ways in which a command can end without a result, each with its own exit status.

A candidate's failure is none of them: that is a valid grade.
"""

# An old Python must get as far as the doctor's finding that it is old.
from __future__ import annotations


class AssizeError(Exception):
    """An error that a command reports as one JSON object.

    Parameters
    ----------
    code : a stable word for programs, for example ``bad_input``.
    message : what is wrong, with the file and the field.
    hint : what the reader can do about it.
    details : what else a program may want to know, beside the error in its JSON object.
    """

    exit_status = 3

    def __init__(self, code: str, message: str, hint: str = "", details: dict | None = None):
        super().__init__(message)
        self.code, self.message, self.hint, self.details = code, message, hint, details or {}

    def as_json(self) -> dict:
        return {**self.details, "ok": False, "error": {"code": self.code, "message": self.message, "hint": self.hint}}


class UsageError(AssizeError):
    """Bad usage or bad input: trying again cannot help."""

    exit_status = 2


class InfrastructureError(AssizeError):
    """The machinery failed, not the candidate: worth another attempt, never a score."""

    exit_status = 3


class GateClosed(AssizeError):
    """A gate that stays shut: calibration did not pass, a number is withheld, a link of the chain is broken."""

    exit_status = 4
