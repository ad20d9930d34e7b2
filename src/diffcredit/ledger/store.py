"""The durable record of evaluations: append-only, in SQLite or any database SQLAlchemy speaks.

An evaluation is there whole, there as a failed attempt with its error, or absent; nothing is ever changed,
filled in or removed. A recipe or property that changed under the same name is refused.
"""

import math
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Engine, Row, Select, Table, insert, select

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.ledger import tables
from diffcredit.ledger.database import connect
from diffcredit.ledger.differences import differences
from diffcredit.ledger.records import Evaluation, PropertyRecord, Recipe, Value


class NonDeterminism(DiffcreditError):
    """The same recipe, coalition and replicate gave another value than before."""


class Ledger:
    """Evaluations of one or more studies.

    Safe for several threads, processes and, with a database server, machines at once; writers take turns.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name

    @classmethod
    def open(cls, url: str | Path, *, create: bool = True) -> Self:
        """The ledger at a file path or SQLAlchemy URL; with ``create``, made if nothing is there."""
        return cls(*connect(url, create=create))

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def register_study(self, name: str, settings: dict[str, Any]) -> None:
        """Enters a study, or checks that it is the one already there.

        ``settings`` is what all its recipes share and what must never change, first of all the contributors
        in the order of the coalitions' characters.
        """
        with self._write() as connection:
            old = connection.execute(select(tables.studies).filter_by(name=name)).one_or_none()
            if old is None:
                connection.execute(insert(tables.studies).values(name=name, settings=settings))
            else:
                self._refuse_changed("study", name, old.settings, settings)

    def register_recipe(self, study: str, recipe: Recipe) -> None:
        """Enters a recipe, or checks that it is the one already there."""
        with self._write() as connection:
            study_id = self._study_id(connection, study)
            old = connection.execute(_of_study(tables.recipes, study, recipe.name)).one_or_none()
            if old is None:
                connection.execute(insert(tables.recipes).values(study_id=study_id, **vars(recipe)))
                return
        self._refuse_changed("recipe", recipe.name, old.settings, recipe.settings)
        if old.weights != recipe.weights:
            raise UserError(
                f"{self._name}: recipe {recipe.name!r} starts from other weights than before "
                f"({old.weights or 'none'} → {recipe.weights or 'none'}) though its settings are the same; "
                "restore the weights or give the retraining another name"
            )

    def check_recipe_settings(self, study: str, name: str, settings: dict[str, Any]) -> None:
        """Refuses a recipe whose settings changed, before its weights are known; a new recipe passes."""
        with self._engine.begin() as connection:
            old = connection.execute(_of_study(tables.recipes, study, name)).one_or_none()
        if old is not None:
            self._refuse_changed("recipe", name, old.settings, settings)

    def register_property(self, study: str, prop: PropertyRecord) -> None:
        """Enters a property, or checks that it is the one already there."""
        with self._write() as connection:
            study_id = self._study_id(connection, study)
            old = connection.execute(_of_study(tables.properties, study, prop.name)).one_or_none()
            if old is None:
                connection.execute(insert(tables.properties).values(study_id=study_id, **vars(prop)))
                return
        direction = {"higher_is_better": old.higher_is_better}, {"higher_is_better": prop.higher_is_better}
        self._refuse_changed("property", prop.name, old.settings, prop.settings)
        self._refuse_changed("property", prop.name, *direction)
        if old.state != prop.state:
            raise UserError(
                f"{self._name}: property {prop.name!r} has another fitted state than before "
                f"({old.state or 'none'} → {prop.state or 'none'}) though its settings are the same; restore what it "
                "was fitted to, such as the files that it names, or give the property another name"
            )

    def record(self, study: str, recipe_name: str, evaluation: Evaluation) -> bool:
        """Adds an evaluation with all its values, or nothing: one transaction. True if anything was added.

        Where the same coalition and replicate is already done, its values must come out equal
        (:class:`NonDeterminism` otherwise), and their standard errors where both are known; values of properties
        that it lacked, or failed to measure, are added to it. Minus zero is kept as zero.
        """
        _refuse_non_finite(evaluation)
        with self._write() as connection:
            recipe_id = self._id(connection, "recipe", tables.recipes, study, recipe_name)
            recorded = _find_done(connection, recipe_id, evaluation) if evaluation.status == "done" else None
            if recorded is None:
                evaluation_id, new = _add_evaluation(connection, recipe_id, evaluation), evaluation.values
            else:
                evaluation_id, new = (
                    recorded.id,
                    _values_to_add(connection, recorded, recipe_name, evaluation),
                )
            for value in new:
                property_id = self._id(connection, "property", tables.properties, study, value.property)
                connection.execute(
                    insert(tables.values).values(
                        evaluation_id=evaluation_id,
                        property_id=property_id,
                        value=_plain(value.value),
                        standard_error=_plain(value.standard_error),
                        images=value.images,
                        error=value.error,
                    )
                )
        return recorded is None or bool(new)

    def evaluations(
        self, study: str, recipe_name: str, *, status: str | None = None, purpose: str | None = None
    ) -> list[Evaluation]:
        """A recipe's evaluations in the order in which they were recorded."""
        with self._engine.begin() as connection:
            recipe_id = self._id(connection, "recipe", tables.recipes, study, recipe_name)
            query = select(tables.evaluations).filter_by(recipe_id=recipe_id)
            if status is not None:
                query = query.filter_by(status=status)
            if purpose is not None:
                query = query.filter_by(purpose=purpose)
            rows = connection.execute(query.order_by(tables.evaluations.c.id)).all()
            measured = _values(connection, query.with_only_columns(tables.evaluations.c.id))
        return [Evaluation(**_without_keys(row), values=tuple(measured.get(row.id, {}).values())) for row in rows]

    def studies(self) -> dict[str, dict[str, Any]]:
        """The studies' settings by name, in the order in which they were registered."""
        with self._engine.begin() as connection:
            rows = connection.execute(select(tables.studies).order_by(tables.studies.c.id)).all()
        return {row.name: row.settings for row in rows}

    def recipes(self, study: str) -> list[Recipe]:
        """A study's recipes in the order in which they were registered."""
        with self._engine.begin() as connection:
            self._study_id(connection, study)
            return [Recipe(**_without_keys(row)) for row in connection.execute(_of_study(tables.recipes, study))]

    def properties(self, study: str) -> list[PropertyRecord]:
        """A study's properties in the order in which they were registered."""
        with self._engine.begin() as connection:
            self._study_id(connection, study)
            rows = connection.execute(_of_study(tables.properties, study)).all()
        return [PropertyRecord(**_without_keys(row)) for row in rows]

    @contextmanager
    def _write(self) -> Generator[Connection]:
        """A transaction that no other writer's overlaps: SQLite locks as it begins, others lock this row."""
        with self._engine.execution_options(writes=True).begin() as connection:
            connection.execute(select(tables.schema_version.c.version).with_for_update())
            yield connection

    def _study_id(self, connection: Connection, study: str) -> int:
        ids = {row.name: row.id for row in connection.execute(select(tables.studies))}
        if study not in ids:
            raise UserError(f"{self._name}: no study {study!r}; {_known(ids)}")
        return ids[study]

    def _id(self, connection: Connection, kind: str, table: Table, study: str, name: str) -> int:
        """The primary key of a study's recipe or property."""
        self._study_id(connection, study)
        ids = {row.name: row.id for row in connection.execute(_of_study(table, study))}
        if name not in ids:
            raise UserError(f"{self._name}: study {study!r} has no {kind} {name!r}; {_known(ids)}")
        return ids[name]

    def _refuse_changed(self, kind: str, name: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        if lines := differences(old, new):
            renamed = "retraining" if kind == "recipe" else kind
            raise UserError(
                f"{self._name}: {kind} {name!r} changed: {'; '.join(lines)}; "
                f"give the {renamed} another name or restore the settings"
            )


def _of_study(table: Table, study: str, name: str | None = None) -> Select[Any]:
    """A study's rows of ``table`` in the order of registration, or the one called ``name``."""
    joined = select(table).join(tables.studies, table.c.study_id == tables.studies.c.id)
    query = joined.where(tables.studies.c.name == study).order_by(table.c.id)
    return query if name is None else query.where(table.c.name == name)


def _known(names: Iterable[str]) -> str:
    listed = ", ".join(repr(name) for name in names)
    return f"there is {listed}" if listed else "there is none yet"


def _without_keys(row: Row[Any]) -> dict[str, Any]:
    """A row's columns less its primary and foreign keys, which are the ledger's own business."""
    return {name: value for name, value in row._mapping.items() if name != "id" and not name.endswith("_id")}


def _add_evaluation(connection: Connection, recipe_id: int, evaluation: Evaluation) -> int:
    columns = {name: value for name, value in vars(evaluation).items() if name != "values"}
    query = insert(tables.evaluations).values(recipe_id=recipe_id, **columns)
    return connection.execute(query.returning(tables.evaluations.c.id)).scalar_one()


def _find_done(connection: Connection, recipe_id: int, evaluation: Evaluation) -> Row[Any] | None:
    query = select(tables.evaluations).filter_by(
        recipe_id=recipe_id, coalition=evaluation.coalition, replicate=evaluation.replicate, status="done"
    )
    return connection.execute(query).one_or_none()


def _values(connection: Connection, evaluation_ids: Select[Any]) -> dict[int, dict[str, Value]]:
    """Each evaluation's values by property; a value added after an error takes its place."""
    query = (
        select(tables.values, tables.properties.c.name.label("property"))
        .join(tables.properties)
        .where(tables.values.c.evaluation_id.in_(evaluation_ids))
        .order_by(tables.values.c.id)
    )
    measured: dict[int, dict[str, Value]] = {}
    for row in connection.execute(query):
        measured.setdefault(row.evaluation_id, {})[row.property] = Value(**_without_keys(row))
    return measured


def _values_to_add(
    connection: Connection, recorded: Row[Any], recipe_name: str, evaluation: Evaluation
) -> tuple[Value, ...]:
    """The values that the recorded evaluation lacks; refuses those that contradict it."""
    this = select(tables.evaluations.c.id).where(tables.evaluations.c.id == recorded.id)
    known = _values(connection, this).get(recorded.id, {})
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
    """Whether two values differ, or their standard errors; one that was not told contradicts none."""
    if None in (old.standard_error, new.standard_error):
        return _plain(old.value) != _plain(new.value)
    return _text(old) != _text(new)


def _text(value: Value) -> str:
    """A value with its standard error, in as many digits as tell it from any other."""
    number = repr(_plain(value.value))
    return number if value.standard_error is None else f"{number} ± {_plain(value.standard_error)!r}"


def _plain(number: float | None) -> float | None:
    """A Python float: drivers do not know numpy's, and SQLite does not keep the sign of zero."""
    return None if number is None else float(number) + 0.0


def _refuse_non_finite(evaluation: Evaluation) -> None:
    for value in evaluation.values:
        for number in (value.value, value.standard_error):
            if number is not None and not math.isfinite(number):
                raise DiffcreditError(
                    f"coalition {evaluation.coalition}: {value.property} is {number}; "
                    "only finite numbers are values, anything else is recorded as an error"
                )
