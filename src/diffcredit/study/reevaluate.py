"""Recorded evaluations made again: to check that the recipe really gives the ledger's values (:func:`recompute`), or to
measure further properties on what was kept or on models retrained (:func:`outlook`, :func:`measure_kept`,
:func:`measure_retrained`)."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from diffcredit.errors import UserError
from diffcredit.execution import Executor, Task
from diffcredit.ledger import Evaluation, Ledger, RecipeRecord
from diffcredit.properties import Property
from diffcredit.properties.base import needs_features, needs_model
from diffcredit.study.checks import check
from diffcredit.study.evaluating import evaluate_again
from diffcredit.study.manifest import enter_terms
from diffcredit.study.recorded import check_recipe, register_properties
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.sanitize import last_line

if TYPE_CHECKING:
    from diffcredit.study.study import Study

TOLERANCE = 0.1
"""How far a value may be off on another kind of device or with other threads, in standard deviations of the property
over the recipe's evaluations. Within one numerics class that repeats, it must be equal bit for bit."""
ROUNDING = 1e-6  # allowed relative error, for properties that hardly differ between evaluations
TRIALS = 3  # evaluations on which a new property may fail before it is refused
Groups = dict[tuple[str, ...], list[Task]]
"""Tasks, grouped by the properties whose values are missing."""


@dataclass(frozen=True)
class Recomputed:
    """One value of a repeated evaluation, as ``recorded`` and as it came out ``now``. The two agree if they differ by
    at most ``tolerance``. If measuring failed, ``now`` is None and ``error`` says why."""

    coalition: str
    replicate: int
    property: str
    recorded: float
    now: float | None
    tolerance: float
    error: str | None = None

    @property
    def agrees(self) -> bool:
        return self.now is not None and abs(self.now - self.recorded) <= self.tolerance


def recompute(study: "Study", executor: Executor, count: int) -> Iterator[Recomputed]:
    """Repeat ``count`` evaluations of the study's recipe (or all, if fewer) and compare every value. They are drawn by
    the system's randomness, so that nobody can know beforehand which ones. Nothing is recorded."""
    done = study.evaluations(status="done")
    if not done:
        raise UserError(f"{study.file}: no evaluations of {study.recipe.name!r} to repeat; diffcredit run makes them")
    _prepare_to_read(study)
    drawn = random.SystemRandom().sample(done, min(count, len(done)))
    recorded = {each.key: each for each in drawn}
    tasks = [Task(each.coalition, each.replicate, each.purpose) for each in drawn]
    spreads = _spreads(done)
    for made in evaluate_again(study.recipe, executor, tasks):
        yield from _compared(recorded[made.key], made, spreads)


def _prepare_to_read(study: "Study") -> None:
    """Make what every evaluation starts from, and enter nothing: an auditor may only read."""
    study.prepared.cache.share()
    check(study)
    with study.ledger(create=False) as ledger:
        check_recipe(study.recipe, ledger)
        recorded = study.recipe.recorded(ledger)
    now = study.recipe.record.weights
    if recorded is not None and now != recorded.weights:
        raise UserError(
            f"{study.file}: {study.recipe.name!r} starts from other weights here than in the ledger "
            f"({recorded.weights or 'none'} → {now or 'none'}): values cannot be repeated"
        )


def _compared(old: Evaluation, new: Evaluation, spreads: dict[str, float]) -> Iterator[Recomputed]:
    found = {value.property: value for value in new.values}
    for name, recorded in old.measured.items():
        if new.status == "done" and name not in found:
            continue  # no longer a property of the study file
        now = found.get(name)
        allowed = max(TOLERANCE * spreads[name], ROUNDING * abs(recorded))
        yield Recomputed(
            old.coalition,
            old.replicate,
            name,
            recorded,
            now=None if now is None else now.value,
            tolerance=0.0 if old.numerics == new.numerics and _repeats(new.numerics) else allowed,
            error=new.error if now is None else now.error,
        )


def _repeats(numerics: Mapping[str, Any]) -> bool:
    """Return whether all processes of a numerics class get the same bits. On a GPU they do only where the order of sums
    follows a rule; otherwise, autotuning may pick another order."""
    if not str(numerics.get("device", "")).startswith("cuda"):
        return True
    stages = [numerics.get("training"), numerics.get("sampling")]
    return all(stage.get("sums_by_rule", False) for stage in stages if stage)


def _spreads(evaluations: list[Evaluation]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for evaluation in evaluations:
        for name, value in evaluation.measured.items():
            values.setdefault(name, []).append(value)
    return {name: float(np.std(some)) for name, some in values.items()}


@dataclass(frozen=True)
class Outlook:
    """The work of measuring properties on all recorded evaluations: those that can be measured on what was ``kept``,
    and those that must be ``retrained``, which takes one worker ``seconds`` each."""

    kept: Groups
    retrained: Groups
    seconds: float

    def count(self, groups: Groups) -> int:
        """Return how many evaluations these are."""
        return len({task for tasks in groups.values() for task in tasks})


def outlook(study: "Study", names: Sequence[str]) -> Outlook:
    """Fit the properties ``names`` to the base model, and return which of their values are missing and whether what was
    kept is enough for them."""
    record, evaluations = _recipe_and_evaluations(study)
    keeper = study.recipe.keeper(record)
    properties = {prop.name: prop for prop in study.prepared.properties if prop.name in names}
    kept: Groups = {}
    retrained: Groups = {}
    for evaluation in evaluations:
        task = Task(evaluation.coalition, evaluation.replicate, evaluation.purpose)
        missing = [name for name in properties if name not in evaluation.measured]
        there = keeper.kept(task) if missing else frozenset()
        able = [name for name in missing if _measurable(study, properties[name], there)]
        for groups, some in ((kept, able), (retrained, [name for name in missing if name not in able])):
            if some:
                groups.setdefault(tuple(some), []).append(task)
    each = [sum(evaluation.seconds.values()) for evaluation in evaluations]
    return Outlook(kept, retrained, float(np.mean(each)) if each else 0.0)


def try_new(study: "Study", executor: Executor, names: Sequence[str], *groups: Groups) -> None:
    """Measure each new property on one evaluation of ``groups``, and record nothing. Raises a UserError for one that
    fails on each of several."""
    record, _ = _recipe_and_evaluations(study)
    for name in names:
        named = [(each is groups[0], tasks) for each in groups for some, tasks in each.items() if name in some]
        chosen = [(task, is_kept) for is_kept, tasks in named for task in tasks]
        chosen.sort(key=lambda one: (not one[1], -one[0].coalition.count("1")))
        error = None
        for task, is_kept in chosen[:TRIALS]:
            (made,) = evaluate_again(study.recipe, executor, [task], [name], record if is_kept else None)
            error = made.error or next((value.error for value in made.values), None)
            if error is None:
                break
        if error is not None:
            raise UserError(
                f"{name}: cannot be measured, tried on {len(chosen[:TRIALS])} evaluations: {last_line(error)}; "
                "the study file and the ledger are as before"
            )


def measure_kept(study: "Study", executor: Executor, kept: Groups) -> Iterator[Evaluation]:
    """Measure on what was kept; yield each evaluation once its new values are recorded."""
    record, _ = _recipe_and_evaluations(study)
    with study.ledger(create=False) as ledger:
        register_properties(study, ledger)
        enter_terms(study, ledger)
    yield from _add_values(study, executor, kept, "measuring what was kept", record)


def measure_retrained(study: "Study", executor: Executor, retrained: Groups) -> Iterator[Evaluation]:
    """Retrain and sample again; yield each evaluation once its new values are recorded."""
    study.prepare()
    yield from _add_values(study, executor, retrained, "evaluating again", None)


def _add_values(
    study: "Study", executor: Executor, groups: Groups, what: str, kept: RecipeRecord | None
) -> Iterator[Evaluation]:
    """Make the evaluations of ``groups`` again and add the values they miss to the record."""
    for names, tasks in groups.items():
        study.progress(what, 0, len(tasks))
        with study.ledger() as ledger:
            pending = _missing(study, ledger, names, tasks)
            for made, evaluation in enumerate(evaluate_again(study.recipe, executor, pending, names, kept), 1):
                if evaluation.status == "done":  # a failure here does not make the recorded evaluation a failed one
                    ledger.record(study.name, study.recipe.name, evaluation)
                study.progress(what, made, len(tasks))
                yield evaluation
        study.progress(what, len(tasks), len(tasks))  # other processes may have made some


def _missing(study: "Study", ledger: Ledger, names: Sequence[str], tasks: list[Task]) -> Iterator[Task]:
    """Yield the tasks that still miss values when their turn comes, in a random order, so that processes that measure
    the same property rarely work on the same task at a time."""
    for task in random.SystemRandom().sample(tasks, len(tasks)):
        done = ledger.done(study.name, study.recipe.name, *task.key)
        if done is None or not done.measured.keys() >= set(names):
            yield task


def _recipe_and_evaluations(study: "Study") -> tuple[RecipeRecord, list[Evaluation]]:
    """Return the study's recipe and its evaluations that are done, as the ledger has them."""
    check(study)
    with study.ledger(create=False) as ledger:
        record = study.recipe.recorded(ledger)
        if record is None:
            raise UserError(f"{study.file}: no evaluations of {study.recipe.name!r} yet; diffcredit run makes them")
        check_recipe(study.recipe, ledger)
        return record, ledger.evaluations(study.name, record.name, status="done")


def _measurable(study: "Study", prop: Property, there: frozenset[str]) -> bool:
    """Return whether a property can be measured on what is ``there``: kinds, and fingerprints of extractors."""
    if needs_model(prop):
        return "model" in there
    if needs_features(prop) and fingerprint(study.prepared.extractors.identity(prop.features)) in there:
        return True
    return bool(there & {"images", "model"})
