"""The chain: one hash for every row of a study, in the order of writing, which makes the ledger tamper-evident.

    hash_k = SHA-256(hash_{k−1} ‖ canonical JSON of row k's kind and content),   hash_0 the empty text

The last hash, the *head*, covers all rows: whoever noted it can later find out whether a row was changed, removed,
inserted or moved. A row's content refers to other rows by name, or by number in the chain, and never by the database's
own keys, so that a study has the same hashes in every ledger. This definition must never change.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain as joined
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, insert, select

from diffcredit.errors import DiffcreditError
from diffcredit.ledger import tables
from diffcredit.util.artifacts import canonical_json

TABLES: dict[str, Table] = {
    "study": tables.studies,
    "recipe": tables.recipes,
    "property": tables.properties,
    "evaluation": tables.evaluations,
    "value": tables.values,
}
"""The tables whose rows are chained, by kind of row. A further kind, ``migration``, has no table."""

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


def next_hash(previous: str, kind: str, content: Mapping[str, Any]) -> str:
    """Return the hash of a row that follows one with the hash ``previous``."""
    return hashlib.sha256((previous + canonical_json({"kind": kind, "row": content})).encode()).hexdigest()


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
    # not end the session of a client that falls asleep behind that (see MOST_IDLE in postgres.py).
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


def chain_all(connection: Connection, version: int) -> None:
    """Chain all rows of a ledger of schema ``version``, which had no chain."""
    for study_id in connection.execute(select(tables.studies.c.id).order_by(tables.studies.c.id)).scalars().all():
        links = joined(_unchained(connection, study_id), [migration_link(version)])
        append(connection, study_id, head_of(connection, study_id), links)


def _unchained(connection: Connection, study_id: int) -> Iterator[Link]:
    """Yield the links of all rows of a study, kind by kind."""
    number, evaluations = 0, {}  # places in the chain
    for kind in TABLES:
        query = rows_query(kind, study_id).order_by(TABLES[kind].c.id)
        for row in connection.execute(query, execution_options={"yield_per": BATCH}):
            number += 1
            if kind == "evaluation":
                evaluations[row.id] = number
            evaluation = {"evaluation": evaluations[row.evaluation_id]} if kind == "value" else {}
            yield Link(kind, row.id, content_of(row) | evaluation)


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
