"""From a path or URL to a database that is a ledger."""

from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, func, insert, inspect, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from diffcredit.errors import UserError
from diffcredit.ledger import tables
from diffcredit.ledger.migrations import migrate
from diffcredit.ledger.postgres import prepare_postgres
from diffcredit.ledger.sqlite import prepare_sqlite
from diffcredit.util.artifacts import canonical_json
from diffcredit.util.sanitize import without_passwords

CREATION = 0x6469666663726564  # the lock of those who create a ledger in one PostgreSQL database, a number of its own


class NoLedger(UserError):
    """There is no ledger yet where one was to be read."""


def connect(url: str | Path, *, create: bool) -> tuple[Engine, str]:
    """The database at a file path or SQLAlchemy URL, and the name by which messages call it.

    With ``create``, a ledger is made where nothing is yet, and one of an older schema is brought to the present one;
    otherwise an older one is left as it is until it is written to. Whatever is no ledger, or a newer one, is refused.
    """
    address = _address(url)
    file = _file(address)
    name = without_passwords(str(file) if file is not None else address.render_as_string(hide_password=True))
    if file is not None and create:
        file.parent.mkdir(parents=True, exist_ok=True)
    elif file is not None and not file.exists():
        raise NoLedger(f"{name}: there is no ledger")
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
    try:
        _prepare_schema(engine, name, create)
    except (SQLAlchemyError, ValueError) as error:  # the latter: a row that is no JSON
        engine.dispose()
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise UserError(f"{name}: cannot be opened as a ledger ({without_passwords(str(reason))})") from error
    except UserError:
        engine.dispose()
        raise
    return engine, name


def _address(url: str | Path) -> URL:
    if isinstance(url, Path) or "://" not in url:
        return URL.create("sqlite", database=str(url))
    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:  # a port that is no number
        # the text may hold a password: only its beginning is repeated
        scheme = url.partition("://")[0]
        raise UserError(
            f"ledger: {scheme}://… is no database URL; a file or postgresql+psycopg://host/name is accepted"
        ) from error


def _file(address: URL) -> Path | None:
    on_disk = address.get_backend_name() == "sqlite" and address.database not in ("", ":memory:")
    return Path(address.database) if on_disk and address.database is not None else None


def present_schema(connection: Connection, name: str) -> None:
    """Takes the ledger's write lock (SQLite's is taken as a transaction begins), and migrates an older ledger."""
    version = _version(connection, name, lock=True)
    if version < tables.SCHEMA_VERSION:
        migrate(connection, version)


def _prepare_schema(engine: Engine, name: str, create: bool) -> None:
    with engine.execution_options(writes=create).begin() as connection:
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
            present_schema(connection, name)
        else:
            _version(connection, name)


def _version(connection: Connection, name: str, *, lock: bool = False) -> int:
    query = select(tables.schema_version.c.version)
    version = connection.execute(query.with_for_update() if lock else query).scalar_one()
    if not tables.OLDEST_VERSION <= version <= tables.SCHEMA_VERSION:
        raise UserError(
            f"{name}: is a ledger of schema version {version}; this diffcredit knows versions {tables.OLDEST_VERSION} "
            f"to {tables.SCHEMA_VERSION}; install the release that wrote it"
        )
    return version
