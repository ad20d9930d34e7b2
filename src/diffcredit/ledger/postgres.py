"""All that is PostgreSQL's own."""

from typing import Any

from sqlalchemy import Engine, event

MOST_IDLE = 10
"""Seconds that a client may say nothing in the middle of a transaction. One that sleeps there, as a laptop does, holds
the write lock that all others wait for: the server then ends its session, and the client repeats the transaction when
it wakes."""


def prepare_postgres(engine: Engine) -> None:
    """Keeps a client that sleeps from holding the others up."""

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET idle_in_transaction_session_timeout = '{MOST_IDLE}s'")
        connection.commit()
