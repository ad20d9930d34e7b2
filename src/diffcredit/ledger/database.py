"""Connecting to a database that is a ledger, and its transactions."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sqlalchemy import URL, Connection, Engine, Table, create_engine, func, insert, inspect, make_url, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from diffcredit.errors import UserError
from diffcredit.ledger import tables
from diffcredit.ledger.migrations import migrate
from diffcredit.ledger.postgres import prepare_postgres
from diffcredit.ledger.sqlite import prepare_sqlite
from diffcredit.util.artifacts import canonical_json
from diffcredit.util.sanitize import without_passwords

CREATION = 0x6469666663726564  # PostgreSQL's advisory lock for creating a ledger; any fixed number of our own


class NoLedger(UserError):
    """There is no ledger yet where one was to be read."""


@dataclass(frozen=True)
class Database:
    """A database that is a ledger. ``name`` is what messages call it: its file or URL, without a password."""

    engine: Engine
    name: str

    @classmethod
    def connect(cls, url: str | Path, *, create: bool) -> Self:
        """Connect to a file path or SQLAlchemy URL.

        With ``create``, a ledger is made where nothing is yet, and one of an older schema is migrated. Otherwise an
        older one stays as it is until it is written to. What is no ledger, or a newer one, is refused.
        """
        address = _address(url)
        file = _file(address)
        name = without_passwords(str(file) if file is not None else address.render_as_string(hide_password=True))
        if file is not None and create:
            file.parent.mkdir(parents=True, exist_ok=True)
        elif file is not None and not file.exists():
            raise NoLedger(f"{name}: there is no ledger")
        database = cls(_engine(address, name), name)
        try:
            _prepare_schema(database, create)
        except (SQLAlchemyError, ValueError) as error:  # ValueError: a row with invalid JSON
            database.close()
            reason = error.orig if isinstance(error, DBAPIError) else error
            raise UserError(f"{name}: cannot be opened as a ledger ({without_passwords(str(reason))})") from error
        except UserError:
            database.close()
            raise
        return database

    def close(self) -> None:
        self.engine.dispose()

    @property
    def is_file(self) -> bool:
        """Whether it is a SQLite file and not a server."""
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def read(self) -> Generator[Connection]:
        """Begin a transaction that reads."""
        with self.engine.begin() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Generator[Connection]:
        """Begin a transaction that reads one state of the ledger, whatever is committed meanwhile."""
        # SQLite's transactions always do
        engine = self.engine if self.is_file else self.engine.execution_options(isolation_level="REPEATABLE READ")
        with engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self, *, durable: bool = True) -> Generator[Connection]:
        """Begin a transaction that no other writer's overlaps, and migrate an older ledger first.

        SQLite takes its write lock as the transaction begins; on a server, every writer locks the row of
        ``schema_version``. Without ``durable``, the commit does not wait for the disk and a power cut may undo it.
        """
        with self.engine.execution_options(writes=True, durable=durable).begin() as connection:
            if not durable and connection.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL synchronous_commit = off"))
            _lock_and_migrate(connection, self.name)
            yield connection


def has_table(connection: Connection, table: Table) -> bool:
    """Return whether the ledger has a table, which one of an older schema may not."""
    return inspect(connection).has_table(table.name)


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


def _file(address: URL) -> Path | None:
    on_disk = address.get_backend_name() == "sqlite" and address.database not in ("", ":memory:")
    return Path(address.database) if on_disk and address.database is not None else None


def _engine(address: URL, name: str) -> Engine:
    try:
        engine = create_engine(address, json_serializer=canonical_json, pool_pre_ping=True)
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
        prepare_postgres(engine)
    return engine


def _prepare_schema(database: Database, create: bool) -> None:
    name = database.name
    with database.engine.execution_options(writes=create).begin() as connection:
        if create and connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(CREATION)))
        present = set(inspect(connection).get_table_names())
        if not present and create:
            tables.metadata.create_all(connection)
            connection.execute(insert(tables.schema_version).values(version=tables.SCHEMA_VERSION))
        elif not present:
            raise NoLedger(f"{name}: there is no ledger")
        elif tables.schema_version.name not in present:
            raise UserError(f"{name}: is a database but no ledger; give a ledger or a new file")
        if create:
            _lock_and_migrate(connection, name)
        else:
            _version(connection, name)


def _lock_and_migrate(connection: Connection, name: str) -> None:
    version = _version(connection, name, lock=True)
    if version < tables.SCHEMA_VERSION:
        migrate(connection, version)


def _version(connection: Connection, name: str, *, lock: bool = False) -> int:
    """Return the ledger's schema version; refuse one that this release does not know."""
    query = select(tables.schema_version.c.version)
    version = connection.execute(query.with_for_update() if lock else query).scalar_one()
    if not tables.OLDEST_VERSION <= version <= tables.SCHEMA_VERSION:
        raise UserError(
            f"{name}: is a ledger of schema version {version}; this diffcredit knows versions {tables.OLDEST_VERSION} "
            f"to {tables.SCHEMA_VERSION}; install the release that wrote it"
        )
    return version
