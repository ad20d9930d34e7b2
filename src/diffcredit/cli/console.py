"""Printing, progress, failures and error messages, for all commands."""

import json
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import typer
from rich import progress
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from diffcredit.util.progress import duration, rates
from diffcredit.util.sanitize import escape_controls, last_line, truncated, without_passwords

if TYPE_CHECKING:
    from diffcredit.ledger import Evaluation


class SafeConsole(Console):
    """A console that shows control characters instead of sending them, in texts, tables and bars."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            # all but rich's own control codes is text, which may come from a stranger
            yield segment if segment.control else Segment(escape_controls(segment.text), segment.style)


console = SafeConsole()
errors = SafeConsole(stderr=True)

LONGEST_COMPLAINT = 2000  # characters: a message may quote a file, which may be long
LONGEST_WORD = 40  # characters: a longer word of a name in a table is broken
PLAIN_SECONDS = 10.0  # between two lines of progress if there is no terminal


def say(text: str) -> None:
    """Print ``text`` as it is: names and paths are data, never markup, and lines are not wrapped."""
    console.print(_sanitized(text), markup=False, highlight=False, emoji=False, soft_wrap=True)


def complain(message: object, kind: str = "error") -> None:
    """Print ``message`` as one line on standard error."""
    text = truncated(" ".join(_sanitized(str(message)).split()), LONGEST_COMPLAINT)
    errors.print(Text.assemble((f"{kind}: ", "bold red"), text), soft_wrap=True, highlight=False)


def _sanitized(text: str) -> str:
    # before rich gets it, which drops some control characters instead of showing them
    return escape_controls(without_passwords(text))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    left: Collection[str] = (),
    folded: Collection[str] | None = None,
    title: str = "",
) -> Table:
    """Return a table whose cells are data, never markup. The first column and those ``left`` are left-aligned; only
    ``folded`` columns (default: these) break their lines."""
    left = {columns[0], *left}
    folded = left if folded is None else folded
    grid = Table(box=None, title=Text(f"\n{title}", "bold") if title else None, title_justify="left")
    for name in columns:
        justify = "left" if name in left else "right"
        grid.add_column(Text(name), justify=justify, overflow="fold", no_wrap=name not in folded)
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return grid


def least_width(names: Iterable[str]) -> int:
    """Return the least width of a column at which no word of ``names`` is broken, as long as they are not too long."""
    return min(LONGEST_WORD, max(len(word) for name in names for word in name.split()))


def print_json(value: Any) -> None:
    """Print ``value`` as JSON, with null in place of infinities and NaN, which JSON does not have."""
    finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
    typer.echo(json.dumps(finite, indent=2, ensure_ascii=False))


@contextmanager
def stopping_gently() -> Generator[None]:
    """End a command at Ctrl-C with exit code 130, and say how to resume it."""
    try:
        yield
    except KeyboardInterrupt:
        say("Stopped. Everything finished is recorded; the same command goes on from there.")
        raise typer.Exit(130) from None


class _Rate(progress.ProgressColumn):
    def render(self, task: progress.Task) -> Text:
        return Text(rates([task.speed])[0] if task.speed else "", style="progress.data.speed")


class _Left(progress.ProgressColumn):
    def render(self, task: progress.Task) -> Text:
        left = task.time_remaining
        return Text(f"{duration(left)} left" if left else "", style="progress.remaining")


class Bars:
    """A progress callback that shows a bar for each stage, with rate and time left; without a terminal, plain lines."""

    def __init__(self) -> None:
        self._progress = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=28),
            progress.MofNCompleteColumn(),
            _Rate(),
            progress.TimeElapsedColumn(),
            _Left(),
            console=console,
            speed_estimate_period=60,
            disable=not console.is_terminal,
            get_time=lambda: time.monotonic(),
        )
        self._stages: dict[str, progress.Task] = {}
        self._printed = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        if what not in self._stages:
            self._progress.add_task(what, first=done)
            self._stages[what] = self._progress.tasks[-1]
        stage = self._stages[what]
        if done < stage.completed:  # the stage starts again
            self._progress.reset(stage.id, first=done)
        self._progress.update(stage.id, completed=done, total=total)
        if not console.is_terminal:
            self._print_line(what, done, total, stage.elapsed or 0.0, done - stage.fields["first"])

    def _print_line(self, what: str, done: int, total: int, elapsed: float, steps: int) -> None:
        now = time.monotonic()
        if done < total and now - self._printed < PLAIN_SECONDS:
            return
        self._printed = now
        rate = steps / elapsed if elapsed > 0 and steps else 0.0
        left = f", {duration((total - done) / rate)} left" if rate and done < total else ""
        speed = f", {rates([rate])[0]}" if rate else ""
        say(f"{what}: {done}/{total}{speed}{left}")


class FailureReport:
    """Counts failures. ``recorded``: whether the ledger has them."""

    def __init__(self, *, recorded: bool = True) -> None:
        self._recorded = recorded
        self._failed = 0
        self._unmeasured: Counter[str] = Counter()

    def add(self, evaluation: "Evaluation") -> None:
        """Print a failed evaluation, and the first failed value of each property."""
        if evaluation.status == "failed":
            self._failed += 1
            say(f"coalition {evaluation.coalition} failed: {last_line(evaluation.error)}")
        for value in evaluation.values:
            if value.error:
                self._unmeasured[value.property] += 1
                if self._unmeasured[value.property] == 1:
                    say(f"coalition {evaluation.coalition}: {value.property} failed: {last_line(value.error)}")

    def summarize(self) -> None:
        """Print how many there were, and what happens next."""
        if self._failed:
            where = "the ledger has their errors, and " if self._recorded else ""
            say(f"{self._failed} evaluations failed; {where}the next run tries them again.")
        for name, count in self._unmeasured.items():
            say(f"{name} failed in {count} evaluations; the ledger has the errors, and diffcredit measure tries again.")


def report_failures(evaluations: "Iterable[Evaluation]", *, recorded: bool = True) -> None:
    """Go through all ``evaluations``, and print which failed."""
    report = FailureReport(recorded=recorded)
    for evaluation in evaluations:
        report.add(evaluation)
    report.summarize()
