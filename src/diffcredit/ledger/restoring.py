"""A study's rows, written again in their order: the chain comes out the same, wherever that is."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError

from diffcredit.errors import UserError
from diffcredit.ledger.chain import Head, Link, append, head_of, migrated
from diffcredit.ledger.records import Evaluation, PropertyRecord, RecipeRecord, Value
from diffcredit.ledger.writing import add_evaluation, add_property, add_recipe, add_study, add_values

Rows = Sequence[tuple[str, dict[str, Any]]]
"""Kind and content of each row, in the order of the chain; the first is the study."""


def restore(connection: Connection, rows: Rows) -> Head:
    """Adds a study that is not there yet; the end of its chain."""
    if not rows or rows[0][0] != "study":
        raise UserError("no rows of a study, of which the first is the study itself")
    study = _added(1, lambda: add_study(connection, **rows[0][1]))
    links = [study, *_links(connection, study.row_id, rows)]
    append(connection, study.row_id, head_of(connection, study.row_id), links)
    return head_of(connection, study.row_id)


def _links(connection: Connection, study_id: int, rows: Rows) -> Iterator[Link]:
    """All rows after the first; what they refer to stands before them."""
    recipes: dict[str, int] = {}
    properties: dict[str, int] = {}
    evaluations: dict[int, int] = {}

    def add(number: int, kind: str, row: dict[str, Any]) -> Link:
        if kind == "recipe":
            link = add_recipe(connection, study_id, RecipeRecord(**row))
            recipes[row["name"]] = link.row_id
        elif kind == "property":
            link = add_property(connection, study_id, PropertyRecord(**row))
            properties[row["name"]] = link.row_id
        elif kind == "evaluation":
            recipe = row.pop("recipe")
            link = add_evaluation(connection, recipes[recipe], recipe, Evaluation(**row, values=()))
            evaluations[number] = link.row_id
        elif kind == "value":
            evaluation = row.pop("evaluation")
            value = properties[row["property"]], Value(**row)
            (link,) = add_values(connection, evaluations[evaluation], evaluation, [value])
        elif kind == "migration":
            link = migrated(row["from schema"])
        else:
            raise ValueError(f"unknown kind {kind!r}")
        return link

    for number, (kind, row) in enumerate(rows[1:], 2):
        yield _added(number, lambda number=number, kind=kind, row=row: add(number, kind, dict(row)))


def _added(number: int, add: Callable[[], Link]) -> Link:
    try:
        return add()
    except (IntegrityError, DataError, ProgrammingError) as error:  # twice the same, or what no column holds
        raise UserError(f"row {number} is no row of a study ({error.orig})") from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UserError(f"row {number} is no row of a study ({error})") from error
