"""What makes the ledger tamper-evident: a chain of hashes over every row of a study, in the order written.

    hash_k = SHA-256(hash_{k−1} ‖ canonical JSON of row k's kind and content),   hash_0 the empty text

A row's content names what it refers to (a value its property, an evaluation its recipe), never by the database's own
keys: a study has the same hashes wherever it is restored. The last hash, the head, stands for all rows: who knows it
can tell whether any of them was changed, removed, inserted or moved. The definition must never change.
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
"""The tables whose rows are chained, by the kind of their rows; ``migration`` is a kind without a table."""

BATCH = 5_000  # rows read or written at once


@dataclass(frozen=True)
class Link:
    """A row to be chained: its kind, its primary key, and what it says."""

    kind: str
    row_id: int
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Head:
    """The end of a chain: how many rows it has, and the hash of the last."""

    number: int
    hash: str


def next_hash(previous: str, kind: str, content: Mapping[str, Any]) -> str:
    return hashlib.sha256((previous + canonical_json({"kind": kind, "row": content})).encode()).hexdigest()


def head_of(connection: Connection, study_id: int) -> Head:
    table = tables.chain
    query = select(table.c.number, table.c.hash).filter_by(study_id=study_id).order_by(table.c.number.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return Head(0, "") if row is None else Head(row.number, row.hash)


def append(connection: Connection, study_id: int, head: Head, links: Iterable[Link]) -> None:
    """Chains rows that were just written to the present ``head``, in the same transaction."""
    rows: list[dict[str, Any]] = []
    # RETURNING makes one statement of many rows: of psycopg's pipeline of many statements, PostgreSQL does not end a
    # session that sleeps behind it
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


def number_of(connection: Connection, study_id: int, kind: str, row_id: int) -> int:
    """Where in the chain a row stands."""
    query = select(tables.chain.c.number).filter_by(study_id=study_id, kind=kind, row_id=row_id)
    number = connection.execute(query).scalar_one_or_none()
    if number is None:
        raise DiffcreditError(f"{kind} {row_id} of the ledger is not in its chain; diffcredit verify tells more")
    return number


def migrated(version: int) -> Link:
    """Says that all rows before it were chained by the migration from a schema ``version`` that had no chain."""
    return Link("migration", version, {"from schema": version})


def chain_all(connection: Connection, version: int) -> None:
    """Chains what a ledger of a schema ``version`` without a chain holds."""
    for study_id in connection.execute(select(tables.studies.c.id).order_by(tables.studies.c.id)).scalars().all():
        numbers: dict[int, int] = {}
        links = joined(_unchained(connection, study_id, numbers), [migrated(version)])
        append(connection, study_id, head_of(connection, study_id), links)


def _unchained(connection: Connection, study_id: int, numbers: dict[int, int]) -> Iterator[Link]:
    """All rows of a study, kind by kind; ``numbers`` of the evaluations, to which values refer."""
    number = 0
    for kind in TABLES:
        query = rows_of(kind, study_id).order_by(TABLES[kind].c.id)
        for row in connection.execute(query, execution_options={"yield_per": BATCH}):
            number += 1
            if kind == "evaluation":
                numbers[row.id] = number
            evaluation = {"evaluation": numbers[row.evaluation_id]} if kind == "value" else {}
            yield Link(kind, row.id, content_of(row) | evaluation)


def rows_of(kind: str, study_id: int) -> Select[Any]:
    """A study's rows of one kind, with the names of the recipe or property that they refer to."""
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
    """What a row says, its keys left out; a value lacks the ``evaluation`` that it belongs to."""
    return {name: value for name, value in row._mapping.items() if name != "id" and not name.endswith("_id")}
