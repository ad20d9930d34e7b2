"""All that is SQLite's own."""

import random
import sqlite3
import time
from typing import Any

from sqlalchemy import Connection, Engine, event

PATIENCE = 60  # seconds that a lock is waited for


def switch_to_wal(connection: Any) -> None:
    """Has the database keep a write-ahead log. Of several that switch a new file at once, SQLite tells some without
    waiting that it is locked, as each waits for the other."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(random.uniform(0.005, 0.05))  # not all again at the same moment


def prepare_sqlite(engine: Engine) -> None:
    """Makes SQLite durable, strict and safe for several writers.

    The driver's own BEGIN comes only before the first write, when two writers may have read the same state:
    it is switched off. A transaction with the execution option ``writes`` takes the write lock as it begins; with
    ``durable=False`` it does not wait for the disk.
    """

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        # first of all: the switch to WAL may itself have to wait for another process
        connection.execute(f"PRAGMA busy_timeout = {1000 * PATIENCE}")
        switch_to_wal(connection)
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if not options.get("writes", False):
            connection.exec_driver_sql("BEGIN")
            return
        # in WAL mode NORMAL may lose the last commits with the power; an acknowledged evaluation must stay
        durable = options.get("durable", True)
        connection.exec_driver_sql(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
