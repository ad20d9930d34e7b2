"""Connecting to a database that is a ledger, its transactions, and the settings that SQLite and PostgreSQL need."""

import logging
import random
import sqlite3
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, func, insert, inspect, make_url, select, text
from sqlalchemy import event as engine_event
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError
from diffcredit.ledger import tables
from diffcredit.ledger.away import away_while_opening, session_ended
from diffcredit.ledger.migrations import migrate
from diffcredit.ledger.soundness import ChangedRecord, is_damage, is_of_other_tables
from diffcredit.util.artifacts import canonical_json
from diffcredit.util.events import event
from diffcredit.util.sanitize import without_passwords

AWAY = 120.0  # seconds for which a server may be away
PAUSE = 0.5  # seconds between two attempts to reach it
LOCKED = 60  # seconds to wait for a lock of SQLite
CREATION = 0x6469666663726564  # PostgreSQL's advisory lock for creating a ledger; any fixed number of our own
NOT_ALLOWED = "42501"  # SQLSTATE insufficient_privilege
MOST_IDLE = 10
"""Seconds for which a client of PostgreSQL may be silent within a transaction.

A laptop that goes to sleep there holds the write lock that all others wait for. The server then ends its session, and
the client repeats the transaction when it wakes."""

T = TypeVar("T")


class NoLedger(UserError):
    """There is no ledger yet where one was to be read."""


@dataclass(frozen=True)
class Database:
    """A database that is a ledger. ``name`` is what messages call it: its file or URL, without a password.

    Every transaction is a function of a connection. A UserError that it raises gets the ledger's name in front. It is
    repeated while the server is away, for instance because it restarts: the transaction was undone, or it was committed
    and the repetition finds it done. An error of a database file, such as a full disk, is raised at once.
    """

    engine: Engine
    name: str

    @classmethod
    def connect(cls, url: str | Path, *, create: bool) -> Self:
        """Connect to a file path or SQLAlchemy URL. With ``create``, a ledger is made where nothing is yet, and one of
        an older schema is migrated, which otherwise waits until it is written to. A database that is no ledger, or a
        newer one, is refused."""
        address = _address(url)
        on_disk = address.get_backend_name() == "sqlite" and address.database not in ("", ":memory:", None)
        file = Path(str(address.database)) if on_disk else None
        name = without_passwords(str(file) if file is not None else address.render_as_string(hide_password=True))
        if file is not None and create:
            file.parent.mkdir(parents=True, exist_ok=True)
        elif file is not None and not file.exists():
            raise NoLedger(f"{name}: there is no ledger")
        engine = _engine(address, name)
        database = cls(engine, name)

        def prepare(connection: Connection) -> None:
            _prepare_schema(connection, create)

        try:
            database._repeated(engine.execution_options(writes=create), prepare, opening=True)
        except (SQLAlchemyError, ValueError) as error:  # ValueError: a row with invalid JSON
            engine.dispose()
            reason = error.orig if isinstance(error, DBAPIError) else error
            raise UserError(f"{name}: cannot be opened as a ledger ({without_passwords(str(reason))})") from error
        except DiffcreditError:
            engine.dispose()
            raise
        return database

    def read(self, action: Callable[[Connection], T]) -> T:
        """Return ``action(connection)`` of one state of the ledger, whatever is committed meanwhile."""
        # SQLite's transactions always see one state
        level = {} if self._is_file else {"isolation_level": "REPEATABLE READ"}
        return self._repeated(self.engine.execution_options(**level), action)

    def write(self, action: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Return ``action(connection)`` while no other writer writes; an older ledger is migrated first.

        SQLite takes its write lock as the transaction begins; on a server, every writer locks the row of
        ``schema_version``. Without ``durable``, the commit does not wait for the disk and a power cut may undo it.
        """

        def locked(connection: Connection) -> T:
            if not durable and not self._is_file:
                connection.execute(text("SET LOCAL synchronous_commit = off"))
            _lock_and_migrate(connection)
            return action(connection)

        return self._repeated(self.engine.execution_options(writes=True, durable=durable), locked)

    @property
    def _is_file(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def _repeated(self, engine: Engine, action: Callable[[Connection], T], *, opening: bool = False) -> T:
        began, away = time.monotonic(), False
        end = began + (0.0 if self._is_file else AWAY)
        while True:
            try:
                with engine.begin() as connection:
                    result = action(connection)
            except (UserError, ChangedRecord) as error:
                raise type(error)(f"{self.name}: {error}") from error
            except DBAPIError as error:
                if is_damage(error):
                    raise _damaged(error, self.name) from error
                if is_of_other_tables(error) and not opening:
                    raise _other_tables(error, self.name) from error
                if getattr(error.orig, "sqlstate", None) == NOT_ALLOWED:
                    raise UserError(
                        f"{self.name}: {error.orig}; diffcredit roles lets its owner grant rights"
                    ) from error
                if not (away_while_opening(self.engine, error) if opening else session_ended(error)):
                    raise
                reason = without_passwords(" ".join(str(error.orig).split()))
                if time.monotonic() >= end:
                    raise DiffcreditError(f"{self.name}: {reason}") from error
                if not away:
                    away = True
                    event("ledger away", level=logging.WARNING, ledger=self.name, error=reason)
                    if opening:  # nothing was shown yet, and a wrong port looks the same
                        waited = f"{self.name}: is away ({reason}); trying for {AWAY:.0f} seconds"
                        warnings.warn(waited, DiffcreditWarning, stacklevel=4)
                time.sleep(PAUSE)
            else:
                if away:
                    event("ledger back", ledger=self.name, seconds=round(time.monotonic() - began, 3))
                return result


def _damaged(error: DBAPIError, name: str) -> ChangedRecord:
    reason = " ".join(str(error.orig).split())
    return ChangedRecord(f"{name}: the record was changed: the file is damaged ({reason})")


def _other_tables(error: DBAPIError, name: str) -> ChangedRecord:
    reason = str(error.orig).partition("\n")[0]  # further lines quote the query
    return ChangedRecord(f"{name}: the record was changed: its tables are not those of a ledger ({reason})")


def _address(url: str | Path) -> URL:
    if isinstance(url, Path) or "://" not in url:
        return URL.create("sqlite", database=str(url))
    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:  # ValueError: a port that is no number
        # the text may contain a password: only its beginning is repeated
        scheme = url.partition("://")[0]
        raise UserError(
            f"ledger: {scheme}://… is no database URL; a file or postgresql+psycopg://host/name is accepted"
        ) from error


def _engine(address: URL, name: str) -> Engine:
    # whatever the environment or the database say: with SQL_ASCII texts would come as bytes
    given = {"client_encoding": "utf8"} if address.get_backend_name() == "postgresql" else {}
    try:
        engine = create_engine(address, json_serializer=canonical_json, pool_pre_ping=True, connect_args=given)
    except ModuleNotFoundError as error:
        raise UserError(
            f"{name}: needs the package {error.name}; for PostgreSQL, pip install 'diffcredit[postgres]' "
            "and begin the URL with postgresql+psycopg://"
        ) from error
    except NoSuchModuleError as error:
        raise UserError(f"{name}: unknown kind of database; sqlite and postgresql are accepted") from error
    if engine.dialect.name == "sqlite":
        prepare_sqlite(engine)
    elif engine.dialect.name == "postgresql":
        _prepare_postgres(engine)
    return engine


def _prepare_schema(connection: Connection, create: bool) -> None:
    if create and connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(CREATION)))
    present = set(inspect(connection).get_table_names())
    if not present and create:
        tables.metadata.create_all(connection)
        connection.execute(insert(tables.schema_version).values(version=tables.SCHEMA_VERSION))
    elif not present:
        raise NoLedger("there is no ledger")
    elif tables.schema_version.name not in present:
        raise UserError("is a database but no ledger; give a ledger or a new file")
    if create:
        _lock_and_migrate(connection)
    else:
        _version(connection)


def _lock_and_migrate(connection: Connection) -> None:
    version = _version(connection, lock=True)
    if version < tables.SCHEMA_VERSION:
        migrate(connection, version)


def _version(connection: Connection, *, lock: bool = False) -> int:
    """Return the ledger's schema version; refuse one that this release does not know."""
    query = select(tables.schema_version.c.version)
    version = connection.execute(query.with_for_update() if lock else query).scalar_one()
    if version not in range(tables.OLDEST_VERSION, tables.SCHEMA_VERSION + 1):  # it may be anything
        raise UserError(
            f"is a ledger of schema version {version!r}; this diffcredit knows versions {tables.OLDEST_VERSION} "
            f"to {tables.SCHEMA_VERSION}; install the release that wrote it"
        )
    return version


def prepare_sqlite(engine: Engine) -> None:
    """Make SQLite durable, strict and safe for several writers.

    The driver's own BEGIN is switched off: it comes only before the first write, when two writers may already have read
    the same state. A transaction with the execution option ``writes`` takes the write lock as it begins; with
    ``durable=False`` it does not wait for the disk.
    """

    @engine_event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        # first, since the switch to WAL may itself have to wait for another process
        connection.execute(f"PRAGMA busy_timeout = {1000 * LOCKED}")
        switch_to_wal(connection)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA trusted_schema = OFF")  # a stranger's schema calls no function with side effects

    @engine_event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if not options.get("writes", False):
            connection.exec_driver_sql("BEGIN")
            return
        # in WAL mode, NORMAL may lose the last commits in a power cut; a recorded evaluation must not be lost
        durable = options.get("durable", True)
        connection.exec_driver_sql(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def switch_to_wal(connection: Any) -> None:
    """Switch SQLite to a write-ahead log. Where several connections switch a new file at once, SQLite avoids a deadlock
    by telling some of them at once that the file is locked; they try again."""
    end = time.monotonic() + LOCKED
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(random.uniform(0.005, 0.05))  # not all at the same moment again


def _prepare_postgres(engine: Engine) -> None:
    """Have the server end the session of a client that sleeps within a transaction."""

    @engine_event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET idle_in_transaction_session_timeout = '{MOST_IDLE}s'")
        connection.commit()
