"""Printing, progress and error messages, for all commands."""

import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Annotated, Self

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.text import Text

from diffcredit.util.sanitize import escape_controls, without_passwords


class SafeConsole(Console):
    """A console that shows control characters instead of sending them, in texts, tables and bars."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            # all but rich's own control codes is text, which may come from a stranger
            yield segment if segment.control else Segment(escape_controls(segment.text), segment.style)


console = SafeConsole()
errors = SafeConsole(stderr=True)

StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="A study file, or a folder with a study.yaml.")]

LONGEST_COMPLAINT = 2000  # characters: a message may quote a file, which may be long
PLAIN_SECONDS = 10.0  # between two lines of progress if there is no terminal


def say(text: str) -> None:
    """Print ``text`` as it is: names and paths are data, never markup, and lines are not wrapped."""
    console.print(_sanitized(text), markup=False, highlight=False, emoji=False, soft_wrap=True)


def complain(message: object, kind: str = "error") -> None:
    """Print ``message`` as one line on standard error."""
    text = " ".join(_sanitized(str(message)).split())
    text = text if len(text) <= LONGEST_COMPLAINT else f"{text[: LONGEST_COMPLAINT - 1]}…"
    errors.print(Text.assemble((f"{kind}: ", "bold red"), text), soft_wrap=True, highlight=False)


def _sanitized(text: str) -> str:
    # before rich gets it, which drops some control characters instead of showing them
    return escape_controls(without_passwords(text))


@contextmanager
def stopping_gently() -> Generator[None]:
    """End a command at Ctrl-C with exit code 130, and say how to resume it."""
    try:
        yield
    except KeyboardInterrupt:
        say("Stopped. Everything finished is recorded; the same command goes on from there.")
        raise typer.Exit(130) from None


def duration(seconds: float) -> str:
    """Return ``45 s``, ``3 min 20 s``, ``2 h 5 min`` or ``3 d 4 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "", style="progress.data.speed")


class _Left(ProgressColumn):
    def render(self, task: Task) -> Text:
        left = task.time_remaining
        return Text(f"{duration(left)} left" if left else "", style="progress.remaining")


@dataclass
class _Stage:
    """A bar, the time and count at which it started, and the last count."""

    bar: TaskID
    since: float
    first: int
    last: int


class Bars:
    """A progress callback that shows a bar for each stage, with rate and time left; without a terminal, plain lines."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            _Rate(),
            TimeElapsedColumn(),
            _Left(),
            console=console,
            speed_estimate_period=60,
            disable=not console.is_terminal,
        )
        self._stages: dict[str, _Stage] = {}
        self._printed = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        stage = self._stages.get(what)
        if stage is None:
            stage = self._stages[what] = _Stage(self._progress.add_task(what), time.monotonic(), done, done)
        elif done < stage.last:  # the stage starts again
            stage.since, stage.first = time.monotonic(), done
            self._progress.reset(stage.bar)
        stage.last = done
        self._progress.update(stage.bar, completed=done, total=total)
        if not console.is_terminal:
            self._print_line(what, done, total, time.monotonic() - stage.since, done - stage.first)

    def _print_line(self, what: str, done: int, total: int, elapsed: float, steps: int) -> None:
        now = time.monotonic()
        if done < total and now - self._printed < PLAIN_SECONDS:
            return
        self._printed = now
        rate = steps / elapsed if elapsed > 0 and steps else 0.0
        left = f", {duration((total - done) / rate)} left" if rate and done < total else ""
        speed = f", {rate:.1f}/s" if rate else ""
        say(f"{what}: {done}/{total}{speed}{left}")
