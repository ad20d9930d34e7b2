"""Whether a database's tables are plain tables, and its file is whole.

Rows are compared with the chain by :mod:`~diffcredit.ledger.audited`. Here is what rows cannot show: a view in place of
a table, a trigger that changes what is written, a policy that hides rows, pages of a file that contradict each other.
"""

from sqlalchemy import Connection, select, text
from sqlalchemy.exc import DBAPIError

from diffcredit.errors import DiffcreditError
from diffcredit.ledger import tables
from diffcredit.ledger.chain import TABLES
from diffcredit.util.sanitize import truncated

RECORD = tuple(each.name for each in (*TABLES.values(), tables.chain))
NAMES = (*RECORD, tables.claims.name, tables.schema_version.name)
ADDED = {3: ("chain", "claims"), 4: ("entries",)}  # by versions of the schema after the oldest that is read
MOST_DAMAGES = 20  # reported of a file
OTHER_TABLES = {"42703", "42P01", "42804", "42883"}  # SQLSTATEs: no such column, no such table, types that do not fit

# as queries find them, by the session's search path
_POSTGRES = text(
    "SELECT name, relkind, relrowsecurity, EXISTS (SELECT FROM pg_rewrite WHERE ev_class = c.oid) AS has_rule, "
    "EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal) AS has_trigger, "
    "EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid) AS has_heirs "
    "FROM unnest(CAST(:names AS text[])) AS name JOIN pg_class AS c ON c.oid = to_regclass(name) ORDER BY name"
)


class ChangedRecord(DiffcreditError):
    """A row of the ledger is not as it was written, or the database hides rows from its readers."""


def changed(problem: str) -> ChangedRecord:
    """Return the refusal of a study with a ``problem``; the ledger's name is added where its transaction ends."""
    return ChangedRecord(f"the record was changed: {problem}; diffcredit verify lists all problems")


def tables_of(connection: Connection) -> tuple[set[str], list[str], list[str]]:
    """Return the ledger's tables that a database has, and one line for each that is no plain table or is missing."""
    found = _in_file if connection.dialect.name == "sqlite" else _on_server
    present, disguised = found(connection)
    version = connection.execute(select(tables.schema_version.c.version)).scalar_one()
    older = {name for added, names in ADDED.items() if added > version for name in names}
    return present, disguised, [f"the table {name} is missing" for name in NAMES if name not in present | older]


def _in_file(connection: Connection) -> tuple[set[str], list[str]]:
    present, problems = set(), []
    for kind, name, table, made in connection.execute(text("SELECT type, name, tbl_name, sql FROM sqlite_master")):
        name, table, made = (str(each).lower() for each in (name, table, made))  # SQLite's names have no case
        if kind == "trigger" and table in RECORD:
            problems.append(f"the table {table} has a trigger")
        elif kind == "view" and name in NAMES:
            problems.append(f"{name} is a view, no table")
        elif kind == "table" and name in NAMES:
            present.add(name)
            if "virtual" in made.partition("(")[0]:
                problems.append(f"the table {name} is virtual")
    return present, problems


def _on_server(connection: Connection) -> tuple[set[str], list[str]]:
    present, problems = set(), []
    for row in connection.execute(_POSTGRES, {"names": list(NAMES)}):
        present.add(row.name)
        if row.relkind not in ("r", b"r"):
            problems.append(f"{row.name} is no plain table")
        elif row.has_rule:
            problems.append(f"the table {row.name} has a rule")
        if row.relrowsecurity:
            problems.append(f"the table {row.name} has row-level security")
        if row.has_trigger and row.name in RECORD:
            problems.append(f"the table {row.name} has a trigger")
        if row.has_heirs:
            problems.append(f"the table {row.name} shows the rows of another")
    return present, problems


def damages(connection: Connection) -> list[str]:
    """Return one line for each damage of a database file, such as an index that contradicts its table. A server looks
    after its files itself."""
    if connection.dialect.name != "sqlite":
        return []
    found = connection.execute(text(f"PRAGMA integrity_check({MOST_DAMAGES})")).scalars()
    lines = [line for each in found for line in str(each).splitlines() if not line.startswith("***")]
    return [] if lines == ["ok"] else [f"the file is damaged: {truncated(line)}" for line in lines]


def is_damage(error: DBAPIError) -> bool:
    """Return whether an error says that a database file is damaged."""
    return any(words in str(error.orig) for words in ("malformed", "decode to UTF-8", "incomplete input"))


def is_of_other_tables(error: DBAPIError) -> bool:
    """Return whether an error says that a server's tables have other columns than a ledger's, or other types."""
    return getattr(error.orig, "sqlstate", None) in OTHER_TABLES
