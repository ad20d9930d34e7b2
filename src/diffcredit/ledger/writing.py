"""Rows of a study, as they are added: each becomes a link of the chain."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, insert

from diffcredit.ledger import tables
from diffcredit.ledger.chain import Link
from diffcredit.ledger.records import Evaluation, PropertyRecord, RecipeRecord, Value
from diffcredit.util.artifacts import canonical_json


def add_study(connection: Connection, name: str, settings: dict[str, Any]) -> Link:
    row = _plain({"name": name, "settings": settings})
    return Link("study", _insert(connection, tables.studies, row), row)


def add_recipe(connection: Connection, study_id: int, recipe: RecipeRecord) -> Link:
    row = _plain(vars(recipe))
    return Link("recipe", _insert(connection, tables.recipes, row | {"study_id": study_id}), row)


def add_property(connection: Connection, study_id: int, prop: PropertyRecord) -> Link:
    row = _plain(vars(prop))
    return Link("property", _insert(connection, tables.properties, row | {"study_id": study_id}), row)


def add_evaluation(connection: Connection, recipe_id: int, recipe_name: str, evaluation: Evaluation) -> Link:
    """Without its values."""
    row = _plain(vars(evaluation) | {"values": None, "error": _storable(evaluation.error)})
    del row["values"]
    row_id = _insert(connection, tables.evaluations, row | {"recipe_id": recipe_id})
    return Link("evaluation", row_id, row | {"recipe": recipe_name})


def add_values(
    connection: Connection, evaluation_id: int, number: int, values: Sequence[tuple[int, Value]]
) -> list[Link]:
    """Values with their properties' keys, at least one. ``number``: the evaluation's in the chain."""
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
    """A Python float: drivers do not know numpy's, and SQLite does not keep the sign of zero."""
    return None if number is None else float(number) + 0.0


def _insert(connection: Connection, table: Table, row: dict[str, Any]) -> int:
    return connection.execute(insert(table).values(row).returning(table.c.id)).scalar_one()


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record's fields as the database will give them back: JSON knows neither tuples nor numbers as keys."""
    return json.loads(canonical_json(dict(record)))


def _storable(text: str | None) -> str | None:
    """A text that every database keeps: PostgreSQL knows no NUL, none knows half a character."""
    if text is None:
        return None
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
