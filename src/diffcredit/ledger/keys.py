"""Names to primary keys.

Users name a study, recipe or property; rows refer to it by the database's primary key.
"""

from collections.abc import Iterable

from sqlalchemy import Connection, Select, Table, select

from diffcredit.errors import UserError
from diffcredit.ledger import tables
from diffcredit.ledger.database import has_table


class Keys:
    """The primary keys of one ledger's studies, recipes and properties, by name.

    Keys are remembered, since rows are never changed or removed. An unknown name is a UserError that lists the known
    ones. ``ledger`` is what messages call the ledger.
    """

    def __init__(self, ledger: str) -> None:
        self.ledger = ledger
        self._known: dict[tuple[str, ...], int] = {}

    def study(self, connection: Connection, name: str) -> int:
        if ("study", name) not in self._known:
            query = select(tables.studies.c.name, tables.studies.c.id)
            self._known["study", name] = self._found(connection, query, name, "no study")
        return self._known["study", name]

    def recipe(self, connection: Connection, study: str, name: str) -> int:
        return self._of_study(connection, "recipe", tables.recipes, study, name)

    def property(self, connection: Connection, study: str, name: str) -> int:
        return self._of_study(connection, "property", tables.properties, study, name)

    def chained_study(self, connection: Connection, name: str) -> int:
        """Return a study's key; refuse a ledger of the schema that had no chain yet."""
        study_id = self.study(connection, name)
        if not has_table(connection, tables.chain):
            raise UserError(f"{self.ledger}: is of an older schema without a chain; diffcredit run adds it")
        return study_id

    def _of_study(self, connection: Connection, kind: str, table: Table, study: str, name: str) -> int:
        if (kind, study, name) not in self._known:
            query = select(table.c.name, table.c.id).filter_by(study_id=self.study(connection, study))
            missing = f"study {study!r} has no {kind}"
            self._known[kind, study, name] = self._found(connection, query.order_by(table.c.id), name, missing)
        return self._known[kind, study, name]

    def _found(self, connection: Connection, query: Select, name: str, missing: str) -> int:
        """Return the key of the row called ``name`` among those of the query; ``missing`` starts the error."""
        ids = {row.name: row.id for row in connection.execute(query)}
        if name not in ids:
            raise UserError(f"{self.ledger}: {missing} {name!r}; {_listed(ids)}")
        return ids[name]


def _listed(names: Iterable[str]) -> str:
    listed = ", ".join(map(repr, names))
    return f"there is {listed}" if listed else "there is none yet"
