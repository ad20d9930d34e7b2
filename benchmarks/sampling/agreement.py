"""How near the values and credits of one setting are to those of a reference with all images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan

import numpy as np

from benchmarks.sampling.settings import REFERENCES, Setting
from diffcredit.credit import Credits
from diffcredit.credit.correlations import correlation
from diffcredit.ledger import Evaluation, Game, Value, game_of
from diffcredit.study.config import StudyConfig
from diffcredit.study.crediting import estimate_all
from diffcredit.util.arrays import FloatArray

Values = Mapping[str, Mapping[str, Mapping[str, Mapping[str, float | None]]]]
"""By model, setting, share of the images and property; None where that could not be measured."""


@dataclass(frozen=True)
class Agreement:
    """One setting beside a reference by one property.

    ``full`` is F(N), the mean of its replicates; ``difference`` that less the reference's. ``pearson`` and ``spearman``
    are correlations of F(S) over the design's coalitions, endpoints apart; ``credits`` and ``credit_ranks`` the same of
    the contributors' credits. ``spread`` is the standard deviation of F(S) over those coalitions. ``cost`` is in
    image-steps, of the first reference's. NaN: not enough values, or all the same.
    """

    full: float
    difference: float
    spread: float
    pearson: float
    spearman: float
    credits: float
    credit_ranks: float
    cost: float


def key(evaluation: Evaluation) -> str:
    """What an evaluation's model is called in the results."""
    return f"{evaluation.coalition} {evaluation.replicate}"


def agreement(
    evaluations: Sequence[Evaluation],
    values: Values,
    config: StudyConfig,
    prop: str,
    setting: Setting,
    share: int,
    reference: Setting,
) -> Agreement:
    """Of 1/``share`` of the images, by ``setting``; credits are by the study's own estimator."""
    game, credits = _measured(evaluations, values, config, prop, setting, share)
    other, other_credits = _measured(evaluations, values, config, prop, reference, 1)
    full, other_full = (float(np.mean(each.full)) if each.full else nan for each in (game, other))
    values_scores, credit_scores = (nan, nan), (nan, nan)
    if game.missing == other.missing == 0:  # else the coalitions are not the same
        values_scores = _correlations(game.values, other.values)
    if credits and other_credits:
        credit_scores = _correlations(credits.values, other_credits.values)
    return Agreement(
        full,
        full - other_full,
        float(np.std(game.values, ddof=1)) if len(game.values) > 1 else nan,
        *values_scores,
        *credit_scores,
        cost=setting.steps / REFERENCES[0].steps / share,
    )


def _correlations(a: FloatArray, b: FloatArray) -> tuple[float, float]:
    """Pearson's and Spearman's."""
    return correlation(a, b, "pearson"), correlation(a, b, "spearman")


def _measured(
    evaluations: Sequence[Evaluation], values: Values, config: StudyConfig, prop: str, setting: Setting, share: int
) -> tuple[Game, Credits | None]:
    """The property's game and its credits, as they would be had the study been sampled so."""
    sampled = []
    for evaluation in evaluations:
        value = values[key(evaluation)][setting.name][str(share)][prop]
        error = "not measured" if value is None else None
        sampled.append(replace(evaluation, values=(Value(prop, value, error=error),)))
    return game_of(sampled, prop), estimate_all(sampled, [prop], config)[0].get(prop)
