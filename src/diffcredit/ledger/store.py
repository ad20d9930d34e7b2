"""The class :class:`Ledger`, through which all other rooms read and write the record. What happens within a transaction
stands in ``audited``, ``recording`` and ``claims``."""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import Connection

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.ledger import audited, claims, keys, recording
from diffcredit.ledger.audited import Audit, AuditedStudy
from diffcredit.ledger.chain import Head
from diffcredit.ledger.claims import Claim, CurrentClaim
from diffcredit.ledger.database import Database
from diffcredit.ledger.readings import Readings
from diffcredit.ledger.recording import EntryCheck, Rows
from diffcredit.ledger.records import Entry, Evaluation, PropertyRecord, RecipeRecord
from diffcredit.ledger.soundness import changed

T = TypeVar("T")


class Ledger(AbstractContextManager["Ledger"]):
    """Evaluations of one or more studies, in a database.

    - **Rows are only added.** An evaluation is there as a success with its values, there as a failed attempt with its
      error, or absent. Claims alone come and go, and are no part of the record. A recipe or property that changed under
      the same name is refused.
    - **As written.** Every row is chained to the rows before it (:mod:`~diffcredit.ledger.chain`). A study's rows are
      compared with its chain before any of them is returned or added to (:mod:`~diffcredit.ledger.audited`): where one
      was changed behind this class's back, all of the study is refused with :class:`ChangedRecord`, and :meth:`audit`
      lists what was changed. Whoever rewrites the chain too, or removes its end, shows only against a head kept
      elsewhere. Claims are not covered, nor are rows of other studies.
    - **Atomicity.** Each method is one transaction: it takes effect as a whole or, when it raises, not at all.
    - **Durability.** What ``register_…``, :meth:`record` and :meth:`restore` have entered survives a crash and a power
      cut. Claims may be lost with the power: they save work and protect nothing.
    - **Sharing.** Threads may share a Ledger, and processes a database; with a server, also from several machines.
      Writers take turns, readers wait for nobody and see only what was committed. A forked child must open its own.
    - **Ownership.** Records are immutable copies: nothing done to their dictionaries reaches the ledger.
    - **Order.** Lists come in the order in which their rows were committed, the same for every reader.
    - **Errors.** A UserError where a name is unknown or settings changed, :class:`ChangedRecord` where rows are not as
      written, :class:`NonDeterminism` where a value came out differently than before, any other DiffcreditError where
      the database refuses. A server that is away for up to two minutes is waited for.
    - **Speed.** The first answer about a study reads all its rows, later ones what was appended since. Ledgers of one
      database that are opened with the same ``readings`` share what was read.

    ``tests/ledger/contract.py`` checks all this for every kind of database.
    """

    def __init__(self, database: Database, readings: Readings | None = None) -> None:
        self._database, self._readings = database, readings or Readings()

    @classmethod
    def open(cls, url: str | Path, *, create: bool = True, readings: Readings | None = None) -> Self:
        """Open the ledger at a file path or SQLAlchemy URL; ``create`` makes it where nothing is yet. ``readings``:
        what other ledgers of this database have read."""
        return cls(Database.connect(url, create=create), readings)

    def close(self) -> None:
        self._database.engine.dispose()

    def __exit__(self, *_: object) -> None:
        self.close()

    def register_study(self, name: str, settings: dict[str, Any]) -> None:
        """Enter a study, or check that the one already there is the same. ``settings`` fix the meaning of its
        coalitions, such as the contributors' names in the order of a coalition's characters."""

        def register(connection: Connection) -> None:
            recording.register_study(connection, partial(self._readings.current, connection), name, settings)

        self._database.write(register)

    def register_recipe(self, study: str, recipe: RecipeRecord) -> None:
        """Enter a recipe, or check that the one already there is the same."""
        self._write(study, partial(recording.register, record=recipe))

    def register_property(self, study: str, prop: PropertyRecord) -> None:
        """Enter a property, or check that the one already there is the same."""
        self._write(study, partial(recording.register, record=prop))

    def enter(self, study: str, entry: Entry, check: EntryCheck, then: Sequence[Entry] = ()) -> bool:
        """Add an entry to a study, which must be registered; return whether it was added. The entries ``then`` follow
        it in the chain, with nothing between them.

        ``check`` is given the study's entries of the same kind, and whether the study has evaluations, while nobody
        else writes. It returns whether to add this one, or raises a UserError to refuse it.
        """
        return self._write(study, partial(recording.enter, entry=entry, check=check, then=then))

    def entries(self, study: str, kind: str) -> list[Entry]:
        """Return a study's entries of one kind, in the order in which they were entered."""
        return self._read(study, lambda known: known.entries(kind))

    def record(self, study: str, recipe_name: str, evaluation: Evaluation) -> bool:
        """Add an evaluation with all its values; return whether anything was added.

        Where the same coalition and replicate is already done, the values must be equal
        (:class:`NonDeterminism` otherwise), and so must their standard errors where both are known. Values of
        properties that were not measured then, or failed to be, are added to it. Minus zero is kept as zero.
        """
        return self._write(study, partial(recording.record, recipe=recipe_name, evaluation=evaluation))

    def evaluations(
        self, study: str, recipe_name: str, *, status: str | None = None, purpose: str | None = None
    ) -> list[Evaluation]:
        """Return a recipe's evaluations, by default of every status and purpose."""
        return self._read(study, lambda known: known.evaluations(recipe_name, status=status, purpose=purpose))

    def evaluations_since(self, study: str, recipe_name: str, mark: int) -> tuple[list[Evaluation], int]:
        """Return a recipe's evaluations recorded by anybody after ``mark``, 0 at first, and the mark to continue from.
        Values that were added to an earlier evaluation are not reported."""
        return self._read(
            study,
            lambda known: (known.evaluations(recipe_name, after=mark), max(mark, known.last_evaluation(recipe_name))),
        )

    def done(self, study: str, recipe_name: str, coalition: str, replicate: int) -> Evaluation | None:
        """Return one evaluation if it is done, else None."""
        return self._read(study, lambda known: known.done(recipe_name, coalition, replicate))

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
        """Reserve an evaluation for ``holder`` for ``seconds``, at most
        :data:`~diffcredit.ledger.claims.LONGEST_LEASE`. Return None where it is done, or where another holder's claim
        has not expired, unless the caller knows that holder to be ``gone``."""
        task = study, recipe_name, coalition, replicate
        claim = partial(claims.claim, task=task, holder=holder, seconds=seconds, gone=gone)
        return self._database.write(claim, durable=False)

    def renew(self, held: Iterable[Claim], seconds: float) -> list[Claim]:
        """Extend claims to ``seconds`` from now; return those that still belong to their holder."""
        return self._database.write(lambda connection: claims.renew(connection, held, seconds), durable=False)

    def release(self, held: Iterable[Claim]) -> None:
        """Give back those claims that still belong to their holder."""
        self._database.write(lambda connection: claims.release(connection, held), durable=False)

    def claims(self, study: str) -> list[CurrentClaim]:
        """Return a study's claims that have not expired, by recipe and holder: the work under way."""
        return self._database.read(lambda connection: claims.current(connection, study))

    def head(self, study: str) -> Head:
        """Return the end of a study's chain, by which :meth:`audit` can later verify all rows before it."""
        return self._read(study, lambda known: known.head)

    def audit(self, study: str, *heads: str | None) -> Audit:
        """Compare every row of a study with its chain, and the chain with ``heads`` noted earlier. The file of a
        database is checked as a whole."""
        return self._database.read(lambda connection: audited.audit(connection, study, *heads))

    def export(self, study: str) -> tuple[Rows, str]:
        """Return all rows of a study, in the order of its chain, and its head. Refuse a study with changed rows."""

        def read(connection: Connection) -> tuple[Rows, str]:
            texts: list[str] = []
            known = audited.read_study(connection, study, seen=lambda _, text: texts.append(text))
            if known.problems:
                raise changed(known.problems[0])
            return [(row["kind"], row["row"]) for row in map(json.loads, texts)], known.head.hash

        return self._database.read(read)

    def restore(self, rows: Rows, head: str) -> None:
        """Enter an exported study. Refuse it where its chain does not end with the hash ``head``."""

        def restore(connection: Connection) -> None:
            name = rows[0][1].get("name") if rows else None
            if name in keys.study_names(connection):
                raise UserError(f"has a study {name!r} already; give another ledger")
            if recording.restore(connection, rows).hash != head:
                raise DiffcreditError(f"{self._database.name}: the rows of {name!r} are not those that were exported")

        self._database.write(restore)

    def studies(self) -> list[str]:
        """Return the names of all studies, in the order of registration."""
        return self._database.read(keys.study_names)

    def settings(self, study: str) -> dict[str, Any]:
        """Return a study's settings."""
        return self._read(study, lambda known: known.settings)

    def recipes(self, study: str) -> list[RecipeRecord]:
        """Return a study's recipes in the order of registration."""
        return self._read(study, lambda known: known.recipes())

    def properties(self, study: str) -> list[PropertyRecord]:
        """Return a study's properties in the order of registration."""
        return self._read(study, lambda known: known.properties())

    def _read(self, study: str, question: Callable[[AuditedStudy], T]) -> T:
        return self._readings.answer(self._database, study, question)

    def _write(self, study: str, action: Callable[[Connection, AuditedStudy], T]) -> T:
        return self._database.write(lambda connection: action(connection, self._readings.current(connection, study)))
