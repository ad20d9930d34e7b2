"""Settings that only SQLite needs."""

import random
import sqlite3
import time
from typing import Any

from sqlalchemy import Connection, Engine, event

PATIENCE = 60  # seconds to wait for a lock


def switch_to_wal(connection: Any) -> None:
    """Switch the database to a write-ahead log.

    Where several connections switch a new file at once, SQLite avoids a deadlock by telling some of them without any
    waiting that the file is locked. They try again.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(random.uniform(0.005, 0.05))  # not all at the same moment again


def prepare_sqlite(engine: Engine) -> None:
    """Make SQLite durable, strict and safe for several writers.

    The driver's own BEGIN is switched off: it comes only before the first write, when two writers may already have read
    the same state. A transaction with the execution option ``writes`` takes the write lock as it begins; with
    ``durable=False`` it does not wait for the disk.
    """

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        # first, since the switch to WAL may itself have to wait for another process
        connection.execute(f"PRAGMA busy_timeout = {1000 * PATIENCE}")
        switch_to_wal(connection)
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if not options.get("writes", False):
            connection.exec_driver_sql("BEGIN")
            return
        # in WAL mode, NORMAL may lose the last commits in a power cut; a recorded evaluation must not be lost
        durable = options.get("durable", True)
        connection.exec_driver_sql(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
