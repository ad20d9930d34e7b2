"""Rows as the database has them, read whole and past all indices, and the JSON texts that the chain covers.

An index is a copy of a table's columns. Who can write to the file can change the copy alone, so tables themselves are
read: SQLite is told ``NOT INDEXED``, PostgreSQL to scan in sequence. Columns of JSON are taken as the text that is
stored. The text of a row, of which its hash is made, is built of these texts, so that no other spelling of the same
JSON (another order of keys, a key twice) has the same hash.
"""

import json
from collections.abc import Sequence
from json.encoder import encode_basestring
from math import isfinite
from typing import Any

from sqlalchemy import JSON, Column, Connection, text

from diffcredit.ledger.chain import TABLES

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

Stored = Sequence[Any]
"""The columns of a row, in the order in which the table has them. Anything may be in them."""


def scan_tables(connection: Connection) -> None:
    """Have PostgreSQL read tables and no indices until the transaction ends; SQLite is told in each statement."""
    if connection.dialect.name == "postgresql":
        for scan in ("indexscan", "indexonlyscan", "bitmapscan"):
            connection.execute(text(f"SET LOCAL enable_{scan} = off"))


def stored_rows(connection: Connection, kind: str, condition: str, **given: Any) -> dict[Any, Stored]:
    """Return the rows of a table that fulfil a ``condition``, in the order of their primary keys and by them."""
    table = TABLES[kind]
    columns = ", ".join(_as_stored(column, connection) for column in table.columns)
    query = f"SELECT {columns} FROM {table.name}{_past_indices(connection)} WHERE {condition} ORDER BY id"
    return {row[0]: row for row in connection.execute(text(query), given).all()}


def stored_links(connection: Connection, study_id: int, first: int) -> list[Stored]:
    """Return number, kind, row_id and hash of a study's links from the ``first`` number on, in their order."""
    # a few new links are found by the index: whatever it leads to is compared with the links known
    past = _past_indices(connection) if first <= 1 else ""
    query = f"SELECT number, kind, row_id, hash FROM chain{past} WHERE study_id = :study AND number >= :first"
    return [*connection.execute(text(f"{query} ORDER BY number"), {"study": study_id, "first": first}).all()]


def _past_indices(connection: Connection) -> str:
    return " NOT INDEXED" if connection.dialect.name == "sqlite" else ""


def _as_stored(column: Column[Any], connection: Connection) -> str:
    """Return a column as SQL that leaves JSON as text. SQLite has no other JSON, and would hide a blob by a cast."""
    cast = isinstance(column.type, JSON) and connection.dialect.name == "postgresql"
    return f"CAST({column.name} AS TEXT)" if cast else column.name


# The text of a row, by kind: equal to canonical_json({"kind": kind, "row": content}). A TypeError or ValueError is
# raised where a column holds what no writer puts there.
def study_text(row: Stored) -> str:
    _, name, settings = row
    return f'{{"kind":"study","row":{{"name":{quoted(name)},"settings":{_json(settings)}}}}}'


def recipe_text(row: Stored) -> str:
    _, _, name, settings, weights = row
    fields = f'"name":{quoted(name)},"settings":{_json(settings)},"weights":{quoted(weights)}'
    return f'{{"kind":"recipe","row":{{{fields}}}}}'


def property_text(row: Stored) -> str:
    _, _, name, settings, higher, state = row
    if higher not in (0, 1):  # SQLite has no other booleans
        raise ValueError("no boolean")
    fields = f'"name":{quoted(name)},"settings":{_json(settings)},"state":{quoted(state)}'
    return f'{{"kind":"property","row":{{"higher_is_better":{"true" if higher else "false"},{fields}}}}}'


def entry_text(row: Stored) -> str:
    _, _, kind, name, content, entered = row
    fields = f'"entered":{quoted(entered)},"kind":{quoted(kind)},"name":{quoted(name)}'
    return f'{{"kind":"entry","row":{{"content":{_json(content)},{fields}}}}}'


def evaluation_text(row: Stored, recipe: str) -> str:
    """``recipe``: the name of the recipe that it refers to."""
    _, _, coalition, replicate, purpose, status, error, numerics, seconds, versions, worker, started, finished = row
    return (
        f'{{"kind":"evaluation","row":{{"coalition":{quoted(coalition)},"error":{_quoted_or_null(error)},'
        f'"finished":{quoted(finished)},"numerics":{_json(numerics)},"purpose":{quoted(purpose)},"recipe":{quoted(recipe)},'
        f'"replicate":{_integer(replicate)},"seconds":{_json(seconds)},"started":{quoted(started)},'
        f'"status":{quoted(status)},"versions":{_json(versions)},"worker":{quoted(worker)}}}}}'
    )


def value_text(row: Stored, evaluation: int, prop: str) -> str:
    """``evaluation`` and ``prop``: the place in the chain, and the name, of what it refers to."""
    _, _, _, value, standard_error, images, error = row
    return (
        f'{{"kind":"value","row":{{"error":{_quoted_or_null(error)},"evaluation":{evaluation},'
        f'"images":{"null" if images is None else _integer(images)},"property":{quoted(prop)},'
        f'"standard_error":{_number(standard_error)},"value":{_number(value)}}}}}'
    )


TEXTS = {"study": study_text, "recipe": recipe_text, "property": property_text, "entry": entry_text}
"""The functions of those kinds whose rows refer to no other row."""


def checked_object(stored: str) -> dict[str, Any]:
    """Return the JSON object of a text; refuse all but its canonical text."""
    value = json.loads(stored)
    if not isinstance(value, dict) or _CANONICAL.encode(value) != stored:
        raise ValueError("no canonical JSON")
    return value


def quoted(value: str) -> str:
    """Return a text as JSON."""
    return encode_basestring(value)  # refuses all but texts


def _quoted_or_null(value: str | None) -> str:
    return "null" if value is None else encode_basestring(value)


def _json(value: str) -> str:
    """Return the text of a column of JSON as it is; :func:`checked_object` is applied to it later."""
    if not isinstance(value, str):
        raise TypeError("no JSON")
    return value


def _integer(value: int) -> str:
    if type(value) is not int:
        raise TypeError("no integer")
    return str(value)


def _number(value: float | None) -> str:
    if value is None:
        return "null"
    if type(value) is not float or not isfinite(value):
        raise TypeError("no finite number")
    return repr(value)
