"""Whether F by the study's own recipe is F by retraining: truth's coalitions of half of the contributors, evaluated by
the recipe too. No credits rest on these evaluations."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.cifar20.tables import nearest_half
from benchmarks.markdown import cell, table
from diffcredit.coalitions import encode
from diffcredit.credit.correlations import jackknifed_correlation
from diffcredit.util.arrays import BoolArray, FloatArray
from diffcredit.validation.data import ValidationData
from diffcredit.validation.presentation.sections import worded
from diffcredit.validation.statistics.ceilings import additive_predictions
from diffcredit.validation.statistics.intervals import correlation_with_interval, jackknife_interval

CONFIDENCE = 0.95
FAR = 3.0
"""Standard errors by which one of some twenty contributors' effects is seldom off by chance."""


@dataclass(frozen=True)
class Seen:
    """One property of the same ``coalitions`` (B, n), more is better: F by the recipe as its ``own`` (B,), and
    ``retrained`` (B,), the mean over seeds."""

    coalitions: BoolArray
    own: FloatArray
    retrained: FloatArray


def seen_twice(contest: ValidationData, prop: str) -> Seen | None:
    """None where not all of truth's coalitions of half of the contributors were evaluated by the study's recipe."""
    truth, sign = nearest_half(contest.truths(prop)), 1 if contest.properties[prop].higher_is_better else -1
    known = {
        each.coalition: sign * value.value
        for each in contest.study.evaluations(status="done", purpose="validation")
        for value in each.values
        if value.property == prop and value.value is not None
    }
    coalitions = [encode(row) for row in truth.coalitions]
    if not known.keys() >= set(coalitions):
        return None
    return Seen(truth.coalitions, np.array([known[each] for each in coalitions]), truth.values.mean(axis=1))


def itself(contest: ValidationData, titles: Mapping[str, str]) -> list[str]:
    """Rank correlations with retraining, over the same coalitions: of F by the recipe; of an additive model of that,
    and of one of retraining, each predicting coalitions that it was not fitted to; of the study's credits, which rest
    on other coalitions and may exceed both of the recipe's. Nothing where these coalitions were not evaluated."""
    fine_tuned, additive, credited = "F by the recipe", "additive model of", "the study's credits"
    rows = [
        [fine_tuned, "retraining"],
        [f"{additive} {fine_tuned}", "retraining"],
        [f"{additive} retraining", "retraining"],
        ["the latter two's difference", ""],
        [credited, "retraining"],
        [credited, fine_tuned],
    ]
    for prop in titles:
        seen = seen_twice(contest, prop)
        if seen is None:
            return []
        own, retrained = seen.own, seen.retrained
        credits = seen.coalitions @ contest.contenders(prop)[0].credits
        by_own, by_retrained = (additive_predictions(seen.coalitions, each) for each in (own, retrained))
        lost = jackknifed_correlation(by_retrained, retrained, "spearman") - jackknifed_correlation(
            by_own, retrained, "spearman"
        )
        pairs = [(own, retrained), (by_own, retrained), (by_retrained, retrained), (credits, retrained), (credits, own)]
        estimates = [correlation_with_interval(one, other, "spearman", CONFIDENCE) for one, other in pairs]
        estimates.insert(3, jackknife_interval(lost, CONFIDENCE))
        for cells, estimate in zip(rows, estimates, strict=True):
            cells.append(cell(estimate))
    return table(["", "against", *titles.values()], rows)


def misjudged(contest: ValidationData, titles: Mapping[str, str], called: Mapping[str, str]) -> list[str]:
    """A row a contributor, in the order of what they are ``called``; a column a property: by how many standard errors
    the recipe thinks more of them than retraining does, in bold where far. Nothing where there is nothing to see."""
    names, columns = contest.study.contributions.contributors, {}
    for prop in titles:
        seen = seen_twice(contest, prop)
        if seen is None:
            return []
        columns[prop] = dict(zip(names, overrated(seen), strict=True))
    order = [name for name in called if name in names] + [name for name in names if name not in called]
    rows = [[called.get(name, name), *(_marked(column[name]) for column in columns.values())] for name in order]
    return table(["labeler of", *titles.values()], rows)


def overrated(seen: Seen) -> FloatArray:
    """(n,): each contributor's effect by the recipe less that by retraining, in standard errors. Effects (β − β̄) are
    least squares' of F = c + Σ β_i z_i, those of the recipe brought to the spread of retraining's: fine-tuned models
    differ less, which changes no order."""
    z = seen.coalitions - seen.coalitions.mean(axis=0)
    inverse = np.linalg.pinv(z.T @ z)

    def effects(values: FloatArray) -> tuple[FloatArray, FloatArray]:
        found = inverse @ z.T @ (values - values.mean())
        left = values - values.mean() - z @ found
        free = len(values) - 1 - np.linalg.matrix_rank(z)
        return found - found.mean(), np.sqrt(left @ left / free * np.diag(inverse))

    own, own_error = effects(seen.own)
    retrained, error = effects(seen.retrained)
    scale = retrained.std() / own.std()
    return (scale * own - retrained) / np.hypot(scale * own_error, error)


def _marked(errors: float) -> str:
    text = worded(errors, "+.1f")
    return f"**{text}**" if abs(errors) > FAR else text
