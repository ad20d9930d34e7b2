"""Rows back to records."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, select

from diffcredit.ledger import tables
from diffcredit.ledger.chain import content_of
from diffcredit.ledger.records import Evaluation, PropertyRecord, RecipeRecord, Value


def studies(connection: Connection) -> dict[str, dict[str, Any]]:
    rows = connection.execute(select(tables.studies).order_by(tables.studies.c.id))
    return {row.name: row.settings for row in rows}


def recipes(connection: Connection, study: str) -> list[RecipeRecord]:
    return [RecipeRecord(**content_of(row)) for row in connection.execute(_registered(tables.recipes, study))]


def properties(connection: Connection, study: str) -> list[PropertyRecord]:
    return [PropertyRecord(**content_of(row)) for row in connection.execute(_registered(tables.properties, study))]


def find(connection: Connection, table: Table, study: str, name: str) -> Row | None:
    """Return the row of a study's recipe or property, or None."""
    return connection.execute(_registered(table, study).where(table.c.name == name)).one_or_none()


def _registered(table: Table, study: str) -> Select:
    """Select a study's recipes or properties in the order of registration."""
    of_study = select(table).join(tables.studies).where(tables.studies.c.name == study)
    return of_study.order_by(table.c.id)


def evaluations(
    connection: Connection, recipe_id: int, *, status: str | None = None, purpose: str | None = None, after: int = 0
) -> list[tuple[int, Evaluation]]:
    """Return a recipe's evaluations in the order of recording, each with its primary key, which is over ``after``."""
    table = tables.evaluations
    query = select(table).where(table.c.recipe_id == recipe_id, table.c.id > after)
    if status is not None:
        query = query.where(table.c.status == status)
    if purpose is not None:
        query = query.where(table.c.purpose == purpose)
    rows = connection.execute(query.order_by(table.c.id)).all()
    values = values_of(connection, query.with_only_columns(table.c.id)) if rows else {}
    return [(row.id, _evaluation(row, values)) for row in rows]


def done(connection: Connection, recipe_id: int, coalition: str, replicate: int) -> Evaluation | None:
    row = done_row(connection, recipe_id, coalition, replicate)
    return None if row is None else _evaluation(row, values_of(connection, [row.id]))


def done_row(connection: Connection, recipe_id: int, coalition: str, replicate: int) -> Row | None:
    """The same without its values: the one row there can be (``one_success`` in :mod:`~diffcredit.ledger.tables`)."""
    task = {"recipe_id": recipe_id, "coalition": coalition, "replicate": replicate}
    return connection.execute(select(tables.evaluations).filter_by(**task, status="done")).one_or_none()


def _evaluation(row: Row, values: dict[int, dict[str, Value]]) -> Evaluation:
    return Evaluation(**content_of(row), values=tuple(values.get(row.id, {}).values()))


def values_of(connection: Connection, evaluation_ids: Select | Sequence[int]) -> dict[int, dict[str, Value]]:
    """Return the values of evaluations, by key and property. A value added after an error replaces it."""
    table = tables.values.c
    query = (
        select(
            table.evaluation_id, tables.properties.c.name, table.value, table.standard_error, table.images, table.error
        )
        .join(tables.properties)
        .where(table.evaluation_id.in_(evaluation_ids))
        .order_by(table.id)
    )
    found: dict[int, dict[str, Value]] = {}
    for evaluation_id, name, *fields in connection.execute(query):  # unpacked: there may be hundreds of thousands
        found.setdefault(evaluation_id, {})[name] = Value(name, *fields)
    return found
