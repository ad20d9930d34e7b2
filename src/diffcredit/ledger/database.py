"""From a path or URL to a database that is a ledger."""

from pathlib import Path

from sqlalchemy import URL, Engine, create_engine, insert, inspect, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from diffcredit.artifacts import canonical_json
from diffcredit.errors import UserError
from diffcredit.ledger import tables
from diffcredit.ledger.sqlite import prepare_sqlite


class NoLedger(UserError):
    """There is no ledger yet where one was to be read."""


def connect(url: str | Path, *, create: bool) -> tuple[Engine, str]:
    """The database at a file path or SQLAlchemy URL, and the name by which messages call it.

    With ``create``, a ledger is made where nothing is yet; whatever is no ledger of this schema version is
    refused.
    """
    address = _address(url)
    file = _file(address)
    name = str(file) if file is not None else address.render_as_string(hide_password=True)
    if file is not None and create:
        file.parent.mkdir(parents=True, exist_ok=True)
    elif file is not None and not file.exists():
        raise NoLedger(f"{name}: there is no ledger")
    try:
        engine = create_engine(address, json_serializer=canonical_json)
    except ModuleNotFoundError as error:
        raise UserError(
            f"{name}: needs the package {error.name}; for PostgreSQL, pip install 'diffcredit[postgres]' "
            "and begin the URL with postgresql+psycopg://"
        ) from error
    except NoSuchModuleError as error:
        raise UserError(f"{name}: unknown kind of database; sqlite and postgresql are accepted") from error
    if engine.dialect.name == "sqlite":
        prepare_sqlite(engine)
    try:
        _prepare_schema(engine, name, create)
    except SQLAlchemyError as error:
        engine.dispose()
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise UserError(f"{name}: cannot be opened as a ledger ({reason})") from error
    except UserError:
        engine.dispose()
        raise
    return engine, name


def _address(url: str | Path) -> URL:
    if isinstance(url, Path) or "://" not in url:
        return URL.create("sqlite", database=str(url))
    try:
        return make_url(url)
    except ArgumentError as error:
        # the text may hold a password: only its beginning is repeated
        scheme = url.partition("://")[0]
        raise UserError(
            f"ledger: {scheme}://… is no database URL; a file or postgresql+psycopg://host/name is accepted"
        ) from error


def _file(address: URL) -> Path | None:
    on_disk = address.get_backend_name() == "sqlite" and address.database not in ("", ":memory:")
    return Path(address.database) if on_disk and address.database is not None else None


def _prepare_schema(engine: Engine, name: str, create: bool) -> None:
    with engine.execution_options(writes=create).begin() as connection:
        present = set(inspect(connection).get_table_names())
        if not present and create:
            tables.metadata.create_all(connection)
            connection.execute(insert(tables.schema_version).values(version=tables.SCHEMA_VERSION))
        elif not present:
            raise NoLedger(f"{name}: there is no ledger")
        elif tables.schema_version.name not in present:
            raise UserError(f"{name}: is a database but no ledger; give a ledger or a new file")
        version = connection.execute(select(tables.schema_version.c.version)).scalar_one()
    if version != tables.SCHEMA_VERSION:
        raise UserError(
            f"{name}: is a ledger of schema version {version}; "
            f"this diffcredit knows version {tables.SCHEMA_VERSION}; install the release that wrote it"
        )
