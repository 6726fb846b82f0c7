"""How far a study is: planned, judged and left, by benchmark and condition, and when it may be done."""

import time
from dataclasses import dataclass

from assize.errors import UsageError
from assize.records import strict_json
from assize.study import Study

# The estimate goes by what was judged in this many seconds before the last grade.
WINDOW_S = 3600


@dataclass(frozen=True)
class Line:
    """Episodes of one condition at one benchmark; ``left`` have no grade yet."""

    benchmark: str
    condition: str
    planned: int
    passed: int
    failed: int
    void: int

    @property
    def done(self) -> int:
        return self.passed + self.failed + self.void

    @property
    def left(self) -> int:
        return self.planned - self.done


def read_verdicts(study: Study) -> dict:
    """Episode -> (verdict, time of its grade in seconds since the epoch), or None where there is no grade yet."""
    found = {}
    for episode in study.episodes():
        path = study.episode_folder(episode) / "grade.json"
        try:
            found[episode] = (strict_json(path.read_text())["verdict"], path.stat().st_mtime)
        except FileNotFoundError:
            found[episode] = None
        except (ValueError, KeyError, TypeError):
            raise UsageError("bad_record", f"{path}: not a grade", "delete it and rerun the workflow") from None
    return found


def lines_of(verdicts: dict) -> list[Line]:
    """One line a benchmark and condition, in the order of the study. Pure."""
    counts = {}
    for episode, found in verdicts.items():
        count = counts.setdefault(
            (episode.benchmark, episode.condition), {"planned": 0, "pass": 0, "fail": 0, "void": 0}
        )
        count["planned"] += 1
        if found:
            count[found[0]] += 1
    return [Line(*names, *count.values()) for names, count in counts.items()]


def seconds_left(times: list[float], left: int) -> float | None:
    """An estimate by the pace of the last hour of grading; None where there is none yet, or nothing is left. Pure."""
    recent = sorted(moment for moment in times if moment > max(times) - WINDOW_S)
    if not left or len(recent) < 2 or recent[-1] == recent[0]:
        return None
    return left * (recent[-1] - recent[0]) / (len(recent) - 1)


def print_progress(name: str, facts: list[str], lines: list[Line], remaining: float | None) -> None:
    """Print the state of the study's controller, a bar for the whole, and a table."""
    from rich.console import Console
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    console = Console(highlight=False)
    planned, done = sum(line.planned for line in lines), sum(line.done for line in lines)
    for fact in facts:
        console.print(fact, soft_wrap=True, markup=False)
    if not lines:
        return
    bar = Table.grid(padding=(0, 1))
    bar.add_column()
    bar.add_column(width=30)
    bar.add_column()
    until = time.strftime("%H:%M", time.localtime(time.time() + remaining)) if remaining else None
    pace = f", about {_words(remaining)} left at this pace (until {until})" if remaining else ""
    bar.add_row(name, ProgressBar(total=planned, completed=done, width=30), f"{done} of {planned} episodes{pace}")
    console.print(bar)
    table = Table()
    for column in ("benchmark", "condition"):
        table.add_column(column)
    for column in ("planned", "done", "pass", "fail", "void", "left"):
        table.add_column(column, justify="right")
    for line in lines:
        numbers = (line.planned, line.done, line.passed, line.failed, line.void, line.left)
        table.add_row(line.benchmark, line.condition, *map(str, numbers))
    console.print(table)


def _words(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
