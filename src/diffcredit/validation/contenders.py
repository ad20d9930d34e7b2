"""The credits for a property that validation compares: of every estimator and recipe, of surrogates, and of
baselines."""

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from diffcredit.baselines.selection import build_baselines
from diffcredit.baselines.study import helpfulness, kept_baselines, run_baselines
from diffcredit.coalitions import decode
from diffcredit.credit import KnownSurrogate, estimate
from diffcredit.credit.estimate import DEFAULT
from diffcredit.errors import UserError
from diffcredit.study.recipe import Recipe
from diffcredit.validation.statistics.records import Contender, RecipeGame, game_credits

if TYPE_CHECKING:
    from diffcredit.validation.data import ValidationData


def collect_contenders(data: "ValidationData", prop: str) -> list[Contender]:
    """Return all credits for a property, the study's own first, without those that cannot be computed yet."""
    found = []
    for recipe in data.recipes:
        game = data.game(recipe, prop)
        if game is not None:
            for method, category in data.estimators.items():
                with suppress(UserError):
                    name, credits = f"{method}, {recipe.name}", game_credits(game, method)
                    found.append(Contender(name, category, recipe.name, credits, len(game.values)))
        if "leave-one-out" not in data.estimators:
            found += _left_one_out(data, recipe, prop)
    surrogates = [
        Contender(f"surrogate {name}", "surrogate", "", np.asarray(each.credits))
        for name, each in known_surrogates(data, prop).items()
    ]
    return [*_corrected(data, prop), *found, *surrogates, *_baselines(data, prop)]


def known_surrogates(data: "ValidationData", prop: str, game: RecipeGame | None = None) -> dict[str, KnownSurrogate]:
    """Return a property's surrogates as helpfulness, with values at the coalitions of ``game``; none if a run has not
    measured them yet."""
    surrogates = data.study.surrogates
    if not surrogates.names or not surrogates.ready():
        return {}
    coalitions = np.zeros((0, data.n), dtype=np.bool_) if game is None else game.coalitions
    higher = data.properties[prop].higher_is_better
    return {
        name: KnownSurrogate(
            helpfulness(np.asarray(each.values), higher),
            helpfulness(np.asarray(each.credits), higher),
            each.standard_error,
        )
        for name, each in zip(surrogates.standing_in(prop), surrogates.known(prop, coalitions), strict=True)
    }


def compute_baselines(data: "ValidationData") -> None:
    """Compute the study's baselines, unless some are given or cached."""
    if categories_to_come(data):
        run_baselines(data.study)


def categories_to_come(data: "ValidationData") -> set[str]:
    """Return the categories of baselines that `compute_baselines` would compute."""
    if data.baselines is not None or kept_baselines(data.study):
        return set()
    return {baseline.category for _, _, baseline in build_baselines(data.study, [])}


def _corrected(data: "ValidationData", prop: str) -> list[Contender]:
    recipe = data.study.recipe.name
    game = data.game(data.study.recipe, prop)
    known = {} if game is None else known_surrogates(data, prop, game)
    if game is None or not known:
        return []
    try:
        credits = game_credits(game, DEFAULT, surrogates=list(known.values()))
    except UserError:  # the evaluations are too few
        return []
    return [Contender(f"shapley with {', '.join(known)}, {recipe}", DEFAULT, recipe, credits, len(game.values))]


def _left_one_out(data: "ValidationData", recipe: Recipe, prop: str) -> list[Contender]:
    tasks = data.leave_one_out(recipe).tasks
    values = data.values(recipe.evaluations(status="done"), prop, ("validation", "endpoint"))
    if not all(task.key in values for task in tasks):
        return []
    left = [task for task in tasks if task.purpose == "validation"]
    credits = estimate(
        np.array([decode(task.coalition) for task in left]),
        [values[task.key] for task in left],
        empty=values[tasks[0].key],
        full=[values[task.key] for task in tasks if "0" not in task.coalition],
        method="leave-one-out",
        size_distribution="leave-one-out",
    ).values
    return [Contender(f"leave-one-out, {recipe.name}", "leave-one-out", recipe.name, credits, len(left))]


def _baselines(data: "ValidationData", prop: str) -> list[Contender]:
    higher = data.properties[prop].higher_is_better
    return [
        # credits that measure the property itself are negated where lower is better
        Contender(each.found.name, each.category, "", helpfulness(each.found.credits, each.property is None or higher))
        for each in (kept_baselines(data.study) if data.baselines is None else data.baselines)
        if each.property in (None, prop) and np.ptp(each.found.credits) > 0
    ]
