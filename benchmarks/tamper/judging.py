"""Judge a changed study: refused, harmless, or a finding."""

import signal
import traceback
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.tamper.shown import Shown
from diffcredit.errors import DiffcreditError

REFUSED, HARMLESS, SHOWN, TRACEBACK = "refused", "harmless", "changed and shown", "traceback"
OUTCOMES = (REFUSED, HARMLESS, SHOWN, TRACEBACK)
FINDINGS = (SHOWN, TRACEBACK)
LONGEST = 60  # seconds until reading a study counts as hanging

Read = Callable[[], Shown]


@dataclass(frozen=True)
class Judgement:
    """``words`` are the refusal, or what is wrong."""

    outcome: str
    words: str = ""


class TooSlow(BaseException):
    """Reading takes as if it would never end. No ``except`` of a reader holds it up."""


def judge(reads: Sequence[Read], expected: Mapping[str, str], audit: Read | None = None) -> Judgement:
    """Read a changed study part by part. What is shown must be as ``expected``, or refused in one line.

    With ``audit``, which compares it with a noted head, other numbers may be shown where that refuses them.
    """
    refusals, differing, noticed = [], [], False
    for read in (*reads, *([] if audit is None else [audit])):
        try:
            with warnings.catch_warnings(), _time_limit(LONGEST):
                warnings.simplefilter("ignore")
                found = read()
        # the command line prints these in one line, and all others with a traceback
        except (DiffcreditError, OSError) as error:
            refusals.append(" ".join(str(error).split()))
            noticed = read is audit
        except (Exception, TooSlow) as error:
            return Judgement(TRACEBACK, _told(error))
        else:
            differing += [name for name, text in found.items() if expected.get(name) != text]
    if not all(refusals):
        return Judgement(TRACEBACK, "a refusal without a word")
    if differing and not noticed:
        return Judgement(SHOWN, f"{', '.join(differing)}{''.join(f'; refused: {each}' for each in refusals[:1])}")
    return Judgement(REFUSED, refusals[-1]) if refusals else Judgement(HARMLESS)


def _told(error: BaseException) -> str:
    """Return an exception with the last places it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames if "diffcredit" in frame.filename]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]} ({' < '.join(reversed(places[-4:]))})"


@contextmanager
def _time_limit(seconds: float) -> Generator[None]:
    def end(*_: Any) -> None:
        raise TooSlow(f"{seconds:.0f} seconds")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
