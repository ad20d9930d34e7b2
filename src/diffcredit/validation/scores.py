"""How good credits are that come from the first so many evaluations of a recipe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np

from diffcredit.credit.correlations import correlation
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.crediting import credits_of
from diffcredit.validation.records import Estimate, RecipeGame, Truth
from diffcredit.validation.statistics import (
    correlation_with_interval,
    linear_datamodeling_score,
    mean_over_seeds,
    predictions,
)

MOST_STRETCHES = 5


@dataclass(frozen=True)
class Score:
    """Credits by ``estimator`` from the first ``evaluations`` of a recipe's design.

    ``lds``: for each share the LDS, Spearman's correlation of Σ_{i∈S} credit_i with the mean over seeds of the
    retrained F(S), with its interval over truth coalitions. ``stretches``: the mean LDS, the lowest and the highest
    over up to 5 disjoint stretches of the design of this length (low and high are NaN where there is but one).
    ``with_final`` and ``with_retrained``: Pearson's correlation with the same estimator's credits from all evaluations
    of the recipe, and from all of the retraining (NaN: there are none).
    """

    recipe: str
    estimator: str
    evaluations: int
    lds: Mapping[float, Estimate]
    stretches: Mapping[float, Estimate]
    with_final: float
    with_retrained: float


def lds_of(credits: FloatArray, truth: Truth) -> Estimate:
    """The LDS of credits (n,) against the mean over seeds, with its interval over coalitions."""
    foretold = predictions(credits, truth.coalitions)
    return correlation_with_interval(foretold, mean_over_seeds(truth.values), "spearman")


def _plain_lds(credits: FloatArray, truth: Truth) -> float:
    return linear_datamodeling_score(credits, truth.coalitions, mean_over_seeds(truth.values))


def score(
    game: RecipeGame,
    estimator: str,
    evaluations: int,
    truths: Sequence[Truth],
    final: FloatArray,
    retrained: FloatArray | None,
) -> Score:
    """The score of the first ``evaluations``; ``final`` and ``retrained`` (n,) are credits to compare with.

    Raises UserError where the estimator refuses so few.
    """
    credits = credits_of(game, estimator, slice(evaluations))
    stretches = [credits, *_further_stretches(game, estimator, evaluations)]
    return Score(
        game.recipe,
        estimator,
        evaluations,
        lds={truth.share: lds_of(credits, truth) for truth in truths},
        stretches={truth.share: _range([_plain_lds(each, truth) for each in stretches]) for truth in truths},
        with_final=correlation(credits, final, "pearson"),
        with_retrained=nan if retrained is None else correlation(credits, retrained, "pearson"),
    )


def _further_stretches(game: RecipeGame, estimator: str, length: int) -> list[FloatArray]:
    """The credits of the second, third, … stretch; one that the estimator refuses is left out."""
    whole = len(game.values) // length
    found = []
    for start in range(length, min(whole, MOST_STRETCHES) * length, length):
        try:
            found.append(credits_of(game, estimator, slice(start, start + length)))
        except UserError:
            continue
    return found


def _range(values: list[float]) -> Estimate:
    known = [value for value in values if np.isfinite(value)]
    if not known:
        return Estimate(nan)
    spread = len(known) > 1
    return Estimate(float(np.mean(known)), min(known) if spread else nan, max(known) if spread else nan)
