"""Downloads over http that survive cut connections, and continue where an earlier process was stopped."""

import re
import time
from contextlib import contextmanager

from assize.cli import log
from assize.staging.part import Part, SourceFailed

CHUNK = 1 << 16  # bytes; what a cut connection can lose
CONNECT_TIMEOUT = 20.0  # seconds
READ_TIMEOUT = 60.0  # seconds without a byte
ATTEMPTS = 5  # in a row that bring nothing new
FIRST_PAUSE = 0.5  # seconds; doubled with every such attempt


class Interrupted(Exception):
    """An attempt failed for a reason that can pass: a cut connection, a timeout, a busy server."""


def timeouts() -> tuple[float, float]:
    """Seconds to connect, and seconds without a byte, as requests takes them."""
    return CONNECT_TIMEOUT, READ_TIMEOUT


def refusal(response) -> Exception:
    """What an http status that brings no bytes amounts to: SourceFailed, or Interrupted where waiting can help."""
    status = f"HTTP {response.status_code} {response.reason or ''}".rstrip()
    can_pass = response.status_code in (408, 425, 429) or response.status_code >= 500
    return Interrupted(status) if can_pass else SourceFailed(status)


@contextmanager
def network_errors():
    """Turn the errors of requests and urllib3 into Interrupted or SourceFailed."""
    import requests
    import urllib3

    try:
        yield
    except requests.HTTPError as error:
        raise refusal(error.response) from error
    except (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError) as error:
        raise Interrupted(str(error)) from error
    except requests.RequestException as error:
        raise SourceFailed(str(error)) from error


def patiently(attempt, subject: str, arrived=lambda: 0):
    """Return ``attempt()``, called again with growing pauses while it raises Interrupted.

    ``arrived`` counts bytes: an attempt that got further than any before it does not use up the patience. Raises
    SourceFailed after ``ATTEMPTS`` attempts in a row that did not get further.
    """
    furthest, idle = arrived(), 0
    while True:
        try:
            return attempt()
        except Interrupted as error:
            if arrived() > furthest:
                furthest, idle = arrived(), 0
            idle += 1
            if idle >= ATTEMPTS:
                raise SourceFailed(f"{error}; gave up after {idle} attempts") from error
            pause = FIRST_PAUSE * 2 ** (idle - 1)
            log(f"{subject}: {error}; next attempt in {pause:g} s")
            time.sleep(pause)


def answers(url: str) -> None:
    """Ask for ``url`` once, and read nothing. Raises SourceFailed or Interrupted when it does not come."""
    import requests

    with network_errors(), requests.get(url, stream=True, timeout=timeouts()) as response:
        if response.status_code != 200:
            raise refusal(response)


def fetch(url: str, part: Part) -> None:
    """Download ``url`` into ``part``, after the bytes of it that are already there.

    Raises SourceFailed when the server refuses, sends more than the declared bytes, or stays out of reach.
    """
    import requests

    with requests.Session() as session:
        # Any other encoding would count, and resume, bytes that are not the file's.
        session.headers["Accept-Encoding"] = "identity"

        def whole():
            patiently(lambda: _continue(session, url, part), url, lambda: part.received)

        whole()
        if part.continued and not part.is_right():
            # The kept beginning may have rotted, or the server may have a new file under an old date: that is no
            # fault of the bytes that a fresh download gives.
            log(f"{url}: the continued file is not the declared one; from the beginning again")
            part.discard()
            whole()


def _continue(session, url: str, part: Part) -> None:
    validator = part.take_up(url)
    if validator and part.received == part.size:
        return
    # With If-Range, a server that has other bytes by now sends all of them instead of a rest that does not fit.
    headers = {"Range": f"bytes={part.received}-", "If-Range": validator} if validator else {}
    with network_errors(), session.get(url, headers=headers, stream=True, timeout=timeouts()) as response:
        _begin(response, url, part, validator)
        for chunk in response.raw.stream(CHUNK, decode_content=False):
            part.write(chunk)


def _begin(response, url: str, part: Part, validator: str) -> None:
    if response.status_code == 206 and is_rest(response.headers, part.received, validator):
        log(f"{url}: continued from byte {part.received:,}")
        part.continued = True
    elif response.status_code == 200:
        part.start(url, strong_validator(response.headers))
    elif response.status_code in (206, 416) and validator:
        part.discard()
        raise Interrupted(f"HTTP {response.status_code}: the kept bytes cannot be continued")
    else:
        raise refusal(response)


def strong_validator(headers) -> str:
    """The ETag, or else the date, that If-Range may name; "" where the server gives neither. A weak ETag (``W/``)
    does not promise equal bytes (RFC 9110, section 13.1.5)."""
    etag = headers.get("ETag", "")
    return etag if etag.startswith('"') else headers.get("Last-Modified", "")


def is_rest(headers, offset: int, validator: str) -> bool:
    """Whether a 206 answer is the rest, from byte ``offset`` on, of the file that ``validator`` names."""
    span = re.match(r"bytes (\d+)-", headers.get("Content-Range", ""))
    same = not validator.startswith('"') or headers.get("ETag", validator) == validator
    return bool(validator and span and int(span[1]) == offset and same)
