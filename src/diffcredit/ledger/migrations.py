"""Migrations from an older schema of the ledger to the present one, one function for each version.

The table ``schema_version`` says which of them a ledger has gone through. A migration uses the tables as they are now:
before you change one of them, copy its present definition into the migrations that create it.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Row, Select, select, update

from diffcredit.ledger import tables
from diffcredit.ledger.chain import BATCH, BEGINNING, CHAINED_AT_FIRST, TABLES, Link, append, migration_link


def migrate(connection: Connection, version: int) -> None:
    """Migrate a ledger of schema ``version`` to the present one, within the connection's transaction."""
    for target in range(version + 1, tables.SCHEMA_VERSION + 1):
        MIGRATIONS[target](connection)
    connection.execute(update(tables.schema_version).values(version=tables.SCHEMA_VERSION))


def _to_3(connection: Connection) -> None:
    """Add the table of claims, and the chain of hashes over the rows that are there."""
    tables.claims.create(connection)
    tables.chain.create(connection)
    for study_id in connection.execute(select(tables.studies.c.id).order_by(tables.studies.c.id)).scalars().all():
        links = itertools.chain(_links(connection, study_id), [migration_link(2)])
        append(connection, study_id, BEGINNING, links)


def _links(connection: Connection, study_id: int) -> Iterator[Link]:
    """Yield the links of all rows of a study, kind by kind."""
    number, evaluations = 0, {}  # places in the chain
    for kind in CHAINED_AT_FIRST:
        query = _rows(kind, study_id).order_by(TABLES[kind].c.id)
        for row in connection.execute(query, execution_options={"yield_per": BATCH}):
            number += 1
            if kind == "evaluation":
                evaluations[row.id] = number
            evaluation = {"evaluation": evaluations[row.evaluation_id]} if kind == "value" else {}
            yield Link(kind, row.id, _content(row) | evaluation)


def _rows(kind: str, study_id: int) -> Select[Any]:
    """Select a study's rows of one kind, with the names of the recipe or property that they refer to."""
    table = TABLES[kind]
    if kind == "study":
        return select(table).filter_by(id=study_id)
    if kind == "evaluation":
        return select(table, tables.recipes.c.name.label("recipe")).join(tables.recipes).filter_by(study_id=study_id)
    if kind == "value":
        named = select(table, tables.properties.c.name.label("property"))
        joins = named.join(tables.properties).join(tables.evaluations).join(tables.recipes)
        return joins.where(tables.recipes.c.study_id == study_id, tables.properties.c.study_id == study_id)
    return select(table).filter_by(study_id=study_id)


def _content(row: Row[Any]) -> dict[str, Any]:
    """Return a row's columns without its keys. For a value the caller adds ``evaluation``, a place in the chain."""
    return {name: value for name, value in row._mapping.items() if name != "id" and not name.endswith("_id")}


def _to_4(connection: Connection) -> None:
    """Add the table of entries."""
    tables.entries.create(connection)


MIGRATIONS = {3: _to_3, 4: _to_4}
