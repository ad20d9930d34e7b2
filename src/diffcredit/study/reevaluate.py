"""Repeating recorded evaluations, to check that the recipe really gives the ledger's values."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from diffcredit.errors import UserError
from diffcredit.execution import Executor, Task
from diffcredit.ledger import Evaluation
from diffcredit.study.evaluating import evaluate_again

if TYPE_CHECKING:
    from diffcredit.study.study import Study

TOLERANCE = 0.1
"""How far a value may be off on another kind of device or with other threads, in standard deviations of the property
over the recipe's evaluations. Within one numerics class that repeats, it must be equal bit for bit."""
ROUNDING = 1e-6  # allowed relative error, for properties that hardly differ between evaluations


@dataclass(frozen=True)
class Recomputed:
    """One value of a repeated evaluation: as ``recorded``, and as it came out ``now``.

    ``now`` is None if measuring failed, with its ``error``. The two may differ by ``tolerance``.
    """

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
    """Repeat ``count`` evaluations of the study's recipe, or all where there are fewer, and compare every value.

    They are drawn at random, unpredictably. Nothing is recorded.
    """
    done = study.evaluations(status="done")
    if not done:
        raise UserError(f"{study.file}: no evaluations of {study.recipe.name!r} to repeat; diffcredit run makes them")
    study.prepare()
    drawn = random.SystemRandom().sample(done, min(count, len(done)))
    recorded = {each.key: each for each in drawn}
    tasks = [Task(each.coalition, each.replicate, each.purpose) for each in drawn]
    spreads = _spreads(done)
    for made in evaluate_again(study.recipe, executor, tasks):
        yield from _compared(recorded[made.key], made, spreads)


def _compared(old: Evaluation, new: Evaluation, spreads: dict[str, float]) -> Iterator[Recomputed]:
    found = {value.property: value for value in new.values}
    for value in old.values:
        if value.value is None or (new.status == "done" and value.property not in found):
            continue  # was not measured, or is no longer a property of the study file
        now = found.get(value.property)
        allowed = max(TOLERANCE * spreads[value.property], ROUNDING * abs(value.value))
        yield Recomputed(
            old.coalition,
            old.replicate,
            value.property,
            value.value,
            now=None if now is None else now.value,
            tolerance=0.0 if old.numerics == new.numerics and _repeats(new.numerics) else allowed,
            error=new.error if now is None else now.error,
        )


def _repeats(numerics: Mapping[str, Any]) -> bool:
    """Return whether all processes of a numerics class get the same bits.

    On a GPU they do only where the order of sums follows a rule; otherwise, autotuning may pick another order.
    """
    if not str(numerics.get("device", "")).startswith("cuda"):
        return True
    stages = [numerics.get("training"), numerics.get("sampling")]
    return all(stage.get("sums_by_rule", False) for stage in stages if stage)


def _spreads(evaluations: list[Evaluation]) -> dict[str, float]:
    """Return each property's standard deviation over the evaluations."""
    values: dict[str, list[float]] = {}
    for evaluation in evaluations:
        for value in evaluation.values:
            if value.value is not None:
                values.setdefault(value.property, []).append(value.value)
    return {name: float(np.std(some)) for name, some in values.items()}
