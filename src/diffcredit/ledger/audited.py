"""The one reader of a study's rows: it compares each of them with the chain, and keeps those that are as written.

Whatever shows a number, and whatever verifies, reads through :func:`read_study`. At first it reads the study whole;
afterwards only what was appended, which must continue from the link where it stopped. Rows that were compared once are
kept and not read again, so that what is shown later is what was compared.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from diffcredit.errors import UserError
from diffcredit.ledger import stored, tables
from diffcredit.ledger.chain import BEGINNING, TABLES, Head, migration_link
from diffcredit.ledger.keys import key_among, study_key
from diffcredit.ledger.records import Entry, Evaluation, PropertyRecord, RecipeRecord, Value
from diffcredit.ledger.soundness import ChangedRecord, damages, tables_of
from diffcredit.ledger.stored import Stored, checked_object
from diffcredit.proofs.rows import hash_of_text, text_of
from diffcredit.util.sanitize import shortened, truncated

Found = dict[str, dict[Any, Stored]]
"""Rows by kind and primary key, not yet compared."""

Seen = Callable[[str, str], object]
"""Called with the hash of each link in order, and the text of its row where that agrees."""

LOWEST = -(2**63)  # number that a database can hold

_REFUSED = (TypeError, ValueError, KeyError, RecursionError)  # what a row of a stranger may raise


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


class AuditedStudy:
    """A study's rows that agree with its chain, up to its ``head``, and the ``problems`` with all others, one line
    each. Its methods return records made anew: nothing done to them reaches these rows."""

    def __init__(self, name: str, key: int) -> None:
        self.name, self.key = name, key
        self.head = BEGINNING
        self.migrated = 0  # rows at the beginning that a migration chained
        self.problems: list[str] = []
        self._settings = "{}"
        self._named: dict[tuple[str, int], str] = {}  # names of recipes and properties by kind and key
        self._registered: dict[str, dict[str, Stored]] = {"recipe": {}, "property": {}}  # by name
        self.numbers: dict[int, int] = {}  # places in the chain of evaluations
        self._evaluations: dict[int, list[Stored]] = {}  # by recipe, in the order of recording
        self._done: dict[tuple[int, str, int], Stored] = {}  # by recipe, coalition and replicate
        self._values: dict[int, dict[str, Value]] = {}  # by evaluation and property
        self._entries: list[tuple[Stored, bool, str]] = []  # before evaluations? and its hash
        self._last_keys: dict[str, int] = {}  # by kind; keys grow in the order of writing

    # What it says.
    @property
    def settings(self) -> dict[str, Any]:
        return json.loads(self._settings)

    def recipes(self) -> list[RecipeRecord]:
        rows = self._registered["recipe"].values()
        return [RecipeRecord(name, json.loads(settings), weights) for _, _, name, settings, weights in rows]

    def properties(self) -> list[PropertyRecord]:
        rows = self._registered["property"].values()
        return [
            PropertyRecord(name, json.loads(settings), bool(higher), state)
            for _, _, name, settings, higher, state in rows
        ]

    def entries(self, kind: str) -> list[Entry]:
        return [_entry(*each) for each in self._entries if each[0][2] == kind]

    def evaluations(
        self, recipe: str, *, status: str | None = None, purpose: str | None = None, after: int = 0
    ) -> list[Evaluation]:
        """Return a recipe's evaluations whose primary keys are over ``after``, by default of every status and
        purpose."""
        rows = self._evaluations.get(self.key_of("recipe", recipe), [])
        objects: dict[str, dict[str, Any]] = {}
        return [
            _evaluation(row, self._values.get(row[0], {}), objects)
            for row in rows[bisect_right(rows, after, key=lambda row: row[0]) :]
            if status in (None, row[5]) and purpose in (None, row[4])
        ]

    def last_evaluation(self, recipe: str) -> int:
        """Return the primary key of a recipe's last evaluation; 0 where there is none."""
        rows = self._evaluations.get(self.key_of("recipe", recipe))
        return rows[-1][0] if rows else 0

    def done(self, recipe: str, coalition: str, replicate: int) -> Evaluation | None:
        row = self._done.get((self.key_of("recipe", recipe), coalition, replicate))
        return None if row is None else _evaluation(row, self._values.get(row[0], {}), {})

    @property
    def evaluated(self) -> bool:
        """Whether it has evaluations, done or failed."""
        return bool(self.numbers)

    # By what its rows refer to each other.
    def key_of(self, kind: str, name: str) -> int:
        """Return the primary key of a recipe or property."""
        return key_among(self.keys(kind), name, self.name, kind)

    def keys(self, kind: str) -> dict[str, int]:
        """Return the primary keys of its recipes or properties by name."""
        return {name: row[0] for name, row in self._registered[kind].items()}

    def place(self, recipe: str, coalition: str, replicate: int) -> tuple[int, int]:
        """Return the primary key of an evaluation that is done, and its place in the chain, from 1."""
        key = self._done[self.key_of("recipe", recipe), coalition, replicate][0]
        return key, self.numbers[key]

    # Comparing.
    def compare(self, links: Sequence[Stored], found: Found, seen: Seen) -> None:
        """Follow ``links`` from the head on, and add the rows that agree with them. Rows of ``found`` that no link
        names are problems, too."""
        self._objects: dict[str, dict[str, Any]] = {}  # JSON parsed so far
        for number, kind, key, hashed in links:
            if not (type(number) is type(key) is int and type(kind) is type(hashed) is str):
                self.problems.append(f"a row of the chain after row {self.head.number} is damaged")
                continue
            if number < 1:
                self.problems.append(f"row {number} is before the beginning of the chain: inserted")
                continue
            row, text = found.get(kind, {}).pop(key, None), ""
            if number != self.head.number + 1:
                self.problems.append(f"rows {self.head.number + 1} to {number - 1} of the chain are missing")
            elif row is None and kind != "migration":
                self.problems.append(f"{self._place(number, kind, row)} is missing")
            else:
                text = self._compare_row(number, kind, key, hashed, row or ())
            if key <= self._last_keys.get(kind, 0):
                self.problems.append(f"{self._place(number, kind, row)} is out of its order")
            self._last_keys[kind], self.head = key, Head(number, hashed)
            seen(hashed, text)
        for kind, rows in found.items():
            inserted = "is in no row of the chain: inserted"
            self.problems += [f"{self._described(kind, row)} {inserted}" for row in rows.values()]
        self._objects.clear()

    def _compare_row(self, number: int, kind: str, key: int, hashed: str, row: Stored) -> str:
        """Add a row that follows the head if it is as it was written; return its text then."""
        try:
            text = self._text(number, kind, key, row)
            as_written = hash_of_text(self.head.hash, text) == hashed
        except _REFUSED:
            as_written = False
        if not as_written:
            self.problems.append(f"{self._place(number, kind, row)} is not as it was written")
            return ""
        try:
            self._add(number, kind, key, hashed, row)
        except _REFUSED as error:  # who wrote the chain anew may have written anything
            self.problems.append(f"{self._place(number, kind, row)} is no row of a study ({error})")
        return text

    def _text(self, number: int, kind: str, key: int, row: Stored) -> str:
        """Return the text of a row, which other rows may name from now on."""
        if kind == "value":
            return stored.value_text(row, self.numbers[row[1]], self._named["property", row[2]])
        if kind == "evaluation":
            self.numbers[key] = number
            return stored.evaluation_text(row, self._named["recipe", row[1]])
        if kind == "migration":
            return text_of(kind, migration_link(key).content)
        if kind in self._registered:
            self._named[kind, key] = row[2]
        return stored.TEXTS[kind](row)

    def _add(self, number: int, kind: str, key: int, hashed: str, row: Stored) -> None:
        """Add a row that agrees with its link. Refuse what would be shown in place of another, and what is no
        record."""
        if kind == "value":
            known, name = self._values.setdefault(row[1], {}), self._named["property", row[2]]
            if name in known and known[name].error is None:
                raise ValueError("the evaluation has this value twice")
            known[name] = Value(name, *row[3:])
        elif kind == "evaluation":
            task = row[1], row[2], row[3]
            evaluation = _evaluation(row, {}, self._objects, check=True)
            if evaluation.status == "done" and self._done.setdefault(task, row) is not row:
                raise ValueError("the same evaluation is done twice")
            self._evaluations.setdefault(row[1], []).append(row)
        elif kind in self._registered:
            checked_object(row[3])
            if self._registered[kind].setdefault(row[2], row) is not row:
                raise ValueError("the same name twice")
        elif kind == "entry":
            entry = row, not self.numbers, hashed
            checked_object(row[4])
            _entry(*entry)
            self._entries.append(entry)
        elif kind == "study":
            checked_object(row[2])
            if row[1] != self.name:
                raise ValueError("another study's name")
            self._settings = row[2]
        else:
            self.migrated = number

    def _place(self, number: int, kind: str, row: Stored | None) -> str:
        return f"row {number} ({self._described(kind, row) if row else _shown(kind)})"

    def _described(self, kind: str, row: Stored) -> str:
        """Describe a row for a reader; anything may be in it."""
        if kind == "evaluation":
            return f"evaluation of coalition {_shown(row[2])}, replicate {_shown(row[3])}"
        if kind == "value":
            return f"value of {shortened(self._named.get(('property', row[2])))}"
        return f"{kind} {shortened(row[{'study': 1, 'entry': 3}.get(kind, 2)])}"


def _shown(value: object) -> str:
    return truncated(value) if isinstance(value, str) and value.isprintable() else shortened(value)


def _evaluation(
    row: Stored,
    values: Mapping[str, Value],
    objects: dict[str, dict[str, Any]],
    *,
    check: bool = False,
) -> Evaluation:
    """Return the record of a row. ``objects``: JSON parsed so far, which many rows have in common. ``check``: refuse
    what is no evaluation."""
    parse = checked_object if check else json.loads
    _, _, coalition, replicate, purpose, status, error, *texts, worker, started, finished = row
    for each in texts:
        if each not in objects:
            objects[each] = parse(each)
    numerics, seconds, versions = (objects[each] for each in texts)
    content = {
        "coalition": coalition,
        "replicate": replicate,
        "purpose": purpose,
        "status": status,
        "values": tuple(values.values()),
        "error": error,
        "numerics": numerics,
        "seconds": seconds,
        "worker": worker,
        "started": started,
        "finished": finished,
        "versions": versions,
    }
    if check:
        return Evaluation(**content)
    made = object.__new__(Evaluation)  # a row that was added has been checked, which takes most of the time
    vars(made).update(content)
    return made


def _entry(row: Stored, before_evaluations: bool, head: str) -> Entry:
    _, _, kind, name, content, entered = row
    return Entry(kind, name, json.loads(content), entered, before_evaluations, head)


def read_study(
    connection: Connection, name: str, known: AuditedStudy | None = None, seen: Seen = lambda hashed, text: None
) -> AuditedStudy:
    """Read a study whole, or what was appended to one that is ``known``; its ``problems`` say what was changed."""
    if known is None:
        return _read_whole(connection, name, seen)
    last, *links = stored.stored_links(connection, known.key, known.head.number) or [(0, "", 0, "")]
    if (last[0], last[3]) != (known.head.number, known.head.hash):
        raise ChangedRecord(
            f"the record was changed: row {known.head.number} of the chain is not what it was when it was last read: "
            "rows were removed, or the chain was written anew"
        )
    if links:
        first = {kind: min(key for _, each, key, _ in links if each == kind) for _, kind, _, _ in links}
        known.compare(links, _rows(connection, known, first), seen)
    return known


def _read_whole(connection: Connection, name: str, seen: Seen) -> AuditedStudy:
    stored.scan_tables(connection)
    present, disguised, missing = tables_of(connection)
    study, broken = AuditedStudy(name, 0 if missing else study_key(connection, name)), missing or damages(connection)
    study.problems = [*disguised, *broken]
    if not broken and tables.chain.name not in present:
        raise UserError("is of an older schema without a chain to compare its rows with; diffcredit run adds it")
    if not broken:  # in a damaged file, the rows of a table may never end
        kinds = {kind for kind, table in TABLES.items() if table.name in present}
        links = stored.stored_links(connection, study.key, LOWEST)
        study.compare(links, _rows(connection, study, dict.fromkeys(kinds, LOWEST)), seen)
    return study


def _rows(connection: Connection, study: AuditedStudy, first: Mapping[str, int]) -> Found:
    """Return a study's rows of each kind from the ``first`` primary key on, past those that it has already."""
    found: Found = {}
    for kind in ("study", "recipe", "property", "entry"):
        if kind in first:
            column = "id" if kind == "study" else "study_id"
            condition = f"{column} = :study AND id >= :first"
            found[kind] = stored.stored_rows(connection, kind, condition, study=study.key, first=first[kind])
    recipes = [*study.keys("recipe").values(), *found.get("recipe", {})]
    if "evaluation" in first and recipes:
        condition = f"recipe_id IN ({', '.join(map(str, recipes))}) AND id >= :first"
        found["evaluation"] = stored.stored_rows(connection, "evaluation", condition, first=first["evaluation"])
    known, new = study.numbers, found.get("evaluation", {})
    if "value" in first and (known or new):
        ends = {"low": next(iter(known or new)), "high": next(reversed(new or known))}
        condition = "evaluation_id BETWEEN :low AND :high AND id >= :first"
        values = stored.stored_rows(connection, "value", condition, first=first["value"], **ends)
        found["value"] = {key: row for key, row in values.items() if row[1] in known or row[1] in new}
    return found


def audit(connection: Connection, name: str, *noted: str | None) -> Audit:
    """Compare every row of a study with the chain, and the chain with heads ``noted`` earlier."""
    heads = set()
    study = read_study(connection, name, seen=lambda hashed, text: heads.add(hashed))
    missing = "rows were removed from the end, or the chain was written anew"
    lines = [f"no row has the hash {head}: {missing}" for head in noted if head is not None and head not in heads]
    return Audit(study.head.number, study.head.hash, study.migrated, (*study.problems, *lines))
