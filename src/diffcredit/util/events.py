"""What happens in long work, told to Python's logging as records with fields: who embeds the library hears them with a
handler of the logger ``diffcredit``, and a study's run writes them to a file (:class:`LogFile`)."""

import json
import logging
import math
import os
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from diffcredit.errors import DiffcreditWarning
from diffcredit.util.sanitize import visible, without_passwords

LOGGER = logging.getLogger("diffcredit")
LOGGER.addHandler(logging.NullHandler())  # or else logging prints warnings that nobody asked it for

Field = str | int | float | bool | None

LONGEST_FIELD = 2000  # characters of a text; the ledger has errors in full
MOST_BYTES = 20_000_000  # of a file of the log
KEPT_FILES = 3  # older ones: log.jsonl.1 is the latest of them
MOST_WAITING = 1000  # records kept until the study's folder is there


def event(kind: str, /, *, level: int = logging.INFO, **fields: Field) -> None:
    """Tells that something of this ``kind`` happened, such as ``worker lost``, with what is known of it."""
    LOGGER.log(level, kind, extra={"fields": fields}, stacklevel=2)


@contextmanager
def stage(what: str) -> Generator[None]:
    """Tells when a part of the work starts, and when it is finished or broken off, after how many ``seconds``."""
    event("stage started", stage=what)
    clock, ending = time.perf_counter(), "stage broken off"
    try:
        yield
        ending = "stage finished"
    finally:
        event(ending, stage=what, seconds=round(time.perf_counter() - clock, 3))


class LogFile(logging.Handler):
    """Appends every event to ``path`` as one line of JSON: ``time`` (UTC), ``level``, ``event``, ``driver``, ``study``,
    and the event's own fields.

    Several drivers may share the file: a record is one write to its end. At :data:`MOST_BYTES` it becomes ``path.1``,
    and so on. The folder is not made: until it is there, records wait. A file that cannot be written costs its records
    and one warning, never the work.
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
        told = {**head, **getattr(record, "fields", {}), **head}
        return json.dumps({name: _shown(value) for name, value in told.items()}).encode() + b"\n"

    def _append(self, line: bytes) -> None:
        file = self._opened()
        if os.fstat(file).st_size + len(line) > MOST_BYTES:
            self._rotate(file)
            file = self._opened()
        if self._torn:  # what a full disk left of the last record must not spoil this one
            line = b"\n" + line
        written = os.write(file, line)
        self._torn = 0 < written < len(line)
        if written < len(line):
            raise OSError(0, "no room for a whole record", str(self._path))

    def _opened(self) -> int:
        """The file that ``path`` names now: another driver may have rotated it."""
        if self._file is not None and not _is_at(self._file, self._path):
            self._release()
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        return self._file

    def _release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _rotate(self, file: int) -> None:
        """Renames the files by one; of several drivers that want to, one does."""
        with suppress(ImportError):  # where files have no locks
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
        if _is_at(file, self._path):
            for number in range(KEPT_FILES - 1, 0, -1):
                with suppress(FileNotFoundError):
                    _numbered(self._path, number).replace(_numbered(self._path, number + 1))
            self._path.replace(_numbered(self._path, 1))
        self._release()


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _shown(value: Field) -> Field:
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = visible(without_passwords(str(value)))  # before it is cut, or a password could lose the end that tells it
    return text if len(text) <= LONGEST_FIELD else f"{text[: LONGEST_FIELD - 1]}…"
