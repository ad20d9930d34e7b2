"""How fast credits converge as evaluations are added."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import nan

import numpy as np
from scipy.optimize import isotonic_regression

from diffcredit.credit.correlations import correlation
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.statistics.datamodeling import lds, linear_datamodeling_score
from diffcredit.validation.statistics.records import Estimate, RecipeGame, Truth, game_credits

ESTIMATORS = ("shapley", "kernelshap", "unshrunk", "banzhaf")
POINTS = 10
MOST_STRETCHES = 5


@dataclass(frozen=True)
class PrefixScore:
    """The quality of credits by ``estimator`` from the first ``evaluations`` of a recipe's design.

    ``lds`` is by share, with its interval over truth coalitions. ``stretches`` has, by share, the mean, lowest and
    highest LDS over up to 5 disjoint stretches of the design that are as long (NaN: there is only one). ``with_final``
    and ``with_retrained`` are Pearson's correlations with credits from all of the recipe's evaluations, and with those
    from models retrained from scratch (NaN: there are none).
    """

    recipe: str
    estimator: str
    evaluations: int
    lds: Mapping[float, Estimate]
    stretches: Mapping[float, Estimate]
    with_final: float
    with_retrained: float


@dataclass(frozen=True)
class LeftOut:
    """A curve, or its part at ``evaluations`` (empty: all), that could not be scored; the last reason is kept."""

    what: str
    evaluations: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class ConvergenceResult:
    """``scores`` by recipe, estimator and number of evaluations. The LDS is known at ``shares``."""

    shares: tuple[float, ...]
    scores: tuple[PrefixScore, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def middle(self) -> float | None:
        """The share nearest to ½."""
        return min(self.shares, key=lambda share: abs(share - 0.5), default=None)

    @property
    def curves(self) -> dict[tuple[str, str], list[PrefixScore]]:
        """The scores by recipe and estimator, fewest evaluations first."""
        found: dict[tuple[str, str], list[PrefixScore]] = {}
        for each in self.scores:
            found.setdefault((each.recipe, each.estimator), []).append(each)
        return found


def convergence_curves(
    games: Sequence[RecipeGame],
    truths: Sequence[Truth],
    retrained: RecipeGame | None = None,
    estimators: Sequence[str] = ESTIMATORS,
) -> ConvergenceResult:
    """Score each game and estimator at about 10 numbers of evaluations from n/2 to all, evenly on a logarithmic scale.
    The game ``retrained`` from scratch, if given, has the credits to compare with; to have a curve of its own it must
    be among the games too. Evaluations that an estimator refuses are left out with its reason. Raises UserError without
    any game."""
    if not games:
        raise UserError("convergence: no recipe has evaluations; at least one is needed")
    scores: list[PrefixScore] = []
    left_out: list[LeftOut] = []
    for estimator in estimators:
        reference = None
        if retrained is not None:
            try:
                reference = game_credits(retrained, estimator)
            except UserError as error:
                left_out.append(LeftOut(f"correlation with {retrained.recipe}, {estimator}", (), str(error)))
        for game in games:
            found, refused = _curve(game, estimator, truths, reference)
            scores += found
            left_out += refused
    return ConvergenceResult(tuple(truth.share for truth in truths), tuple(scores), tuple(left_out))


def prefix_counts(n: int, evaluations: int) -> tuple[int, ...]:
    """Return about 10 counts from n/2 (or ``evaluations``, if fewer) to ``evaluations``, evenly on a log scale."""
    least = min(max(n // 2, 1), evaluations)
    return tuple(int(count) for count in np.unique(np.geomspace(least, evaluations, POINTS).round().astype(np.intp)))


def first_reaching(x: Sequence[float], y: Sequence[float], wanted: float) -> float | None:
    """Return the least x at which the non-decreasing least-squares fit of y, joined by straight lines, is ``wanted``:
    None where the fit stays below, the least x where it starts above. Points that are not finite are left out, and
    points with the same x are averaged. A concave curve lies above the lines, so the answer errs towards a larger x."""
    points = [(a, b) for a, b in zip(x, y, strict=True) if np.isfinite(a) and np.isfinite(b)]
    if not points:
        return None
    places, which, counts = np.unique([a for a, _ in points], return_inverse=True, return_counts=True)
    means = np.bincount(which, [b for _, b in points]) / counts
    level = isotonic_regression(means, weights=counts).x
    reached = np.flatnonzero(level >= wanted - 1e-12)
    if not len(reached):
        return None
    i = int(reached[0])
    if i == 0:
        return float(places[0])
    part = (wanted - level[i - 1]) / (level[i] - level[i - 1])
    return float(places[i - 1] + part * (places[i] - places[i - 1]))


def _curve(
    game: RecipeGame, estimator: str, truths: Sequence[Truth], retrained: FloatArray | None
) -> tuple[list[PrefixScore], list[LeftOut]]:
    what = f"{game.recipe}, {estimator}"
    try:
        final = game_credits(game, estimator)
    except UserError as error:
        return [], [LeftOut(what, (), str(error))]
    scores, refused = [], {}
    for count in prefix_counts(game.coalitions.shape[1], len(game.values)):
        try:
            scores.append(_prefix_score(game, estimator, count, truths, final, retrained))
        except UserError as error:
            refused[count] = str(error)
    return scores, [LeftOut(what, tuple(refused), refused[max(refused)])] if refused else []


def _prefix_score(
    game: RecipeGame,
    estimator: str,
    evaluations: int,
    truths: Sequence[Truth],
    final: FloatArray,
    retrained: FloatArray | None,
) -> PrefixScore:
    """Score the credits of the first ``evaluations``; ``final`` and ``retrained`` (n,) are credits to compare with."""
    credits = game_credits(game, estimator, slice(evaluations))
    stretches = [credits]
    for start in range(evaluations, min(len(game.values) // evaluations, MOST_STRETCHES) * evaluations, evaluations):
        with suppress(UserError):
            stretches.append(game_credits(game, estimator, slice(start, start + evaluations)))
    return PrefixScore(
        game.recipe,
        estimator,
        evaluations,
        lds={truth.share: lds(credits, truth.coalitions, truth.values) for truth in truths},
        stretches={
            truth.share: _range([linear_datamodeling_score(each, truth.coalitions, truth.values) for each in stretches])
            for truth in truths
        },
        with_final=correlation(credits, final, "pearson"),
        with_retrained=nan if retrained is None else correlation(credits, retrained, "pearson"),
    )


def _range(values: list[float]) -> Estimate:
    known = [value for value in values if np.isfinite(value)]
    if not known:
        return Estimate(nan)
    spread = len(known) > 1
    return Estimate(float(np.mean(known)), min(known) if spread else nan, max(known) if spread else nan)
