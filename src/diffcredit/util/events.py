"""Events of long work, as records with fields in Python's logging. A program that embeds the library receives them with
a handler of the logger ``diffcredit``; a study's run writes them to a file (:class:`LogFile`)."""

import json
import logging
import math
import os
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from diffcredit.errors import DiffcreditWarning
from diffcredit.util.sanitize import escape_controls, truncated, without_passwords

LOGGER = logging.getLogger("diffcredit")
LOGGER.addHandler(logging.NullHandler())  # else logging prints warnings to stderr

Field = str | int | float | bool | None

LONGEST_FIELD = 2000  # characters of a text; the ledger keeps errors in full
MOST_BYTES = 20_000_000  # of one log file
KEPT_FILES = 3  # older files: log.jsonl.1 is the latest of them
MOST_WAITING = 1000  # records kept until the study's folder exists


def event(kind: str, /, *, level: int = logging.INFO, **fields: Field) -> None:
    """Report that something of this ``kind`` happened, such as ``worker lost``, with its details as fields."""
    LOGGER.log(level, kind, extra={"fields": fields}, stacklevel=2)


@contextmanager
def stage(what: str) -> Generator[None]:
    """Report when a part of the work starts, and when it is finished or broken off, with its ``seconds``."""
    event("stage started", stage=what)
    clock, ending = time.perf_counter(), "stage broken off"
    try:
        yield
        ending = "stage finished"
    finally:
        event(ending, stage=what, seconds=round(time.perf_counter() - clock, 3))


class LogFile(logging.Handler):
    """A handler that appends every event to ``path`` as one line of JSON: ``time`` (UTC), ``level``, ``event``,
    ``driver``, ``study`` and the event's own fields.

    Several drivers may share the file: a record is one write to its end. At :data:`MOST_BYTES` it is renamed to
    ``path.1``, an older one to ``path.2`` and so on. Records wait until the folder exists. Where the file cannot be
    written, they are lost with one warning and the work goes on.
    """

    def __init__(self, path: Path, driver: str, study: str) -> None:
        super().__init__(logging.INFO)
        self._path, self._driver, self._study = path, driver, study
        self._waiting: list[bytes] = []
        self._file: int | None = None
        self._warned = self._torn = False

    def emit(self, record: logging.LogRecord) -> None:
        self._waiting = [*self._waiting, self._line(record)][-MOST_WAITING:]
        if not self._path.parent.is_dir():
            return
        lines, self._waiting = self._waiting, []
        try:
            for line in lines:
                self._append(line)
        except OSError as error:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"{self._path}: cannot be written ({error.strerror}); the work goes on without its log",
                    DiffcreditWarning,
                    stacklevel=2,
                )

    def close(self) -> None:
        self._release()
        super().close()

    def _line(self, record: logging.LogRecord) -> bytes:
        head: dict[str, Field] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "driver": self._driver,
            "study": self._study,
        }
        # twice: it stands first, and no field of an event replaces it
        line = {**head, **getattr(record, "fields", {}), **head}
        return json.dumps({name: _sanitized(value) for name, value in line.items()}).encode() + b"\n"

    def _append(self, line: bytes) -> None:
        file = self._opened()
        if os.fstat(file).st_size + len(line) > MOST_BYTES:
            self._rotate(file)
            file = self._opened()
        if self._torn:  # a full disk cut the last record short: start a new line
            line = b"\n" + line
        written = os.write(file, line)
        self._torn = 0 < written < len(line)
        if written < len(line):
            raise OSError(0, "no room for a whole record", str(self._path))

    def _opened(self) -> int:
        """Return the file that is at ``path`` now: another driver may have rotated it."""
        if self._file is not None and not _is_at(self._file, self._path):
            self._release()
        if self._file is None:
            # a link in a stranger's folder could lead to any file of this user
            unlinked = getattr(os, "O_NOFOLLOW", 0)
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | unlinked, 0o666)
        return self._file

    def _release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _rotate(self, file: int) -> None:
        """Rename each file to the next number, unless another driver has just done so."""
        with suppress(ImportError):  # Windows has no such locks
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
        if _is_at(file, self._path):
            names = [self._path, *(self._path.with_name(f"{self._path.name}.{n + 1}") for n in range(KEPT_FILES))]
            for old, new in reversed([*pairwise(names)]):
                with suppress(FileNotFoundError):
                    old.replace(new)
        self._release()


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _sanitized(value: Field) -> Field:
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    # passwords are hidden before the text is cut: a cut could remove the @ by which one is recognised
    return truncated(escape_controls(without_passwords(str(value))), LONGEST_FIELD)
