"""Rows back to records, and names to the primary keys by which rows refer to each other. An unknown name is a UserError
that lists the known ones."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, and_, inspect, select

from diffcredit.errors import UserError
from diffcredit.ledger import tables
from diffcredit.ledger.chain import Head, content_of, first_evaluation, head_of
from diffcredit.ledger.records import Entry, Evaluation, Value


def has_table(connection: Connection, table: Table) -> bool:
    """Return whether the ledger has a table, which one of an older schema may not."""
    return inspect(connection).has_table(table.name)


def study_key(connection: Connection, study: str) -> int:
    names = select(tables.studies.c.name, tables.studies.c.id).order_by(tables.studies.c.id)
    row = connection.execute(names.filter_by(name=study)).one_or_none()
    if row is None:
        raise UserError(f"no study {study!r}; {_listed(each.name for each in connection.execute(names))}")
    return row.id


def chained_study_key(connection: Connection, study: str) -> int:
    """Return a study's key; refuse a ledger of the schema that had no chain yet."""
    study_id = study_key(connection, study)
    if not has_table(connection, tables.chain):
        raise UserError("is of an older schema without a chain; diffcredit run adds it")
    return study_id


def recipe_key(connection: Connection, study: str, name: str) -> int:
    return key_among(keys_of(connection, tables.recipes, study_key(connection, study)), name, study, "recipe")


def keys_of(connection: Connection, table: Table, study_id: int) -> dict[str, int]:
    """Return the keys of a study's recipes or properties by name."""
    query = select(table.c.name, table.c.id).filter_by(study_id=study_id).order_by(table.c.id)
    return {row.name: row.id for row in connection.execute(query)}


def key_among(keys: Mapping[str, int], name: str, study: str, kind: str) -> int:
    if name not in keys:
        raise UserError(f"study {study!r} has no {kind} {name!r}; {_listed(keys)}")
    return keys[name]


def _listed(names: Iterable[str]) -> str:
    listed = ", ".join(map(repr, names))
    return f"there is {listed}" if listed else "there is none yet"


def studies(connection: Connection) -> dict[str, dict[str, Any]]:
    rows = connection.execute(select(tables.studies).order_by(tables.studies.c.id))
    return {row.name: row.settings for row in rows}


def head(connection: Connection, study: str) -> Head:
    study_id = study_key(connection, study)
    return head_of(connection, study_id) if has_table(connection, tables.chain) else Head(0, "")


def registered(connection: Connection, table: Table, study: str) -> list[dict[str, Any]]:
    """Return the fields of a study's recipes or properties in the order of registration."""
    query = select(table).filter_by(study_id=study_key(connection, study)).order_by(table.c.id)
    return [content_of(row) for row in connection.execute(query)]


def entries(connection: Connection, study: str, kind: str) -> list[Entry]:
    """Return a study's entries of one kind in the order in which they were entered."""
    study_id, found = study_key(connection, study), []
    if not has_table(connection, tables.entries):
        return found
    first = first_evaluation(connection, study_id)
    link = and_(tables.chain.c.kind == "entry", tables.chain.c.row_id == tables.entries.c.id)
    place = tables.chain.c.number.label("chained_id"), tables.chain.c.hash.label("head")
    joined = tables.entries.join(tables.chain, and_(link, tables.chain.c.study_id == study_id))
    query: Any = select(tables.entries, *place).select_from(joined)
    for row in connection.execute(query.where(tables.entries.c.kind == kind).order_by(tables.entries.c.id)):
        found.append(Entry(**content_of(row), before_evaluations=first is None or row.chained_id < first))
    return found


def evaluations(
    connection: Connection, study: str, recipe: str, columns: Mapping[str, str | None], after: int = 0
) -> list[tuple[int, Evaluation]]:
    """Return a recipe's evaluations in the order of recording, each with its primary key, which is over ``after``.
    ``columns`` may ask for one status or purpose; None: any."""
    table = tables.evaluations
    wanted = {name: value for name, value in columns.items() if value is not None}
    query = select(table).filter_by(recipe_id=recipe_key(connection, study, recipe), **wanted).where(table.c.id > after)
    rows = connection.execute(query.order_by(table.c.id)).all()
    values = values_of(connection, query.with_only_columns(table.c.id)) if rows else {}
    return [(row.id, _evaluation(row, values)) for row in rows]


def done(connection: Connection, study: str, recipe: str, coalition: str, replicate: int) -> Evaluation | None:
    row = done_row(connection, recipe_key(connection, study, recipe), coalition, replicate)
    return None if row is None else _evaluation(row, values_of(connection, [row.id]))


def done_row(connection: Connection, recipe_id: int, coalition: str, replicate: int) -> Row | None:
    """Return the row of a done evaluation, without its values. There is at most one (``one_success`` in ``tables``)."""
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
