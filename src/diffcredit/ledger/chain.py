"""The chain, which makes the ledger tamper-evident.

Each row of a study has a hash, in order of writing, which follows from the row before it and its own content
(:mod:`diffcredit.proofs.rows`). The last hash, the *head*, covers all rows: whoever noted it can later find out whether
a row was changed, removed, inserted or moved. A row's content refers to other rows by name, or by number in the chain,
and never by the database's own keys, so that a study has the same hashes in every ledger. This definition must never
change. Rows are compared with it by :mod:`~diffcredit.ledger.audited`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, insert

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

BATCH = 5_000  # rows written at once


@dataclass(frozen=True)
class Link:
    """A row to be chained: its kind, its primary key, and its columns without keys. What it refers to is named."""

    kind: str
    row_id: int
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Head:
    """The end of a chain: the number of its rows and the hash of the last one."""

    number: int
    hash: str


BEGINNING = Head(0, "")


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


def migration_link(version: int) -> Link:
    """Return the link which states that a migration chained all rows before it, from a schema without a chain."""
    return Link("migration", version, {"from schema": version})
