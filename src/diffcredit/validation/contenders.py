"""Everybody's credits for a property, which validation compares: those of every estimator and recipe, of surrogates,
and of baselines."""

import math
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from diffcredit.baselines.study import StudyBaseline, build_baselines, helpfulness, kept_baselines, run_baselines
from diffcredit.coalitions import decode
from diffcredit.credit import KnownSurrogate, estimate
from diffcredit.credit.estimate import DEFAULT
from diffcredit.errors import UserError
from diffcredit.study.recipe import Recipe
from diffcredit.validation.statistics.games import game_credits
from diffcredit.validation.statistics.records import Contender, RecipeGame
from diffcredit.validation.work import seconds_of

if TYPE_CHECKING:
    from diffcredit.validation.data import ValidationData


def collect_contenders(data: "ValidationData", prop: str) -> list[Contender]:
    """Return all credits for a property: the study's own first, then other estimators' and recipes', surrogates' and
    baselines'. Credits that cannot be computed from what is evaluated are left out."""
    unit, found = data.unit(), []
    for recipe in data.recipes:
        game = data.game(recipe, prop)
        if game is not None:
            seconds = float(np.nansum(game.seconds)) + (0 if math.isnan(game.preparation) else game.preparation)
            for method, category in data.estimators.items():
                with suppress(UserError):
                    name, credits = f"{method}, {recipe.name}", game_credits(game, method)
                    found.append(Contender(name, category, recipe.name, credits, len(game.values), seconds / unit))
        if "leave-one-out" not in data.estimators:
            found += _left_one_out(data, recipe, prop, unit)
    return [*_corrected(data, prop), *found, *_surrogates(data, prop), *_baselines(data, prop, unit)]


def known_surrogates(data: "ValidationData", prop: str, game: RecipeGame | None = None) -> dict[str, KnownSurrogate]:
    """Return the surrogates of a property, as helpfulness, with their values at the coalitions of ``game``; none where
    what they need has not been measured."""
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
    """Return the credits of the study's surrogates, corrected by its evaluations. Their cost is unknown."""
    game = data.game(data.study.recipe, prop)
    known = {} if game is None else known_surrogates(data, prop, game)
    if game is None or not known:
        return []
    with suppress(UserError):  # the evaluations are too few
        credits = estimate(
            game.coalitions,
            game.values,
            empty=game.empty,
            full=game.full,
            size_distribution=game.size_distribution,
            surrogate=list(known.values()),
        ).values
        name = f"shapley with {', '.join(known)}, {data.study.recipe.name}"
        return [Contender(name, DEFAULT, data.study.recipe.name, credits, len(game.values))]
    return []


def _surrogates(data: "ValidationData", prop: str) -> list[Contender]:
    """Return each surrogate's own credits, without evaluations."""
    return [
        Contender(f"surrogate {name}", "surrogate", "", np.asarray(each.credits))
        for name, each in known_surrogates(data, prop).items()
    ]


def _left_one_out(data: "ValidationData", recipe: Recipe, prop: str, unit: float) -> list[Contender]:
    work = data.leave_one_out(recipe)
    done = recipe.evaluations(status="done")
    values = data.values(done, prop, ("validation", "endpoint"))
    keys = [task.key for task in work.tasks]
    if not all(key in values for key in keys):
        return []
    left = [key for key, task in zip(keys, work.tasks, strict=True) if task.purpose == "validation"]
    credits = estimate(
        np.array([decode(coalition) for coalition, _ in left]),
        [values[key] for key in left],
        empty=values[keys[0]],
        full=[values[key] for key in keys if "0" not in key[0]],
        method="leave-one-out",
        size_distribution="leave-one-out",
    ).values
    seconds = sum(seconds_of(one) for one in done if one.key in left)
    name = f"leave-one-out, {recipe.name}"
    return [Contender(name, "leave-one-out", recipe.name, credits, len(left), seconds / unit)]


def _baselines(data: "ValidationData", prop: str, unit: float) -> list[Contender]:
    higher = data.properties[prop].higher_is_better
    return [
        Contender(
            each.found.name,
            each.category,
            "",
            # credits that measure the property itself are negated where lower is better
            helpfulness(each.found.credits, each.property is None or higher),
            cost=each.found.seconds / unit,
        )
        for each in (kept_baselines(data.study) if data.baselines is None else data.baselines)
        if each.property in (None, prop) and _distinguishes(each)
    ]


def _distinguishes(baseline: StudyBaseline) -> bool:
    """Return whether a baseline's credits differ between contributors at all."""
    return bool(np.ptp(baseline.found.credits) > 0)
