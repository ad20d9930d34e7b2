"""A ledger's tables past diffcredit's code, in a file or on a server."""

from random import Random
from typing import Any

from sqlalchemy import Connection, text

from diffcredit.ledger import tables

NAMES = {"studies": 1, "recipes": 2, "properties": 2, "evaluations": 5, "property_values": 5, "entries": 4}
"""The tables of the record without the chain, and how often each is changed."""
JSON_COLUMNS = {
    "studies": ("settings",),
    "recipes": ("settings",),
    "properties": ("settings",),
    "evaluations": ("numerics", "seconds", "versions"),
    "entries": ("content",),
}


class Tables:
    """The tables on a connection. A row is named by its place, which is not its primary key."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.on_server = connection.dialect.name == "postgresql"

    def run(self, statement: str, **given: Any) -> list[Any]:
        result = self.connection.execute(text(statement), given)
        return list(result.all()) if result.returns_rows else []

    def script(self, *statements: str) -> None:
        """Execute statements as they are, also such as change the schema of a file."""
        if not self.on_server:
            self.connection.exec_driver_sql("PRAGMA writable_schema = ON")
        for statement in statements:
            self.connection.exec_driver_sql(statement)

    def places(self, table: str, condition: str = "true") -> list[Any]:
        """Return the places of a table's rows, in the order of their primary keys."""
        order = "study_id, number" if table == "chain" else "id"
        place = "CAST(ctid AS text)" if self.on_server else "rowid"
        return [row[0] for row in self.run(f"SELECT {place} FROM {table} WHERE {condition} ORDER BY {order}")]

    def read(self, table: str, column: str, place: Any) -> Any:
        """Return what a column holds, of JSON the text."""
        shown = f"CAST({column} AS text)" if self.on_server and self.is_json(table, column) else column
        return self.run(f"SELECT {shown} FROM {table} WHERE {self._at}", place=place)[0][0]

    def write(self, table: str, column: str, place: Any, value: Any) -> None:
        """Write a value. The row may be at another place from then on."""
        put = "CAST(:value AS json)" if self.on_server and self.is_json(table, column) else ":value"
        self.run(f"UPDATE {table} SET {column} = {put} WHERE {self._at}", place=place, value=value)

    def stays(self, table: str, column: str, place: Any, old: Any) -> bool:
        """Return whether a column still holds ``old``: the database may take another value for the same."""
        found = self.run(f"SELECT {column} FROM {table} WHERE {self._at}", place=place)
        return bool(found) and repr(found[0][0]) == repr(old)

    def delete(self, table: str, place: Any) -> None:
        self.run(f"DELETE FROM {table} WHERE {self._at}", place=place)

    def copy(self, table: str, place: Any, **other: Any) -> None:
        """Insert a row again, with ``other`` values in some of its columns."""
        names = [each for each in columns(table) if each not in other]
        own = "".join(f", {name}" for name in other), "".join(f", :{name}" for name in other)
        query = f"INSERT INTO {table} ({', '.join(names)}{own[0]}) SELECT {', '.join(names)}{own[1]} FROM {table}"
        self.run(f"{query} WHERE {self._at}", place=place, **other)

    @property
    def _at(self) -> str:
        return "ctid = CAST(:place AS tid)" if self.on_server else "rowid = :place"

    @staticmethod
    def is_json(table: str, column: str) -> bool:
        return column in JSON_COLUMNS.get(table, ())


def columns(table: str) -> list[str]:
    return [column.name for column in tables.metadata.tables[table].columns]


def any_table(random: Random) -> str:
    """Draw a table of the record."""
    return random.choices(list(NAMES), list(NAMES.values()))[0]
