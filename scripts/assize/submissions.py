"""Work that was made before, as a map of files: what the replay solver hands in."""

from assize.errors import UsageError
from assize.records import strict_json
from assize.study import repository


def read_submissions(path) -> dict[str, dict]:
    """A submission: instance -> {path: content}.

    Raises
    ------
    UsageError : the file is missing or is no such map. A bad path inside it is the candidate's fault, not the file's.
    """
    try:
        content = strict_json(repository(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError("missing_submission", f"submissions: {path}: no such file") from None
    except ValueError as error:
        raise UsageError("bad_submission", f"submissions: {path}: {error}") from None
    if not isinstance(content, dict) or not all(isinstance(files, dict) for files in content.values()):
        raise UsageError("bad_submission", f"submissions: {path}: not a map of instance to {{path: content}}")
    return content
