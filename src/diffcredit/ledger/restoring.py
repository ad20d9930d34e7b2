"""Writing an exported study into another ledger: the same rows in the same order give the same chain."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError

from diffcredit.errors import UserError
from diffcredit.ledger.chain import Head, Link, append, head_of, migration_link
from diffcredit.ledger.records import Evaluation, PropertyRecord, RecipeRecord, Value
from diffcredit.ledger.rows import insert_evaluation, insert_property, insert_recipe, insert_study, insert_values

Rows = Sequence[tuple[str, dict[str, Any]]]
"""Kind and content of each row in the order of the chain. The first row is the study."""


def restore(connection: Connection, rows: Rows) -> Head:
    """Enter a study that is not there yet; return the end of its chain."""
    if not rows or rows[0][0] != "study":
        raise UserError("no rows of a study: the first row must be the study itself")
    study = _inserted(1, lambda: insert_study(connection, **rows[0][1]))
    links = [study, *_links(connection, study.row_id, rows)]
    return append(connection, study.row_id, head_of(connection, study.row_id), links)


def _links(connection: Connection, study_id: int, rows: Rows) -> Iterator[Link]:
    """Insert all rows after the first. A row refers only to rows before it, by name or by number in the chain."""
    recipes: dict[str, int] = {}
    properties: dict[str, int] = {}
    evaluations: dict[int, int] = {}

    def insert(number: int, kind: str, row: dict[str, Any]) -> Link:
        if kind == "recipe":
            link = insert_recipe(connection, study_id, RecipeRecord(**row))
            recipes[row["name"]] = link.row_id
        elif kind == "property":
            link = insert_property(connection, study_id, PropertyRecord(**row))
            properties[row["name"]] = link.row_id
        elif kind == "evaluation":
            recipe = row.pop("recipe")
            link = insert_evaluation(connection, recipes[recipe], recipe, Evaluation(**row, values=()))
            evaluations[number] = link.row_id
        elif kind == "value":
            evaluation = row.pop("evaluation")
            value = properties[row["property"]], Value(**row)
            (link,) = insert_values(connection, evaluations[evaluation], evaluation, [value])
        elif kind == "migration":
            link = migration_link(row["from schema"])
        else:
            raise ValueError(f"unknown kind {kind!r}")
        return link

    for number, (kind, row) in enumerate(rows[1:], 2):
        yield _inserted(number, lambda number=number, kind=kind, row=row: insert(number, kind, dict(row)))


def _inserted(number: int, insert: Callable[[], Link]) -> Link:
    try:
        return insert()
    except (IntegrityError, DataError, ProgrammingError) as error:  # the same row twice, or a value no column accepts
        raise UserError(f"row {number} is no row of a study ({error.orig})") from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UserError(f"row {number} is no row of a study ({error})") from error
