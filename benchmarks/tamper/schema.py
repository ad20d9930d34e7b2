"""Changes to the schema of a file: views, triggers, columns and tables that are not what they seem."""

from collections.abc import Callable
from random import Random

from benchmarks.tamper.copies import Copy
from benchmarks.tamper.tables import NAMES, Tables, columns
from benchmarks.tamper.values import Impossible

TABLES = (*NAMES, "chain", "claims", "schema_version")
Act = Callable[[Tables, str, str, Random], list[str]]
"""A function of a table and one of its columns to statements."""


def change_schema(copy: Copy, random: Random) -> str:
    table = random.choice(TABLES)
    name = random.choice(list(ACTS))
    with copy.tables() as tables:
        statements = ACTS[name](tables, table, random.choice(columns(table)), random)
        before = _schema(tables)
        tables.script(*statements)
        if _schema(tables) == before and not name.startswith("rows"):
            raise Impossible
    return f"{name}: {table} ({'; '.join(statements)})"


def _schema(tables: Tables) -> list[tuple]:
    try:
        return [tuple(row) for row in tables.run("SELECT type, name, rootpage, sql FROM sqlite_master")]
    except Exception:  # what cannot be read any more did change
        return []


def _view(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    names = columns(table)
    shown = [
        f"{random.choice(['1', 'NULL', names[0], column + ' || 1'])} AS {each}" if each == column else each
        for each in names
    ]
    what = random.choice(["*", ", ".join(names), ", ".join(shown)])
    where = random.choice(["", " WHERE rowid % 2", " WHERE 0", " UNION ALL SELECT * FROM hidden"])
    kind = random.choice(["VIEW", "VIEW", "TABLE"])
    return [f"ALTER TABLE {table} RENAME TO hidden", f"CREATE {kind} {table} AS SELECT {what} FROM hidden{where}"]


def _legacy_view(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    """Let the tables that refer to it still do so by its name."""
    return ["PRAGMA legacy_alter_table = ON", *_view(tables, table, column, random)]


def _trigger(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    when = random.choice(["BEFORE INSERT", "AFTER INSERT", "AFTER UPDATE", "BEFORE DELETE"])
    act = random.choice(["SELECT 1", "DELETE FROM claims", "SELECT RAISE(IGNORE)", "UPDATE chain SET hash = 'x'"])
    return [f"CREATE TRIGGER t {when} ON {random.choice([table, table.upper()])} BEGIN {act}; END"]


def _other_view(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    return [f"CREATE VIEW {random.choice(['v', 'sqlite', 'diffcredit'])} AS SELECT {column} FROM {table}"]


def _rename_column(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    new = random.choice([column + "_", column.upper(), column[:-1] or "x", "rowid"])
    return [f'ALTER TABLE {table} RENAME COLUMN {column} TO "{new}"']


def _add_column(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    kind = random.choice(["x", "x DEFAULT 1", f"x AS ({column}) VIRTUAL", "_rowid_", "oid INTEGER DEFAULT 5", "rowid"])
    return [f"ALTER TABLE {table} ADD COLUMN {kind}"]


def _drop_column(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    return [f"ALTER TABLE {table} DROP COLUMN {column}"]


def _made_again(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    """Make the table again with another kind of column, and copy its rows."""
    types = {
        each: random.choice(["", "TEXT", "INTEGER", "REAL", "BLOB", "NUMERIC"]) if random.random() < 0.3 else ""
        for each in columns(table)
    }
    extra = {column: random.choice(["COLLATE NOCASE", "NOT NULL", f"AS ({columns(table)[0]})", "DEFAULT 1", "UNIQUE"])}
    key = columns(table)[0]
    ends = random.choice(["", " WITHOUT ROWID", " STRICT"])
    primary = f", PRIMARY KEY ({key})" if ends == " WITHOUT ROWID" or random.random() < 0.5 else ""
    made = ", ".join(
        f"{name} {type_ or ('ANY' if ends == ' STRICT' else '')} {extra.get(name, '')}" for name, type_ in types.items()
    )
    kept = [name for name in columns(table) if "AS (" not in extra.get(name, "")]
    copied = f"({', '.join(kept)}) SELECT {', '.join(kept)} FROM hidden"
    return [
        "PRAGMA legacy_alter_table = ON",
        f"ALTER TABLE {table} RENAME TO hidden",
        f"CREATE TABLE {table} ({made}{primary}){ends}",
        f"INSERT INTO {table} {copied}",
    ]


def _text(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    """Change the text by which SQLite knows a table, and not the table."""
    other = random.choice(columns(table))
    ways = [
        f"replace(sql, '{column}', '{column}x')",
        f"replace(replace(replace(sql, '{column} ', 'zzz '), '{other} ', '{column} '), 'zzz ', '{other} ')",
        "replace(sql, 'INTEGER', 'TEXT')",
        "replace(sql, 'VARCHAR', 'INTEGER')",
        "replace(sql, 'NOT NULL', '')",
        "replace(sql, 'PRIMARY KEY (id)', 'PRIMARY KEY (id DESC)')",
        "sql || ' WITHOUT ROWID'",
        "sql || ' STRICT'",
        "replace(sql, ')', ', x AS (1))')",
        "'CREATE TABLE x ('",
        "''",
        "NULL",
        "x'00ff'",
        f"'CREATE VIEW {table} AS SELECT 1'",
        f"'CREATE VIRTUAL TABLE {table} USING fts5(x)'",
        f"'CREATE TABLE {table} (x)'",
        f"'CREATE TABLE \"{table}\" /* virtual */ (' || substr(sql, instr(sql, '(') + 1)",
        "sql || '/*' ",
    ]
    return [f"UPDATE sqlite_master SET sql = {random.choice(ways)} WHERE name = '{table}' AND type = 'table'"]


def _type(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    column = random.choice(
        [
            "type = 'view'",
            "type = 'index'",
            "type = 'TABLE'",
            "name = upper(name)",
            "tbl_name = 'x'",
            "name = 'x'",
            "type = 7",
        ]
    )
    return [f"UPDATE sqlite_master SET {column} WHERE name = '{table}' AND type = 'table'"]


def _drop_index(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    indices = [
        name for (name,) in tables.run("SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
    ]
    return [f"DROP INDEX {random.choice(indices)}"]


def _new_index(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    what = random.choice([column, f"{column} COLLATE NOCASE", f"abs({column})", f"{column} || 'x'"])
    where = random.choice(["", f" WHERE {column} IS NOT NULL", " WHERE 0"])
    return [f"CREATE INDEX i ON {table} ({what}){where}"]


def _statistics(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    stat = random.choice(["'1 1 1'", "'999999999 1'", "'x'", "x'00'", "'0'", "''", "'1 unordered noskipscan'"])
    return ["ANALYZE", f"UPDATE sqlite_stat1 SET stat = {stat}"]


def _drop(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    return [f"DROP TABLE {table}"]


def _version(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    version = random.choice(["1", "2", "3", "5", "99", "'4'", "'x'", "x'04'", "4.0", "4.5", "-4", "1e300"])
    ways = [
        "UPDATE schema_version SET version = {}",
        "DELETE FROM schema_version",
        "INSERT INTO schema_version VALUES ({})",
    ]
    return [random.choice(ways).format(version)]


def _settings(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    return [random.choice(["PRAGMA user_version = 9", "PRAGMA application_id = 7", "PRAGMA schema_version = 12345"])]


def _more(tables: Tables, table: str, column: str, random: Random) -> list[str]:
    name = random.choice(["more", "Evaluations2", "sqlite_x", "pg_class", "information_schema"])
    return [f"CREATE TABLE {name} AS SELECT * FROM {table}"]


ACTS: dict[str, Act] = {
    "a view": _view,
    "a view, others refer to": _legacy_view,
    "a trigger": _trigger,
    "another view": _other_view,
    "a column renamed": _rename_column,
    "a column added": _add_column,
    "a column dropped": _drop_column,
    "a table made again": _made_again,
    "the table's text": _text,
    "the table's kind": _type,
    "an index dropped": _drop_index,
    "an index added": _new_index,
    "rows of statistics": _statistics,
    "a table dropped": _drop,
    "rows of the version": _version,
    "rows: settings": _settings,
    "another table": _more,
}
