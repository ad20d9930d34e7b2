"""Names to primary keys.

Users name a study, recipe or property; rows refer to it by the database's primary key.
"""

from collections.abc import Iterable

from sqlalchemy import Connection, Select, Table, select

from diffcredit.errors import UserError
from diffcredit.ledger import tables
from diffcredit.ledger.database import has_table


class Keys:
    """The primary keys of one ledger's studies, recipes and properties.

    Keys are remembered, since rows are never changed or removed. A name that is not there is a UserError that lists
    those that are. ``ledger`` is what messages call the ledger.
    """

    def __init__(self, ledger: str) -> None:
        self.ledger = ledger
        self._known: dict[tuple[str, ...], int] = {}

    def study(self, connection: Connection, study: str) -> int:
        return self._key(connection, ("study", study), select(tables.studies), "no study")

    def recipe(self, connection: Connection, study: str, name: str) -> int:
        return self._within(connection, "recipe", tables.recipes, study, name)

    def property(self, connection: Connection, study: str, name: str) -> int:
        return self._within(connection, "property", tables.properties, study, name)

    def chained_study(self, connection: Connection, study: str) -> int:
        """Return a study's key; refuse a ledger of the schema that had no chain yet."""
        study_id = self.study(connection, study)
        if not has_table(connection, tables.chain):
            raise UserError(f"{self.ledger}: is of an older schema without a chain; diffcredit run adds it")
        return study_id

    def _within(self, connection: Connection, kind: str, table: Table, study: str, name: str) -> int:
        query = select(table).filter_by(study_id=self.study(connection, study)).order_by(table.c.id)
        return self._key(connection, (kind, study, name), query, f"study {study!r} has no {kind}")

    def _key(self, connection: Connection, path: tuple[str, ...], query: Select, missing: str) -> int:
        """Return the key of the row whose name ends ``path``, among those that ``query`` finds."""
        if path not in self._known:
            ids = {row.name: row.id for row in connection.execute(query)}
            if path[-1] not in ids:
                raise UserError(f"{self.ledger}: {missing} {path[-1]!r}; {_listed(ids)}")
            self._known[path] = ids[path[-1]]
        return self._known[path]


def _listed(names: Iterable[str]) -> str:
    listed = ", ".join(map(repr, names))
    return f"there is {listed}" if listed else "there is none yet"
