"""The three ways in which a command can end without a result, each with its own exit status.

A candidate's failure is none of them: that is a valid grade.
"""


class AssizeError(Exception):
    """An error that a command reports as one JSON object.

    Parameters
    ----------
    code : a stable word for programs, for example ``bad_input``.
    message : what is wrong, with the file and the field.
    hint : what the reader can do about it.
    """

    exit_status = 3

    def __init__(self, code: str, message: str, hint: str = ""):
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint

    def as_json(self) -> dict:
        return {"ok": False, "error": {"code": self.code, "message": self.message, "hint": self.hint}}


class UsageError(AssizeError):
    """Bad usage or bad input: trying again cannot help."""

    exit_status = 2


class InfrastructureError(AssizeError):
    """The machinery failed, not the candidate: worth another attempt, never a score."""

    exit_status = 3


class GateClosed(AssizeError):
    """Calibration is missing, has failed, or is of other terms."""

    exit_status = 4
