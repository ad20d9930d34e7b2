"""Entering rows. A row is entered once, and chained to the rows before it in the same transaction.

- A study, recipe or property whose name is known must mean the same as before: values measured under two meanings
  would otherwise be mixed in one estimate.
- Evaluations are deterministic. A second one of the same recipe, coalition and replicate can only confirm the first,
  add values that the first does not have, or contradict it, which is an error and leaves the record as it is.
- An exported study is entered row by row: the same rows in the same order give the same chain.
"""

import itertools
import json
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, delete, insert
from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.ledger import tables
from diffcredit.ledger.audited import AuditedStudy
from diffcredit.ledger.chain import BEGINNING, TABLES, Head, Link, append, migration_link
from diffcredit.ledger.keys import study_names
from diffcredit.ledger.records import (
    Entry,
    Evaluation,
    PropertyRecord,
    RecipeRecord,
    Value,
    changed_settings,
    differences,
)
from diffcredit.util.artifacts import canonical_json

EntryCheck = Callable[[list[Entry], bool], bool]
"""A function of the entries of one kind, and of whether the study has evaluations, to whether to add another."""

Read = Callable[[str], AuditedStudy]
"""A function of a study's name to all that it has now, compared with its chain, while nobody else writes."""

Rows = Sequence[tuple[str, dict[str, Any]]]
"""Kind and content of each row of a study in the order of the chain. The first row is the study itself."""


class NonDeterminism(DiffcreditError):
    """The same recipe, coalition and replicate gave a different value than before."""


def register_study(connection: Connection, read: Read, name: str, settings: dict[str, Any]) -> None:
    if name in study_names(connection):
        _refuse_changed("study", name, read(name).settings, settings)
        return
    link = _insert_study(connection, name, settings)
    append(connection, link.row_id, BEGINNING, [link])


def register(connection: Connection, known: AuditedStudy, record: RecipeRecord | PropertyRecord) -> None:
    kind, name, new = "recipe" if isinstance(record, RecipeRecord) else "property", record.name, vars(record)
    records = known.recipes() if kind == "recipe" else known.properties()
    old = next((vars(each) for each in records if each.name == name), None)
    if old is None:
        append(connection, known.key, known.head, [_insert(connection, kind, new, study_id=known.key)])
        return
    _refuse_changed(kind, name, old["settings"], new["settings"])
    if isinstance(record, RecipeRecord):
        made_from, problem = "weights", "starts from other weights than before"
        remedy = "restore the weights or give the retraining another name"
    else:
        direction = [{"higher_is_better": each["higher_is_better"]} for each in (old, new)]
        _refuse_changed(kind, name, *direction)
        made_from, problem = "state", "has another fitted state than before"
        remedy = "restore what it was fitted to, such as the files that it names, or give the property another name"
    before, after = old[made_from], new[made_from]
    if before != after:
        change = f"({before or 'none'} → {after or 'none'})"
        raise UserError(f"{kind} {name!r} {problem} {change} though its settings are the same; {remedy}")


def _refuse_changed(kind: str, name: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    if lines := differences(old, new):
        raise UserError(changed_settings(kind, name, lines))


def enter(
    connection: Connection, known: AuditedStudy, entry: Entry, check: EntryCheck, then: Sequence[Entry] = ()
) -> bool:
    """Add an entry, and others behind it, if ``check`` says so; return whether it did. See :meth:`Ledger.enter`."""
    if not check(known.entries(entry.kind), known.evaluated):
        return False
    links = [_insert(connection, "entry", each.row, study_id=known.key) for each in (entry, *then)]
    append(connection, known.key, known.head, links)
    return True


def record(connection: Connection, known: AuditedStudy, recipe: str, evaluation: Evaluation) -> bool:
    """Add an evaluation, or its new values; return whether anything was added. See :meth:`Ledger.record`."""
    _refuse_non_finite(evaluation)
    recipe_id, is_done = known.key_of("recipe", recipe), evaluation.status == "done"
    recorded = known.done(recipe, *evaluation.key) if is_done else None
    # ``number``: the evaluation's place in the chain, by which its values refer to it
    if recorded is None:
        links = [_insert_evaluation(connection, recipe_id, recipe, evaluation)]
        evaluation_id, number, new = links[0].row_id, known.head.number + 1, evaluation.values
    else:
        links, (evaluation_id, number) = [], known.place(recipe, *evaluation.key)
        new = _new_values(recorded, recipe, evaluation)
    if new:
        property_ids = [known.key_of("property", value.property) for value in new]
        links += _insert_values(connection, evaluation_id, number, list(zip(property_ids, new, strict=True)))
    append(connection, known.key, known.head, links)
    if is_done:  # nobody needs to claim it any more
        task = {"coalition": evaluation.coalition, "replicate": evaluation.replicate}
        connection.execute(delete(tables.claims).filter_by(recipe_id=recipe_id, **task))
    return bool(links)


def _new_values(recorded: Evaluation, recipe_name: str, evaluation: Evaluation) -> tuple[Value, ...]:
    """Return the values that the recorded evaluation does not have yet; refuse those that contradict it."""
    known = {value.property: value for value in recorded.values}
    new = []
    for value in evaluation.values:
        old = known.get(value.property)
        if old is None or (old.value is None and value.value is not None):
            new.append(value)
        elif value.value is not None and _contradict(old, value):
            changes = "; ".join(differences(recorded.numerics, evaluation.numerics)) or "none"
            raise NonDeterminism(
                f"{recipe_name!r}, coalition {evaluation.coalition} (replicate {evaluation.replicate}): "
                f"{value.property} was {_text(old)} and is {_text(value)} now; changed numerics: {changes}"
            )
    return tuple(new)


def _contradict(old: Value, new: Value) -> bool:
    """Return whether two values differ, or their standard errors where both are known."""
    if None in (old.standard_error, new.standard_error):
        return _plain_number(old.value) != _plain_number(new.value)
    return _text(old) != _text(new)


def _text(value: Value) -> str:
    """Return a value and its standard error with enough digits to distinguish it from any other."""
    number = repr(_plain_number(value.value))
    return number if value.standard_error is None else f"{number} ± {_plain_number(value.standard_error)!r}"


def _refuse_non_finite(evaluation: Evaluation) -> None:
    for value in evaluation.values:
        for number in (value.value, value.standard_error):
            if number is not None and not math.isfinite(number):
                raise DiffcreditError(
                    f"coalition {evaluation.coalition}: {value.property} is {number}; "
                    "only finite numbers are values, anything else is recorded as an error"
                )


def restore(connection: Connection, rows: Rows) -> Head:
    """Enter an exported study that is not there yet; return the end of its chain."""
    if not rows or rows[0][0] != "study":
        raise UserError("no rows of a study: the first row must be the study itself")
    with _refused(1):
        study = _insert_study(connection, **rows[0][1])
    links = itertools.chain([study], _restored(connection, study.row_id, rows))
    return append(connection, study.row_id, BEGINNING, links)


def _restored(connection: Connection, study_id: int, rows: Rows) -> Iterator[Link]:
    """Insert all rows after the first. A row refers only to rows before it, by name or by number in the chain."""
    keys: dict[tuple[str, Any], int] = {}  # by kind and name; of an evaluation, by its number
    for number, (kind, row) in enumerate(rows[1:], 2):
        with _refused(number):
            link = _restored_row(connection, study_id, kind, dict(row), keys)
            keys[kind, number if kind == "evaluation" else row.get("name")] = link.row_id
        yield link


def _restored_row(
    connection: Connection, study_id: int, kind: str, row: dict[str, Any], keys: Mapping[tuple[str, Any], int]
) -> Link:
    if kind in ("recipe", "property"):
        record = RecipeRecord(**row) if kind == "recipe" else PropertyRecord(**row)
        return _insert(connection, kind, vars(record), study_id=study_id)
    if kind == "evaluation":
        recipe = row.pop("recipe")
        return _insert_evaluation(connection, keys["recipe", recipe], recipe, Evaluation(**row, values=()))
    if kind == "value":
        evaluation = row.pop("evaluation")
        value = keys["property", row["property"]], Value(**row)
        return _insert_values(connection, keys["evaluation", evaluation], evaluation, [value])[0]
    if kind == "entry":
        return _insert(connection, "entry", Entry(**row).row, study_id=study_id)
    if kind == "migration":
        return migration_link(row["from schema"])
    raise ValueError(f"unknown kind {kind!r}")


@contextmanager
def _refused(number: int) -> Generator[None]:
    """Turn whatever a stranger's row may raise into a UserError that names the row."""
    try:
        yield
    except (IntegrityError, DataError, ProgrammingError) as error:  # the same row twice, or a value no column accepts
        raise UserError(f"row {number} is no row of a study ({error.orig})") from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UserError(f"row {number} is no row of a study ({error})") from error


def _insert_study(connection: Connection, name: str, settings: dict[str, Any]) -> Link:
    return _insert(connection, "study", {"name": name, "settings": settings})


def _insert(connection: Connection, kind: str, content: Mapping[str, Any], **keys: int) -> Link:
    """Insert a row with the primary ``keys`` of other rows; return the link by which it is chained."""
    # as the database will return it: JSON has neither tuples nor numeric keys
    row = json.loads(canonical_json(dict(content)))
    table = TABLES[kind]
    row_id = connection.execute(insert(table).values(row | keys).returning(table.c.id)).scalar_one()
    return Link(kind, row_id, row)


def _insert_evaluation(connection: Connection, recipe_id: int, recipe_name: str, evaluation: Evaluation) -> Link:
    """Insert an evaluation without its values."""
    content = {name: value for name, value in vars(evaluation).items() if name != "values"}
    content["error"] = _storable(evaluation.error)
    link = _insert(connection, "evaluation", content, recipe_id=recipe_id)
    return replace(link, content={**link.content, "recipe": recipe_name})


def _insert_values(
    connection: Connection, evaluation_id: int, number: int, values: Sequence[tuple[int, Value]]
) -> list[Link]:
    """Insert values of one evaluation, whose place in the chain is ``number``, each with its property's primary key."""
    rows = [
        {
            "value": _plain_number(value.value),
            "standard_error": _plain_number(value.standard_error),
            "images": None if value.images is None else int(value.images),
            "error": _storable(value.error),
        }
        for _, value in values
    ]
    keys = [{"evaluation_id": evaluation_id, "property_id": property_id} for property_id, _ in values]
    statement = insert(tables.values).returning(tables.values.c.id, sort_by_parameter_order=True)
    row_ids = connection.execute(statement, [row | key for row, key in zip(rows, keys, strict=True)]).scalars()
    return [
        Link("value", row_id, row | {"evaluation": number, "property": value.property})
        for row_id, row, (_, value) in zip(row_ids, rows, values, strict=True)
    ]


def _plain_number(number: float | None) -> float | None:
    """Return a Python float: drivers do not accept numpy's, and SQLite does not keep the sign of zero."""
    return None if number is None else float(number) + 0.0


def _storable(text: str | None) -> str | None:
    """Return a text that every database accepts: PostgreSQL refuses NUL, all refuse a lone surrogate."""
    if text is None:
        return None
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
