"""What was read of a database's studies so far, so that reading again takes no longer than what was appended since."""

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from sqlalchemy import Connection

from diffcredit.ledger.audited import AuditedStudy, read_study
from diffcredit.ledger.database import Database
from diffcredit.ledger.soundness import ChangedRecord, changed
from diffcredit.util.garbage import no_garbage_collection

T = TypeVar("T")


class Readings:
    """The audited studies of one database. Several ledgers that open it may share them, in several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._studies: dict[str, AuditedStudy] = {}

    def answer(self, database: Database, name: str, question: Callable[[AuditedStudy], T]) -> T:
        """Return the answer of a study as it is now; refuse a changed one."""
        # until it has answered, no other thread may read on
        with self._lock, no_garbage_collection():  # many objects are made, and none of them is garbage
            return question(database.read(lambda connection: self._current(connection, name)))

    def current(self, connection: Connection, name: str) -> AuditedStudy:
        """Return a study as it is now, for a transaction that writes: it alone can append until it ends."""
        with self._lock:
            return self._current(connection, name)

    def _current(self, connection: Connection, name: str) -> AuditedStudy:
        # taken out meanwhile: a reading that is interrupted halfway is of no use
        known = self._studies.pop(name, None)
        try:
            study = read_study(connection, name, known)
        except ChangedRecord:
            if known is not None:  # rows that were there are gone, and must be missed next time too
                self._studies[name] = known
            raise
        if study.problems:
            raise changed(study.problems[0])
        self._studies[name] = study
        return study
