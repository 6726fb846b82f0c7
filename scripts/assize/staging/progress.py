"""What a person sees while bytes move: a bar on a terminal, plain lines in a job's log. All of it on stderr."""

import sys
import time

from assize.cli import log

SECONDS_BETWEEN_LINES = 5.0


def meter(label: str, total: int | None, done: int = 0):
    """Show how many of ``total`` bytes (None: not known) are there, from ``done`` bytes on.

    Returns an object with ``update(done)``, which takes the bytes that are there by now, and ``close()``.
    """
    return Bar(label, total, done) if sys.stderr.isatty() else Lines(label, total, done)


class Lines:
    """A line every tenth of the way, and every 5 s where a tenth takes longer."""

    def __init__(self, label: str, total: int | None, done: int):
        self._label, self._total = label, total
        self._said, self._said_at = done, time.monotonic()

    def update(self, done: int) -> None:
        far = self._total and done - self._said >= self._total / 10
        last = done == self._total and done != self._said
        if far or last or time.monotonic() - self._said_at >= SECONDS_BETWEEN_LINES:
            self._said, self._said_at = done, time.monotonic()
            share = f" of {self._total:,} bytes ({100 * done // self._total}%)" if self._total else " bytes"
            log(f"{self._label}: {done:,}{share}")

    def close(self) -> None:
        """Nothing to tidy up: a line that is said stays said."""


class Bar:
    """A rich progress bar with speed and remaining time."""

    def __init__(self, label: str, total: int | None, done: int):
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        self._progress = Progress(
            TextColumn("{task.description}", markup=False), *columns, console=Console(stderr=True)
        )
        self._task = self._progress.add_task(label, total=total, completed=done)
        self._progress.start()

    def update(self, done: int) -> None:
        self._progress.update(self._task, completed=done)

    def close(self) -> None:
        self._progress.stop()
