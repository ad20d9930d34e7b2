"""Whether a PostgreSQL server that cannot be reached is only away, for instance because it restarts.

A server that restarts refuses a new session, or nobody answers; both pass. A wrong password, a missing database or the
name of no host does not pass: that is said at once. The words of an error depend on the server's language, so that
SQLSTATE decides or, where the session did not come about and there is none, libpq's ``PQping``.
"""

import socket
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

RESTARTING = {"57P01", "57P02", "57P03"}  # the server shuts down, crashed, or does not accept sessions yet


def session_ended(error: DBAPIError) -> bool:
    """Return whether ``error`` may have ended a session that was open; a broken one may show as an error of any
    class."""
    return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)


def away_while_opening(engine: Engine, error: DBAPIError) -> bool:
    """Return whether opening a ledger failed with ``error`` because its server is away."""
    if engine.dialect.driver != "psycopg":
        return False
    if error.connection_invalidated:
        return True
    sqlstate = getattr(error.orig, "sqlstate", None)
    if sqlstate is not None:
        return sqlstate in RESTARTING
    return isinstance(error, OperationalError) and _away(engine)


def _away(engine: Engine) -> bool:
    """Return whether the server refuses every session or is silent, although its host exists."""
    from psycopg.conninfo import make_conninfo
    from psycopg.pq import Conninfo, PGconn, Ping

    known = {option.keyword.decode() for option in Conninfo.get_defaults()}  # psycopg has options of its own
    _, given = engine.dialect.create_connect_args(engine.url)
    parameters = {name: value for name, value in given.items() if name in known}
    address = make_conninfo(**parameters).encode()
    state = PGconn.ping(address)
    if state == Ping.OK:  # it refused just this session, or it has come back since
        try:
            engine.connect().close()
            return True
        except DBAPIError:
            state = PGconn.ping(address)
    return state == Ping.REJECT or (state == Ping.NO_RESPONSE and _has_host(parameters))


def _has_host(parameters: dict[str, Any]) -> bool:
    """Return whether one of the hosts exists: a name that can be resolved, or the folder of a socket."""
    for host in str(parameters.get("hostaddr") or parameters.get("host") or "localhost").split(","):
        if host.startswith("/"):
            if Path(host).is_dir():
                return True
            continue
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):  # UnicodeError: a name too long for the network
            continue
        return True
    return False
