"""A pilot: a few evaluations that show noise and signal before the whole study is paid for.

It evaluates coalitions of half the contributors, each with several seeds. Values differ between seeds by noise, and
between coalitions by signal too. The ledger records pilots with the purpose ``pilot``; they never enter an estimate.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from diffcredit.coalitions import encode, make_design
from diffcredit.credit import Credits
from diffcredit.credit.correlations import correlation
from diffcredit.credit.estimate import DEFAULT
from diffcredit.credit.planning import Pilot, read_pilot, signal_to_noise
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.execution import Executor, Task
from diffcredit.ledger import Evaluation
from diffcredit.ledger.purposes import PILOT_REPLICATE
from diffcredit.study.config import StudyConfig
from diffcredit.study.evaluating import evaluate_tasks
from diffcredit.study.sections import ValidationSection
from diffcredit.util.seeds import derive_seed

if TYPE_CHECKING:
    from diffcredit.study.recipe import Recipe
    from diffcredit.study.study import Study

COALITIONS, REPLICATES = 4, 3

QUIET_ENOUGH = 0.1  # signal/noise below which credits take too many evaluations
LEAST_ALIKE = 4  # coalitions that a reported correlation needs
ENOUGH = 40  # evaluations from which signal and noise are better known than from a pilot


def pilot_tasks(config: StudyConfig, n: int, coalitions: int = COALITIONS, replicates: int = REPLICATES) -> list[Task]:
    """Return the tasks of a pilot: ``replicates`` seeds of each of ``coalitions`` coalitions of half the contributors,
    or of all such coalitions if there are fewer. Asking for more of either only adds tasks."""
    design = make_design("subset(0.5)", derive_seed(config.seed, "pilot"))
    drawn = design.draw(n, 0, min(coalitions, comb(n, pilot_size(n))))
    return [
        Task(encode(coalition), PILOT_REPLICATE + replicate, "pilot")
        for replicate in range(replicates)
        for coalition in drawn
    ]


def pilot_size(n: int) -> int:
    """Return how many members the pilot's coalitions have."""
    return int(make_design("subset(0.5)").size_probabilities(n).argmax()) + 1


def run_pilot(recipe: "Recipe", executor: Executor, coalitions: int, replicates: int) -> Iterator[Evaluation]:
    """Evaluate the pilot's missing tasks, and yield each evaluation once it is recorded."""
    if coalitions < 2 or replicates < 2:
        raise UserError(f"pilot: {coalitions} coalitions with {replicates} replicates; at least 2 of each are accepted")
    tasks = pilot_tasks(recipe.study.config, recipe.study.contributions.n, coalitions, replicates)
    yield from evaluate_tasks(recipe, executor, tasks, "evaluating the pilot")


def other_recipes(study: "Study") -> list["Recipe"]:
    """Return the recipes that validation compares with the study's own, and that of models retrained from scratch."""
    validation = study.config.validation or ValidationSection()
    sections = {section.recipe: section for section in (*validation.retrainings, validation.truth)}
    return [study.recipe_with(section, 1) for name, section in sections.items() if name != study.recipe.name]


def truth_of(recipes: Sequence["Recipe"]) -> "Recipe":
    """Return the one of ``recipes``, a study's own with its :func:`other_recipes`, that retrains from scratch."""
    validation = recipes[0].study.config.validation or ValidationSection()
    return next(each for each in recipes if each.name == validation.truth.recipe)


def pilot_evaluations(recipe: "Recipe") -> list[Evaluation]:
    """Return the pilot's evaluations that are done; none where there is no ledger yet."""
    return recipe.evaluations(status="done", purpose="pilot")


def pilots(recipe: "Recipe") -> dict[str, Pilot]:
    """Return the noise and signal of each property by the pilot; a property with too few values is left out."""
    values = [value for evaluation in pilot_evaluations(recipe) for value in evaluation.values]
    found = {}
    for name, groups in _values(recipe).items():
        errors = [each.standard_error for each in values if each.property == name and each.standard_error is not None]
        with suppress(UserError):
            found[name] = read_pilot(list(groups.values()), errors)
    return found


def likeness(recipe: "Recipe", truth: "Recipe") -> dict[str, float]:
    """Return how both recipes' mean values correlate over the pilot's coalitions, for each property."""
    found, true = _values(recipe), _values(truth)
    alike = {}
    for name in found.keys() & true.keys():
        both = found[name].keys() & true[name].keys()
        if len(both) >= LEAST_ALIKE:
            means = [[np.mean(each[name][coalition]) for coalition in sorted(both)] for each in (found, true)]
            alike[name] = correlation(*np.array(means), "pearson")
    return alike


def _values(recipe: "Recipe") -> dict[str, dict[str, list[float]]]:
    """Return the pilot's values by property and coalition, in the order of their seeds."""
    values: dict[str, dict[str, list[float]]] = {}
    for evaluation in sorted(pilot_evaluations(recipe), key=lambda e: e.key):
        for name, value in evaluation.measured.items():
            values.setdefault(name, {}).setdefault(evaluation.coalition, []).append(value)
    return values


def signals(study: "Study") -> dict[str, float]:
    """Return each property's signal/noise: by the evaluations once there are enough, or else by the pilot."""
    evaluated = study.schedule().evaluated()
    credits: dict[str, Credits] = {}
    if len(evaluated) >= ENOUGH:
        with suppress(UserError):  # all values may be missing
            credits = study.credits(DEFAULT, corrected=False)
    if not credits:
        return {name: pilot.ratio for name, pilot in pilots(study.recipe).items()}
    sizes = [evaluation.coalition.count("1") for evaluation in evaluated]
    return {
        name: signal_to_noise(each.diagnostics["tau"], each.diagnostics["sigma"], sizes, len(each.values))
        for name, each in credits.items()
    }


def warn_of_noise(signals: Mapping[str, float]) -> None:
    """Warn of every property whose signal/noise is too low for credits."""
    for name, ratio in signals.items():
        if ratio < QUIET_ENOUGH:
            warnings.warn(
                f"{name}: signal/noise {ratio:.2g} is under {QUIET_ENOUGH}: contributors explain little of a value's "
                "variance; look for a less noisy retraining before evaluating more",
                DiffcreditWarning,
                stacklevel=2,
            )
