"""Which worker has which task, from the study's log; the ledger's claims name only the driver."""

import json
import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path

LOG_NAME = "log.jsonl"  # in the study's results folder
FIRST_BYTES = 4_000_000  # how much of the log's end is read at first

Task = tuple[str, int]
"""A coalition and a replicate."""


class TaskLog:
    """Follows the log that a study's drivers append to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode, self._offset = 0, 0
        self._assigned: dict[Task, tuple[str, float]] = {}

    def assigned(self) -> dict[Task, tuple[str, float]]:
        """Return the worker that has each task, and since when, in seconds since 1970."""
        with suppress(OSError):
            for line in self._new_lines():
                self._take(line)
        return self._assigned

    def _new_lines(self) -> list[bytes]:
        """Return the complete lines that were appended since the last call; after a rotation, those of the new file."""
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode:
                self._inode, self._offset = status.st_ino, max(0, status.st_size - FIRST_BYTES)
            file.seek(self._offset)
            whole, newline, _ = file.read(max(0, status.st_size - self._offset)).rpartition(b"\n")
        self._offset += len(whole + newline)
        return whole.split(b"\n")

    def _take(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            if entry["event"] == "task given":
                task = entry["coalition"], int(entry["replicate"])
                self._assigned[task] = str(entry["worker"]), datetime.fromisoformat(entry["time"]).timestamp()
            elif "coalition" in entry:  # answered, recorded, or its worker is lost
                self._assigned.pop((entry["coalition"], entry["replicate"]), None)
        except (ValueError, KeyError, TypeError):  # half a line, or not written by diffcredit
            return
