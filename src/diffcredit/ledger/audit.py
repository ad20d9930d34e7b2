"""Checking that a study's rows are as they were written: the chain against the rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, and_, select

from diffcredit.ledger import tables
from diffcredit.ledger.chain import BATCH, TABLES, Head, content_of, head_of, migration_link, next_hash, rows_query


@dataclass(frozen=True)
class Audit:
    """The result of checking a study's chain."""

    rows: int
    """The number of rows in the chain."""
    head: str
    """The hash of the last row."""
    migrated: int
    """How many rows at the beginning were chained by a migration: what happened to them before cannot be known."""
    problems: tuple[str, ...]
    """One line each; empty where every row is as it was written."""


def audit(connection: Connection, study_id: int, head: str | None) -> Audit:
    """Compare every row of a study with the chain, and the chain with a ``head`` noted earlier."""
    end = head_of(connection, study_id)
    problems, found, migrated = [], head is None, 0
    previous = Head(0, "")
    last_ids: dict[str, int] = {}  # by kind; keys grow in the order of writing
    for link, content in chained_rows(connection, study_id):
        place = f"row {link.number} ({_described(link.kind, content)})"
        if link.number > previous.number + 1:
            problems.append(f"rows {previous.number + 1} to {link.number - 1} of the chain are missing")
        elif content is None:
            problems.append(f"{place} is missing")
        elif next_hash(previous.hash, link.kind, content) != link.hash:
            problems.append(f"{place} is not as it was written")
        if link.row_id <= last_ids.get(link.kind, 0):
            problems.append(f"{place} is out of its order")
        if link.kind == "migration":
            migrated = link.number
        last_ids[link.kind] = link.row_id
        previous = Head(link.number, link.hash)
        found = found or link.hash == head
    for kind in TABLES:
        for row in _inserted(connection, study_id, kind):
            problems.append(f"{_described(kind, content_of(row))} is in no row of the chain: inserted")
    if not found:
        problems.append(f"no row has the hash {head}: rows were removed from the end, or the chain was written anew")
    return Audit(end.number, end.hash, migrated, tuple(problems))


def chained_rows(connection: Connection, study_id: int) -> Iterator[tuple[Row[Any], dict[str, Any] | None]]:
    """Yield the chain's links in order, each with the present content of its row; None where the row is missing."""
    count = head_of(connection, study_id).number
    table, mine = tables.chain, tables.chain.c.study_id == study_id
    evaluations = table.alias()  # for the place in the chain of the evaluation that a value belongs to
    for start in range(0, count, BATCH):
        these = and_(mine, table.c.number > start, table.c.number <= start + BATCH)
        contents: dict[int, dict[str, Any]] = {}
        for kind, rows in TABLES.items():
            # a column that ends in _id is a key, which content_of leaves out
            query = rows_query(kind, study_id).add_columns(table.c.number.label("chained_id"))
            query = query.join(table, and_(these, table.c.kind == kind, table.c.row_id == rows.c.id))
            if kind == "value":
                belongs = and_(
                    evaluations.c.study_id == study_id,
                    evaluations.c.kind == "evaluation",
                    evaluations.c.row_id == rows.c.evaluation_id,
                )
                query = query.add_columns(evaluations.c.number.label("evaluation")).outerjoin(evaluations, belongs)
            contents |= {row.chained_id: content_of(row) for row in connection.execute(query)}
        for link in connection.execute(select(table).where(these).order_by(table.c.number)).all():
            content = contents.get(link.number)
            yield link, dict(migration_link(link.row_id).content) if link.kind == "migration" else content


def _inserted(connection: Connection, study_id: int, kind: str) -> Iterator[Row[Any]]:
    """Yield the rows of a study that are not in the chain."""
    table = tables.chain
    chained = and_(table.c.study_id == study_id, table.c.kind == kind, table.c.row_id == TABLES[kind].c.id)
    yield from connection.execute(rows_query(kind, study_id).outerjoin(table, chained).where(table.c.number.is_(None)))


def _described(kind: str, content: dict[str, Any] | None) -> str:
    """Describe a row for a reader."""
    if content is None:
        return kind
    if kind == "evaluation":
        return f"evaluation of coalition {content['coalition']}, replicate {content['replicate']}"
    if kind == "value":
        return f"value of {content['property']!r}"
    return f"{kind} {content['name']!r}" if "name" in content else kind
