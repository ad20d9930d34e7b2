"""The chain, which makes the ledger tamper-evident, and its audit.

Each row of a study has a hash, in order of writing, which follows from the row before it and its own content
(:mod:`diffcredit.proofs.rows`). The last hash, the *head*, covers all rows: whoever noted it can later find out whether
a row was changed, removed, inserted or moved. A row's content refers to other rows by name, or by number in the chain,
and never by the database's own keys, so that a study has the same hashes in every ledger. This definition must never
change.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, and_, func, insert, inspect, select

from diffcredit.errors import DiffcreditError
from diffcredit.ledger import tables
from diffcredit.proofs.rows import next_hash

TABLES: dict[str, Table] = {
    "study": tables.studies,
    "recipe": tables.recipes,
    "property": tables.properties,
    "evaluation": tables.evaluations,
    "value": tables.values,
    "entry": tables.entries,
}
"""The tables whose rows are chained, by kind of row. A further kind, ``migration``, has no table."""

CHAINED_AT_FIRST = ("study", "recipe", "property", "evaluation", "value")  # by schema 3, in this order

BATCH = 5_000  # rows read or written at once


@dataclass(frozen=True)
class Link:
    """A row to be chained: its kind, its primary key and its content (see :func:`content_of`)."""

    kind: str
    row_id: int
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Head:
    """The end of a chain: the number of its rows and the hash of the last one."""

    number: int
    hash: str


def head_of(connection: Connection, study_id: int) -> Head:
    """Return the end of a study's chain; it has no rows before the study is entered."""
    table = tables.chain
    query = select(table.c.number, table.c.hash).filter_by(study_id=study_id).order_by(table.c.number.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return Head(0, "") if row is None else Head(row.number, row.hash)


def append(connection: Connection, study_id: int, head: Head, links: Iterable[Link]) -> Head:
    """Chain rows, written in the same transaction, to the present ``head``; return the new head."""
    rows: list[dict[str, Any]] = []
    # RETURNING sends many rows as one statement. Without it psycopg uses a pipeline of statements, and PostgreSQL does
    # not end the session of a client that falls asleep behind that (see MOST_IDLE in database.py).
    statement = insert(tables.chain).returning(tables.chain.c.number)
    for number, link in enumerate(links, head.number + 1):
        head = Head(number, next_hash(head.hash, link.kind, link.content))
        rows.append(
            {"study_id": study_id, "number": number, "kind": link.kind, "row_id": link.row_id, "hash": head.hash}
        )
        if len(rows) == BATCH:
            connection.execute(statement, rows)
            rows = []
    if rows:
        connection.execute(statement, rows)
    return head


def number_of(connection: Connection, study_id: int, kind: str, row_id: int) -> int:
    """Return a row's place in the chain, from 1."""
    query = select(tables.chain.c.number).filter_by(study_id=study_id, kind=kind, row_id=row_id)
    number = connection.execute(query).scalar_one_or_none()
    if number is None:
        raise DiffcreditError(f"{kind} {row_id} is not in the ledger's chain; diffcredit verify lists all problems")
    return number


def migration_link(version: int) -> Link:
    """Return the link which states that a migration chained all rows before it, from a schema without a chain."""
    return Link("migration", version, {"from schema": version})


def _tables(connection: Connection) -> dict[str, Table]:
    """Return the chained tables that a ledger has, which one of an older schema may not all have, by kind of row."""
    present = set(inspect(connection).get_table_names())
    return {kind: table for kind, table in TABLES.items() if table.name in present}


def first_evaluation(connection: Connection, study_id: int) -> int | None:
    """Return the place in the chain of a study's first evaluation; None where there is none yet."""
    query = select(func.min(tables.chain.c.number)).filter_by(study_id=study_id, kind="evaluation")
    return connection.execute(query).scalar_one()


def rows_query(kind: str, study_id: int) -> Select[Any]:
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


def content_of(row: Row[Any]) -> dict[str, Any]:
    """Return a row's columns without its keys. For a value the caller adds ``evaluation``, a place in the chain."""
    return {name: value for name, value in row._mapping.items() if name != "id" and not name.endswith("_id")}


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
    for kind in _tables(connection):
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
    present = _tables(connection)
    for start in range(0, count, BATCH):
        these = and_(mine, table.c.number > start, table.c.number <= start + BATCH)
        contents: dict[int, dict[str, Any]] = {}
        for kind, rows in present.items():
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
