"""Changing a ledger behind diffcredit's back, with and without the chain, past all of its code."""

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

TABLES = {
    "study": "studies",
    "recipe": "recipes",
    "property": "properties",
    "evaluation": "evaluations",
    "value": "property_values",
    "entry": "entries",
}
OBJECTS = ("settings", "numerics", "seconds", "versions", "content")


def change(file: Path, *statements: str) -> None:
    """Execute statements on a ledger file, also such as change its schema."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        for statement in statements:
            connection.execute(statement)


def chain_anew(file: Path) -> None:
    """Write the chain again over the rows as they are, as somebody would who can write to the ledger: only a head kept
    elsewhere shows it."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.row_factory = sqlite3.Row
        places: dict[int, int] = {}
        links = connection.execute("SELECT * FROM chain ORDER BY study_id, number").fetchall()
        connection.execute("DELETE FROM chain")
        previous, study, number = "", None, 0
        for link in links:
            if link["study_id"] != study:
                previous, study, number = "", link["study_id"], 0
            row = _content(connection, link, places)
            if row is None:  # it was deleted
                continue
            number += 1
            if link["kind"] == "evaluation":
                places[link["row_id"]] = number
            whole = {"kind": link["kind"], "row": row}
            said = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            previous = hashlib.sha256((previous + said).encode()).hexdigest()
            new = (study, number, link["kind"], link["row_id"], previous)
            connection.execute("INSERT INTO chain (study_id, number, kind, row_id, hash) VALUES (?, ?, ?, ?, ?)", new)


def _content(connection: sqlite3.Connection, link: sqlite3.Row, places: dict[int, int]) -> dict[str, Any] | None:
    if link["kind"] == "migration":
        return {"from schema": link["row_id"]}
    found = connection.execute(f"SELECT * FROM {TABLES[link['kind']]} WHERE id = ?", (link["row_id"],)).fetchone()
    if found is None:
        return None
    row = dict(found)
    for kind, table in (("recipe", "recipes"), ("property", "properties")):
        if (key := row.get(f"{kind}_id")) is not None:
            (row[kind],) = connection.execute(f"SELECT name FROM {table} WHERE id = ?", (key,)).fetchone()
    if "evaluation_id" in row:
        row["evaluation"] = places[row["evaluation_id"]]
    if "higher_is_better" in row:
        row["higher_is_better"] = bool(row["higher_is_better"])
    columns = {name: value for name, value in row.items() if name != "id" and not name.endswith("_id")}
    return {name: json.loads(value) if name in OBJECTS else value for name, value in columns.items()}
