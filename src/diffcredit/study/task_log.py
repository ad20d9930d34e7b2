"""Which worker has which task, as the study's log tells it: the ledger's claims know only the driver."""

import json
import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path

LOG_NAME = "log.jsonl"  # in the study's results folder
FIRST_BYTES = 4_000_000  # of the log's end, when it is first read

Task = tuple[str, int]
"""A coalition and a replicate."""


class TaskLog:
    """Follows what drivers append to a study's log; of what is not in it nothing is known."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode, self._offset = 0, 0
        self._given: dict[Task, tuple[str, float]] = {}

    def given(self) -> dict[Task, tuple[str, float]]:
        """The worker that has each task, and since when, in seconds since 1970."""
        with suppress(OSError):
            for line in self._new_lines():
                self._take(line)
        return self._given

    def _new_lines(self) -> list[bytes]:
        """The whole lines that were appended since the last time; of a file that was rotated, those of the new one."""
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
            told = json.loads(line)
            if told["event"] == "task given":
                task = told["coalition"], int(told["replicate"])
                self._given[task] = str(told["worker"]), datetime.fromisoformat(told["time"]).timestamp()
            elif "coalition" in told:  # answered, recorded, or its worker is lost
                self._given.pop((told["coalition"], told["replicate"]), None)
        except (ValueError, KeyError, TypeError):  # half a line, or what somebody else wrote there
            return
