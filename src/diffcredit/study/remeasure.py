"""A property added to evaluations that are recorded already: measured on what was kept of them, or, where nothing was
and the user pays for it, on models retrained once more."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from diffcredit.errors import UserError
from diffcredit.execution import Executor, Task
from diffcredit.ledger import Evaluation, Ledger, RecipeRecord
from diffcredit.properties.measuring import needs_features, needs_model
from diffcredit.study.prepared import check, property_records, recipe_settings, study_keeper
from diffcredit.util.artifacts import fingerprint

if TYPE_CHECKING:
    from diffcredit.study.study import Study

Groups = dict[tuple[str, ...], list[Task]]
"""The tasks that lack the values of the same properties, by those properties."""


@dataclass(frozen=True)
class Outlook:
    """What it takes to have properties measured on all recorded evaluations: those that were ``kept`` well enough, and
    those that must be ``retrained``, at so many seconds of one worker each."""

    kept: Groups
    retrained: Groups
    seconds: float

    def count(self, groups: Groups) -> int:
        """How many evaluations these are."""
        return len({task for tasks in groups.values() for task in tasks})


def outlook(study: "Study", names: Sequence[str]) -> Outlook:
    """What is lacking of the properties called so, and whether it can be measured on what was kept; fits them to the
    base model."""
    recipe, evaluations = _recorded(study)
    keeper = study_keeper(study, recipe)
    properties = {prop.name: prop for prop in study.properties if prop.name in names}
    kept: Groups = {}
    retrained: Groups = {}
    for evaluation in evaluations:
        task = Task(evaluation.coalition, evaluation.replicate, evaluation.purpose)
        known = {value.property for value in evaluation.values if value.value is not None}
        lacking = [name for name in properties if name not in known]
        there = keeper.kept(task) if lacking else frozenset()
        able = [name for name in lacking if _measurable(study, properties[name], there)]
        for groups, some in ((kept, able), (retrained, [name for name in lacking if name not in able])):
            if some:
                groups.setdefault(tuple(some), []).append(task)
    each = [sum(evaluation.seconds.values()) for evaluation in evaluations]
    return Outlook(kept, retrained, float(np.mean(each)) if each else 0.0)


def measure_kept(study: "Study", executor: Executor, kept: Groups) -> Iterator[Evaluation]:
    """Measures on what was kept; yields each evaluation once its new values are recorded."""
    recipe, _ = _recorded(study)
    with study.ledger(create=False) as ledger:
        for record in property_records(study):
            ledger.register_property(study.name, record)
    for names, tasks in kept.items():
        factory = partial(study.kept_evaluator, names, recipe)
        yield from _recording(study, executor, factory, names, tasks, "measuring what was kept")


def measure_retrained(study: "Study", executor: Executor, retrained: Groups) -> Iterator[Evaluation]:
    """Retrains and samples once more; yields each evaluation once its new values are recorded."""
    study.prepare()
    for names, tasks in retrained.items():
        factory = partial(study.evaluator, names)
        yield from _recording(study, executor, factory, names, tasks, "evaluating once more")


def _recording(
    study: "Study", executor: Executor, factory: Any, names: Sequence[str], tasks: list[Task], what: str
) -> Iterator[Evaluation]:
    study.progress(what, 0, len(tasks))
    with study.ledger() as ledger:
        elsewhere: list[Task] = []
        for made, evaluation in enumerate(executor.run(factory, _lacking(study, ledger, names, tasks, elsewhere)), 1):
            if evaluation.status == "done":  # the evaluation stands, whatever became of measuring it again
                ledger.record(study.name, study.recipe, evaluation)
            study.progress(what, made + len(elsewhere), len(tasks))
            yield evaluation
        if elsewhere:
            study.progress(what, len(tasks), len(tasks))


def _lacking(
    study: "Study", ledger: Ledger, names: Sequence[str], tasks: list[Task], elsewhere: list[Task]
) -> Iterator[Task]:
    """The tasks that still lack values when their turn comes; the others join ``elsewhere``. They come in an order that
    differs from process to process, so that several that measure the same rarely meet at one task, where both would
    find the same values."""
    for task in random.SystemRandom().sample(tasks, len(tasks)):
        done = ledger.done(study.name, study.recipe, task.coalition, task.replicate)
        known = {value.property for value in done.values if value.value is not None} if done else set()
        if known.issuperset(names):
            elsewhere.append(task)
        else:
            yield task


def _recorded(study: "Study") -> tuple[RecipeRecord, list[Evaluation]]:
    """The study's recipe and its evaluations that are done, as the ledger has them."""
    check(study)
    with study.ledger(create=False) as ledger:
        recipes = {recipe.name: recipe for recipe in ledger.recipes(study.name)}
        if study.recipe not in recipes:
            raise UserError(f"{study.file}: no evaluations of {study.recipe!r} yet; diffcredit run makes them")
        ledger.check_recipe_settings(study.name, study.recipe, recipe_settings(study))
        return recipes[study.recipe], ledger.evaluations(study.name, study.recipe, status="done")


def _measurable(study: "Study", prop: Any, there: frozenset[str]) -> bool:
    """Whether a property can be measured on what is ``there``: kinds, and fingerprints of extractors."""
    if needs_model(prop):
        return "model" in there
    if needs_features(prop) and fingerprint(study.extractors.identity(prop.features)) in there:
        return True
    return bool(there & {"images", "model"})
