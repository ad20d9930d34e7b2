"""All that is SQLite's own."""

from typing import Any

from sqlalchemy import Connection, Engine, event


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
        connection.execute("PRAGMA busy_timeout = 60000")
        connection.execute("PRAGMA journal_mode = WAL")
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
