"""Settings that only PostgreSQL needs."""

from typing import Any

from sqlalchemy import Engine, event

MOST_IDLE = 10
"""Seconds for which a client may be silent within a transaction.

A laptop that goes to sleep there holds the write lock that all others wait for. The server then ends its session, and
the client repeats the transaction when it wakes."""


def prepare_postgres(engine: Engine) -> None:
    """Have the server end the session of a client that sleeps within a transaction."""

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET idle_in_transaction_session_timeout = '{MOST_IDLE}s'")
        connection.commit()
