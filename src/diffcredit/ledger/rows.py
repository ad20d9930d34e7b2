"""Inserting single rows; each returns the link by which :func:`~diffcredit.ledger.chain.append` chains it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, insert

from diffcredit.ledger import tables
from diffcredit.ledger.chain import Link
from diffcredit.ledger.records import Evaluation, PropertyRecord, RecipeRecord, Value
from diffcredit.util.artifacts import canonical_json


def insert_study(connection: Connection, name: str, settings: dict[str, Any]) -> Link:
    row = _plain({"name": name, "settings": settings})
    return Link("study", _insert(connection, tables.studies, row), row)


def insert_recipe(connection: Connection, study_id: int, recipe: RecipeRecord) -> Link:
    row = _plain(vars(recipe))
    return Link("recipe", _insert(connection, tables.recipes, row | {"study_id": study_id}), row)


def insert_property(connection: Connection, study_id: int, prop: PropertyRecord) -> Link:
    row = _plain(vars(prop))
    return Link("property", _insert(connection, tables.properties, row | {"study_id": study_id}), row)


def insert_evaluation(connection: Connection, recipe_id: int, recipe_name: str, evaluation: Evaluation) -> Link:
    """Insert an evaluation without its values."""
    row = _plain(vars(evaluation) | {"values": None, "error": _storable(evaluation.error)})
    del row["values"]
    row_id = _insert(connection, tables.evaluations, row | {"recipe_id": recipe_id})
    return Link("evaluation", row_id, row | {"recipe": recipe_name})


def insert_values(
    connection: Connection, evaluation_id: int, number: int, values: Sequence[tuple[int, Value]]
) -> list[Link]:
    """Insert one or more values of one evaluation, whose place in the chain is ``number``.

    Each value comes with the primary key of its property.
    """
    rows = [
        {
            "value": plain_number(value.value),
            "standard_error": plain_number(value.standard_error),
            "images": None if value.images is None else int(value.images),
            "error": _storable(value.error),
        }
        for _, value in values
    ]
    keys = [{"evaluation_id": evaluation_id, "property_id": property_id} for property_id, _ in values]
    statement = insert(tables.values).returning(tables.values.c.id, sort_by_parameter_order=True)
    row_ids = connection.execute(statement, [row | key for row, key in zip(rows, keys, strict=True)]).scalars()
    return [
        Link("value", row_id, row | {"evaluation": number, "property": value.property})
        for row_id, row, (_, value) in zip(row_ids, rows, values, strict=True)
    ]


def plain_number(number: float | None) -> float | None:
    """Return a Python float: drivers do not accept numpy's, and SQLite does not keep the sign of zero."""
    return None if number is None else float(number) + 0.0


def _insert(connection: Connection, table: Table, row: dict[str, Any]) -> int:
    return connection.execute(insert(table).values(row).returning(table.c.id)).scalar_one()


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's fields as the database will return them: JSON has neither tuples nor numeric keys."""
    return json.loads(canonical_json(dict(record)))


def _storable(text: str | None) -> str | None:
    """Return a text that every database accepts: PostgreSQL refuses NUL, all refuse a lone surrogate."""
    if text is None:
        return None
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
