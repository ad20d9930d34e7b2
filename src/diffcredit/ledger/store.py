"""The durable record of evaluations: append-only, in SQLite or any database SQLAlchemy speaks.

An evaluation is there whole, there as a failed attempt with its error, or absent; nothing is ever changed,
filled in or removed. A recipe or property that changed under the same name is refused. Every row is chained to
those before it (:mod:`~diffcredit.ledger.chain`), so that a change made past this code is found.
"""

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Engine, Row, Select, Table, delete, inspect, select, text

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.ledger import claims, tables
from diffcredit.ledger.audit import Audit, audit, chained_rows
from diffcredit.ledger.chain import Head, append, content_of, head_of, number_of
from diffcredit.ledger.claims import Claim, CurrentClaim
from diffcredit.ledger.database import connect, present_schema
from diffcredit.ledger.differences import differences
from diffcredit.ledger.patience import persistent
from diffcredit.ledger.records import Evaluation, PropertyRecord, RecipeRecord, Value
from diffcredit.ledger.restoring import restore
from diffcredit.ledger.writing import add_evaluation, add_property, add_recipe, add_study, add_values, plain_number


class NonDeterminism(DiffcreditError):
    """The same recipe, coalition and replicate gave another value than before."""


class Ledger:
    """Evaluations of one or more studies.

    Safe for several threads, processes and, with a database server, machines at once; writers take turns.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._keys: dict[tuple[str, ...], int] = {}  # primary keys, which stay: nothing is ever changed or removed

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

    @persistent
    def register_study(self, name: str, settings: dict[str, Any]) -> None:
        """Enters a study, or checks that it is the one already there.

        ``settings`` is what all its recipes share and what must never change, first of all the contributors
        in the order of the coalitions' characters.
        """
        with self._write() as connection:
            old = connection.execute(select(tables.studies).filter_by(name=name)).one_or_none()
            if old is None:
                link = add_study(connection, name, settings)
                append(connection, link.row_id, head_of(connection, link.row_id), [link])
            else:
                self._refuse_changed("study", name, old.settings, settings)

    @persistent
    def register_recipe(self, study: str, recipe: RecipeRecord) -> None:
        """Enters a recipe, or checks that it is the one already there."""
        with self._write() as connection:
            study_id = self._study_id(connection, study)
            old = connection.execute(_of_study(tables.recipes, study, recipe.name)).one_or_none()
            if old is None:
                link = add_recipe(connection, study_id, recipe)
                append(connection, study_id, head_of(connection, study_id), [link])
                return
        self._refuse_changed("recipe", recipe.name, old.settings, recipe.settings)
        if old.weights != recipe.weights:
            raise UserError(
                f"{self._name}: recipe {recipe.name!r} starts from other weights than before "
                f"({old.weights or 'none'} → {recipe.weights or 'none'}) though its settings are the same; "
                "restore the weights or give the retraining another name"
            )

    @persistent
    def check_recipe_settings(self, study: str, name: str, settings: dict[str, Any]) -> None:
        """Refuses a recipe whose settings changed, before its weights are known; a new recipe passes."""
        with self._engine.begin() as connection:
            old = connection.execute(_of_study(tables.recipes, study, name)).one_or_none()
        if old is not None:
            self._refuse_changed("recipe", name, old.settings, settings)

    @persistent
    def register_property(self, study: str, prop: PropertyRecord) -> None:
        """Enters a property, or checks that it is the one already there."""
        with self._write() as connection:
            study_id = self._study_id(connection, study)
            old = connection.execute(_of_study(tables.properties, study, prop.name)).one_or_none()
            if old is None:
                link = add_property(connection, study_id, prop)
                append(connection, study_id, head_of(connection, study_id), [link])
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

    @persistent
    def record(self, study: str, recipe_name: str, evaluation: Evaluation) -> bool:
        """Adds an evaluation with all its values, or nothing: one transaction. True if anything was added.

        Where the same coalition and replicate is already done, its values must come out equal
        (:class:`NonDeterminism` otherwise), and their standard errors where both are known; values of properties
        that it lacked, or failed to measure, are added to it. Minus zero is kept as zero.
        """
        _refuse_non_finite(evaluation)
        with self._write() as connection:
            study_id = self._study_id(connection, study)
            recipe_id = self._id(connection, "recipe", tables.recipes, study, recipe_name)
            recorded = None
            if evaluation.status == "done":
                success = _done(recipe_id, evaluation.coalition, evaluation.replicate)
                recorded = connection.execute(success).one_or_none()
            head = head_of(connection, study_id)
            if recorded is None:
                number = head.number + 1
                links = [add_evaluation(connection, recipe_id, recipe_name, evaluation)]
                evaluation_id, new = links[0].row_id, evaluation.values
            else:
                number = number_of(connection, study_id, "evaluation", recorded.id)
                links = []
                evaluation_id, new = recorded.id, _values_to_add(connection, recorded, recipe_name, evaluation)
            keys = [self._id(connection, "property", tables.properties, study, value.property) for value in new]
            if new:
                links += add_values(connection, evaluation_id, number, list(zip(keys, new, strict=True)))
            append(connection, study_id, head, links)
            if evaluation.status == "done":  # nobody needs to promise it any more
                task = {"coalition": evaluation.coalition, "replicate": evaluation.replicate}
                connection.execute(delete(tables.claims).filter_by(recipe_id=recipe_id, **task))
        return bool(links)

    @persistent
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
            return [each for _, each in _evaluations(connection, query)]

    @persistent
    def evaluations_since(self, study: str, recipe_name: str, mark: int) -> tuple[list[Evaluation], int]:
        """A recipe's evaluations recorded after ``mark`` (0: all), by whomever, and the mark from which to go on.
        Values that were added to an earlier evaluation are not among them."""
        with self._engine.begin() as connection:
            recipe_id = self._id(connection, "recipe", tables.recipes, study, recipe_name)
            query = select(tables.evaluations).filter_by(recipe_id=recipe_id).where(tables.evaluations.c.id > mark)
            found = _evaluations(connection, query)
        return [each for _, each in found], found[-1][0] if found else mark

    @persistent
    def done(self, study: str, recipe_name: str, coalition: str, replicate: int) -> Evaluation | None:
        """One evaluation that is done, or None."""
        with self._engine.begin() as connection:
            recipe_id = self._id(connection, "recipe", tables.recipes, study, recipe_name)
            found = _evaluations(connection, _done(recipe_id, coalition, replicate))
        return found[0][1] if found else None

    @persistent
    def claim(
        self,
        study: str,
        recipe_name: str,
        coalition: str,
        replicate: int,
        holder: str,
        seconds: float,
        gone: Callable[[str], bool] = lambda holder: False,
    ) -> Claim | None:
        """The promise of ``holder`` to make an evaluation, good for ``seconds``, at most
        :data:`~diffcredit.ledger.claims.LONGEST_LEASE`; None where it is done, or promised by somebody else, unless
        the caller knows that holder to be ``gone``."""
        with self._write(durable=False) as connection:
            recipe_id = self._id(connection, "recipe", tables.recipes, study, recipe_name)
            if connection.execute(_done(recipe_id, coalition, replicate)).one_or_none() is not None:
                return None
            return claims.claim(connection, recipe_id, coalition, replicate, holder, seconds, gone)

    @persistent
    def renew(self, held: Iterable[Claim], seconds: float) -> list[Claim]:
        """Prolongs claims to ``seconds`` from now; those that are still their holder's."""
        with self._write(durable=False) as connection:
            return claims.renew(connection, held, seconds)

    @persistent
    def release(self, held: Iterable[Claim]) -> None:
        """Gives claims back, those that are still their holder's."""
        with self._write(durable=False) as connection:
            claims.release(connection, held)

    @persistent
    def claims(self, study: str) -> list[CurrentClaim]:
        """The claims of a study's tasks that are good now, by recipe and holder: what is under way, and by whom."""
        with self._engine.begin() as connection:
            self._study_id(connection, study)
            there = inspect(connection).has_table(tables.claims.name)  # an older schema lacks it
            return claims.current(connection, study) if there else []

    @persistent
    def head(self, study: str) -> Head:
        """The end of a study's chain: who notes its hash down can have all rows before it verified later. It has no
        rows in a ledger of an older schema, until that is written to."""
        with self._engine.begin() as connection:
            study_id = self._study_id(connection, study)
            chained = inspect(connection).has_table(tables.chain.name)
            return head_of(connection, study_id) if chained else Head(0, "")

    @persistent
    def audit(self, study: str, head: str | None = None) -> Audit:
        """Compares every row of a study with its chain, and the chain with a ``head`` noted down earlier."""
        with self._snapshot() as connection:
            return audit(connection, self._chained_study(connection, study), head)

    @persistent
    def export(self, study: str) -> tuple[list[tuple[str, dict[str, Any]]], str]:
        """All rows of a study, kind and content, in the order of its chain, and its head; refuses one that was tampered
        with."""
        with self._snapshot() as connection:
            study_id = self._chained_study(connection, study)
            found = audit(connection, study_id, None)
            if found.problems:
                raise DiffcreditError(f"{self._name}: {found.problems[0]}; diffcredit verify tells more")
            rows = [(link.kind, content or {}) for link, content in chained_rows(connection, study_id)]
        return rows, found.head

    @persistent
    def restore(self, rows: Sequence[tuple[str, dict[str, Any]]], head: str) -> None:
        """Enters a study that was exported, in one transaction: with the hash ``head`` at its end, or not at all."""
        with self._write() as connection:
            name = rows[0][1].get("name") if rows else None
            if connection.execute(select(tables.studies.c.id).filter_by(name=name)).one_or_none() is not None:
                raise UserError(f"{self._name}: has a study {name!r} already; give another ledger")
            if restore(connection, rows).hash != head:
                raise DiffcreditError(f"{self._name}: the rows of {name!r} are not those that were exported")

    @persistent
    def studies(self) -> dict[str, dict[str, Any]]:
        """The studies' settings by name, in the order in which they were registered."""
        with self._engine.begin() as connection:
            rows = connection.execute(select(tables.studies).order_by(tables.studies.c.id)).all()
        return {row.name: row.settings for row in rows}

    @persistent
    def recipes(self, study: str) -> list[RecipeRecord]:
        """A study's recipes in the order in which they were registered."""
        with self._engine.begin() as connection:
            self._study_id(connection, study)
            return [RecipeRecord(**content_of(row)) for row in connection.execute(_of_study(tables.recipes, study))]

    @persistent
    def properties(self, study: str) -> list[PropertyRecord]:
        """A study's properties in the order in which they were registered."""
        with self._engine.begin() as connection:
            self._study_id(connection, study)
            rows = connection.execute(_of_study(tables.properties, study)).all()
        return [PropertyRecord(**content_of(row)) for row in rows]

    @contextmanager
    def _write(self, *, durable: bool = True) -> Generator[Connection]:
        """A transaction that no other writer's overlaps: SQLite locks as it begins, others lock this row. Only a
        ``durable`` one, such as every record, waits for the disk: with the power, claims may go too."""
        with self._engine.execution_options(writes=True, durable=durable).begin() as connection:
            if not durable and connection.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL synchronous_commit = off"))
            present_schema(connection, self._name)
            yield connection

    @contextmanager
    def _snapshot(self) -> Generator[Connection]:
        """A transaction that sees the ledger as it is now, whatever is written meanwhile: SQLite's always do."""
        server = self._engine.dialect.name != "sqlite"
        engine = self._engine.execution_options(isolation_level="REPEATABLE READ") if server else self._engine
        with engine.begin() as connection:
            yield connection

    def _chained_study(self, connection: Connection, study: str) -> int:
        """A study's key, where the ledger has a chain."""
        study_id = self._study_id(connection, study)
        if not inspect(connection).has_table(tables.chain.name):
            raise UserError(f"{self._name}: is of an older schema without a chain; diffcredit run builds it")
        return study_id

    def _study_id(self, connection: Connection, study: str) -> int:
        if (key := ("study", study)) not in self._keys:
            ids = {row.name: row.id for row in connection.execute(select(tables.studies.c.name, tables.studies.c.id))}
            if study not in ids:
                raise UserError(f"{self._name}: no study {study!r}; {_known(ids)}")
            self._keys[key] = ids[study]
        return self._keys[key]

    def _id(self, connection: Connection, kind: str, table: Table, study: str, name: str) -> int:
        """The primary key of a study's recipe or property."""
        if (key := (kind, study, name)) not in self._keys:
            self._study_id(connection, study)
            query = _of_study(table, study).with_only_columns(table.c.name, table.c.id)
            ids = {row.name: row.id for row in connection.execute(query)}
            if name not in ids:
                raise UserError(f"{self._name}: study {study!r} has no {kind} {name!r}; {_known(ids)}")
            self._keys[key] = ids[name]
        return self._keys[key]

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


def _evaluations(connection: Connection, query: Select[Any]) -> list[tuple[int, Evaluation]]:
    """The evaluations that a query finds, in the order in which they were recorded, each with its key."""
    rows = connection.execute(query.order_by(tables.evaluations.c.id)).all()
    measured = _values(connection, query.with_only_columns(tables.evaluations.c.id)) if rows else {}
    return [(row.id, Evaluation(**content_of(row), values=tuple(measured.get(row.id, {}).values()))) for row in rows]


def _done(recipe_id: int, coalition: str, replicate: int) -> Select[Any]:
    """The success of a task, of which there is one or none."""
    task = {"recipe_id": recipe_id, "coalition": coalition, "replicate": replicate}
    return select(tables.evaluations).filter_by(**task, status="done")


def _values(connection: Connection, evaluation_ids: Select[Any]) -> dict[int, dict[str, Value]]:
    """Each evaluation's values by property; a value added after an error takes its place."""
    of, table = tables.properties.c.name, tables.values.c
    query = (
        select(table.evaluation_id, of, table.value, table.standard_error, table.images, table.error)
        .join(tables.properties)
        .where(tables.values.c.evaluation_id.in_(evaluation_ids))
        .order_by(tables.values.c.id)
    )
    measured: dict[int, dict[str, Value]] = {}
    for evaluation_id, name, *fields in connection.execute(query):  # by place: there may be hundreds of thousands
        measured.setdefault(evaluation_id, {})[name] = Value(name, *fields)
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
        return plain_number(old.value) != plain_number(new.value)
    return _text(old) != _text(new)


def _text(value: Value) -> str:
    """A value with its standard error, in as many digits as tell it from any other."""
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
