"""Rights of a team on a ledger in PostgreSQL, granted by its owner, the user who created it.

==========  ==========================================================================================
writer      runs studies: adds rows of the record, changes and removes claims, reads everything
reader      reads everything, which is all that showing credits and auditing them needs
==========  ==========================================================================================

The server refuses a writer whatever the record does not allow: changing a row, removing one, emptying, altering or
dropping a table. Writers take turns by locking the row of ``schema_version`` (see :meth:`Database.write`), as those of
every release do. PostgreSQL demands the right to update that row for it; a trigger refuses the update itself.
"""

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, select, text
from sqlalchemy.sql import func

from diffcredit.errors import UserError
from diffcredit.ledger import tables
from diffcredit.ledger.database import Database

_REFUSING = """
CREATE OR REPLACE FUNCTION diffcredit_refuse_version() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$ BEGIN
  IF pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'MEMBER') THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION 'permission denied: only the owner of a ledger changes its version' USING ERRCODE = '42501';
END $$;
CREATE OR REPLACE TRIGGER only_the_owner BEFORE UPDATE ON schema_version
FOR EACH STATEMENT EXECUTE FUNCTION diffcredit_refuse_version()
"""


def grant(url: str | Path, *, writers: Sequence[str] = (), readers: Sequence[str] = ()) -> None:
    """Give roles of the server the rights of writers and readers, and no others, on the ledger at ``url``, which is
    made or migrated if needed. The roles must exist, and the user in ``url`` must own the ledger."""
    database = Database.connect(url, create=True)
    try:
        database.write(lambda connection: _grant(connection, writers, readers))
    finally:
        database.engine.dispose()


def _grant(connection: Connection, writers: Sequence[str], readers: Sequence[str]) -> None:
    if connection.dialect.name != "postgresql":
        raise UserError("has no roles; the rights on a file are the file system's, and PostgreSQL has roles")
    if both := set(writers) & set(readers):
        raise UserError(f"role {min(both)!r} is both a writer and a reader; a writer reads too")
    for role in (*writers, *readers):
        _check(connection, role)
    _run(connection, _REFUSING)
    for role in (*writers, *readers):
        _allow(connection, role, writes=role in writers)


def _check(connection: Connection, role: str) -> None:
    """Refuse a role that does not exist, and one that may do everything whatever it is granted."""
    catalog = text("SELECT 1 FROM pg_roles WHERE rolname = :role")
    if connection.execute(catalog, {"role": role}).one_or_none() is None:
        raise UserError(f"no role {role!r}; make it first: CREATE ROLE name")
    owners = text(
        "SELECT pg_has_role(:role, relowner, 'MEMBER') FROM pg_class WHERE oid = CAST('schema_version' AS regclass)"
    )
    if connection.execute(owners, {"role": role}).scalar_one():
        raise UserError(f"role {role!r} owns the ledger, or is a superuser; its rights cannot be limited")


def _allow(connection: Connection, role: str, *, writes: bool) -> None:
    quote = connection.dialect.identifier_preparer.quote_identifier
    name, schema = quote(role), quote(connection.execute(select(func.current_schema())).scalar_one())
    every = [table.name for table in tables.metadata.sorted_tables]
    record = [table for table in every if table not in (tables.claims.name, tables.schema_version.name)]
    owned = text("SELECT pg_get_serial_sequence(:table, 'id')")  # NULL where a table has no such column
    ids = [table.name for table in tables.metadata.sorted_tables if "id" in table.columns]
    sequences = [connection.execute(owned, {"table": table}).scalar_one() for table in ids]
    statements = [
        f"REVOKE ALL ON {', '.join(every)} FROM {name}",
        f"REVOKE ALL ON SEQUENCE {', '.join(sequences)} FROM {name}",
        f"REVOKE CREATE ON SCHEMA {schema} FROM {name}",
        f"GRANT USAGE ON SCHEMA {schema} TO {name}",
        f"GRANT SELECT ON {', '.join(every)} TO {name}",
        f"GRANT SELECT ON SEQUENCE {', '.join(sequences)} TO {name}",  # which pg_dump asks for
    ]
    if writes:
        statements += [
            f"GRANT INSERT ON {', '.join(record)} TO {name}",
            f"GRANT INSERT, UPDATE, DELETE ON {tables.claims.name} TO {name}",
            f"GRANT UPDATE ON {tables.schema_version.name} TO {name}",
            f"GRANT USAGE ON SEQUENCE {', '.join(sequences)} TO {name}",
        ]
    _run(connection, ";\n".join(statements))
    usable = select(func.has_schema_privilege(role, func.current_schema(), "USAGE"))
    if not connection.execute(usable).scalar_one():  # the server only warns where the schema is somebody else's
        raise UserError(
            f"role {role!r} may not use the schema; its owner can run GRANT USAGE ON SCHEMA {schema} TO {name}"
        )


def _run(connection: Connection, statements: str) -> None:
    # without parameters a name may contain %, and several statements may go together
    connection.exec_driver_sql(statements, execution_options={"no_parameters": True})
