"""Names to the primary keys by which rows refer to each other. An unknown name is a UserError that lists the known
ones."""

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, Table, inspect, select, text

from diffcredit.errors import UserError
from diffcredit.ledger import tables
from diffcredit.ledger.soundness import changed


def has_table(connection: Connection, table: Table) -> bool:
    """Return whether the ledger has a table, which one of an older schema may not."""
    return inspect(connection).has_table(table.name)


def study_names(connection: Connection) -> list[str]:
    """Return the names of all studies, in the order of registration."""
    return list(connection.execute(select(tables.studies.c.name).order_by(tables.studies.c.id)).scalars())


def study_key(connection: Connection, study: str) -> int:
    # an index of names might lead elsewhere
    past = " NOT INDEXED" if connection.dialect.name == "sqlite" else ""
    query = text(f"SELECT id FROM studies{past} WHERE name = :name")
    keys = connection.execute(query, {"name": study}).scalars().all()
    if not keys:
        raise UserError(f"no study {study!r}; {_listed(study_names(connection))}")
    if len(keys) > 1:
        raise changed(f"{len(keys)} studies are named {study!r}")
    return keys[0]


def recipe_key(connection: Connection, study: str, name: str) -> int:
    """Return the key of a recipe, for claims; rows that are shown are found by their names in the chain."""
    query = select(tables.recipes.c.name, tables.recipes.c.id).filter_by(study_id=study_key(connection, study))
    found = connection.execute(query.order_by(tables.recipes.c.id))
    return key_among({row.name: row.id for row in found}, name, study, "recipe")


def key_among(keys: Mapping[str, int], name: str, study: str, kind: str) -> int:
    if name not in keys:
        raise UserError(f"study {study!r} has no {kind} {name!r}; {_listed(keys)}")
    return keys[name]


def _listed(names: Iterable[str]) -> str:
    listed = ", ".join(map(repr, names))
    return f"there is {listed}" if listed else "there is none yet"


def is_done(connection: Connection, recipe_id: int, coalition: str, replicate: int) -> bool:
    """Return whether an evaluation is done, by the index: enough to know whether somebody need make it."""
    task = {"recipe_id": recipe_id, "coalition": coalition, "replicate": replicate, "status": "done"}
    return connection.execute(select(tables.evaluations.c.id).filter_by(**task)).first() is not None
