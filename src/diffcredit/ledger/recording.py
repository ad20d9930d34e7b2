"""Entering an evaluation, once.

Evaluations are deterministic: the same recipe, coalition and replicate must give the same values whenever and wherever
it is evaluated. A second evaluation can therefore only confirm the first, add values that the first does not have, or
contradict it, which is an error and leaves the record as it is.
"""

import math

from sqlalchemy import Connection, Row, delete

from diffcredit.errors import DiffcreditError
from diffcredit.ledger import tables
from diffcredit.ledger.chain import append, head_of, number_of
from diffcredit.ledger.differences import differences
from diffcredit.ledger.keys import Keys
from diffcredit.ledger.reading import done_row, values_of
from diffcredit.ledger.records import Evaluation, Value
from diffcredit.ledger.rows import insert_evaluation, insert_values, plain_number


class NonDeterminism(DiffcreditError):
    """The same recipe, coalition and replicate gave a different value than before."""


def record(connection: Connection, keys: Keys, study: str, recipe_name: str, evaluation: Evaluation) -> bool:
    """Add an evaluation, or its new values; return whether anything was added. See :meth:`Ledger.record`."""
    _refuse_non_finite(evaluation)
    study_id = keys.study(connection, study)
    recipe_id = keys.recipe(connection, study, recipe_name)
    head = head_of(connection, study_id)
    is_done = evaluation.status == "done"
    recorded = done_row(connection, recipe_id, *evaluation.key) if is_done else None
    # ``number``: the evaluation's place in the chain, by which its values refer to it
    if recorded is None:
        links = [insert_evaluation(connection, recipe_id, recipe_name, evaluation)]
        evaluation_id, number, new = links[0].row_id, head.number + 1, evaluation.values
    else:
        links, evaluation_id = [], recorded.id
        number = number_of(connection, study_id, "evaluation", recorded.id)
        new = _new_values(connection, recorded, recipe_name, evaluation)
    if new:
        property_ids = [keys.property(connection, study, value.property) for value in new]
        links += insert_values(connection, evaluation_id, number, list(zip(property_ids, new, strict=True)))
    append(connection, study_id, head, links)
    if is_done:  # nobody needs to claim it any more
        task = {"coalition": evaluation.coalition, "replicate": evaluation.replicate}
        connection.execute(delete(tables.claims).filter_by(recipe_id=recipe_id, **task))
    return bool(links)


def _new_values(connection: Connection, recorded: Row, recipe_name: str, evaluation: Evaluation) -> tuple[Value, ...]:
    """Return the values that the recorded evaluation does not have yet; refuse those that contradict it."""
    known = values_of(connection, [recorded.id]).get(recorded.id, {})
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
        return plain_number(old.value) != plain_number(new.value)
    return _text(old) != _text(new)


def _text(value: Value) -> str:
    """Return a value and its standard error with enough digits to distinguish it from any other."""
    number = repr(plain_number(value.value))
    return number if value.standard_error is None else f"{number} ± {plain_number(value.standard_error)!r}"


def _refuse_non_finite(evaluation: Evaluation) -> None:
    for value in evaluation.values:
        for number in (value.value, value.standard_error):
            if number is not None and not math.isfinite(number):
                raise DiffcreditError(
                    f"coalition {evaluation.coalition}: {value.property} is {number}; "
                    "only finite numbers are values, anything else is recorded as an error"
                )
