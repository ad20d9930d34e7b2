"""How well cheap retrainings stand in for retraining from scratch, coalition by coalition and credit by credit."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite, nan, sqrt

import numpy as np
from numpy.typing import NDArray

from diffcredit.credit.correlations import correlation, jackknifed_size_adjusted
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.statistics.games import game_credits, replicates_of, shared
from diffcredit.validation.statistics.intervals import LEAST_ROWS, correlation_interval, correlation_with_interval
from diffcredit.validation.statistics.monotone import first_reaching
from diffcredit.validation.statistics.records import Estimate, RecipeGame, by_method

UNKNOWN = Estimate(nan)


@dataclass(frozen=True)
class SeedAgreement:
    """Retraining from scratch against itself with another training seed, over ``coalitions`` that have two: the
    correlations that the noise of one training leaves."""

    coalitions: int
    pearson: Estimate
    spearman: Estimate
    size_adjusted: Estimate


@dataclass(frozen=True)
class CreditAgreement:
    """Credits β of one recipe against credits β* of retraining, each from all evaluations: correlations, the
    ``distance`` ‖β − β*‖₂, and the ``bound`` 2√n·C on it, C the largest observed gap, endpoints included.

    The bound holds for exact Shapley values, with C over all 2ⁿ coalitions. From a sample it is only a yardstick.
    """

    pearson: float
    spearman: float
    distance: float
    bound: float


@dataclass(frozen=True, eq=False)
class RecipeFidelity:
    """One recipe against retraining over k shared coalitions: ``values`` (k,) against ``retrained`` (k,).

    ``mean_gap`` and ``largest_gap`` are of |F − F_retrained|. ``attainable`` is the size-adjusted correlation that F
    without the noise of retraining would reach with ``retrained`` (NaN: unknown without replicates). ``note`` says why
    numbers are missing.
    """

    recipe: str
    method: str
    steps: int | None
    values: FloatArray
    retrained: FloatArray
    pearson: Estimate = UNKNOWN
    spearman: Estimate = UNKNOWN
    size_adjusted: Estimate = UNKNOWN
    mean_gap: float = nan
    largest_gap: float = nan
    attainable: float = nan
    credits: CreditAgreement | None = None
    note: str = ""

    @property
    def freed_of_noise(self) -> float:
        """The size-adjusted correlation with retraining averaged over endlessly many seeds, where replicates show how
        noisy retraining is; otherwise the plain correlation. The recipe's own noise is not removed."""
        value = self.size_adjusted.value
        return min(value / self.attainable, 1.0) if isfinite(self.attainable) else value


@dataclass(frozen=True)
class FidelityResult:
    """``recipes`` against the retraining ``truth``, by method and steps."""

    truth: str
    recipes: tuple[RecipeFidelity, ...]
    ceiling: SeedAgreement | None

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.method for row in self.recipes))

    def of(self, method: str) -> tuple[RecipeFidelity, ...]:
        """The recipes of a method, fewest steps first."""
        return tuple(row for row in self.recipes if row.method == method)

    def lottery_gap(self, method: str) -> float:
        """B: the largest |F − F_retrained| at the method's longest training, the limit that gaps of longer trainings
        should approach. NaN where it was not evaluated."""
        return self.of(method)[-1].largest_gap


@dataclass(frozen=True)
class Recommendation:
    """The fewest ``steps`` of a method that are expected to reach the ``wanted`` correlation (None: no evaluated number
    does). ``evaluated`` is the range of steps behind it (None: no correlation is known), ``highest`` their highest
    correlation."""

    method: str
    wanted: float
    steps: int | None
    evaluated: tuple[float, float] | None = None
    highest: float = nan

    @property
    def at_the_fewest(self) -> bool:
        """Whether fewer steps than were evaluated might do."""
        return self.steps is not None and self.evaluated is not None and self.steps == ceil(self.evaluated[0])


def compare_with_retraining(
    games: Sequence[RecipeGame], truth: RecipeGame, estimator: str = "shapley"
) -> FidelityResult:
    """Compare each game, except the truth's own, with ``truth``, which was retrained from scratch.

    A recipe that shares fewer than 10 coalitions with the truth, or whose credits cannot be estimated, keeps its row,
    with a note. Raises UserError without a game to compare, or when the truth has fewer than 10 coalitions.
    """
    others = [game for game in games if game.recipe != truth.recipe]
    if not others:
        raise UserError(f"fidelity: no recipe beside {truth.recipe!r}; at least one is needed")
    known = replicates_of(truth)
    if len(known.values) < LEAST_ROWS:
        raise UserError(
            f"fidelity: {truth.recipe!r} has {len(known.values)} coalitions; at least {LEAST_ROWS} are needed"
        )
    n = truth.coalitions.shape[1]
    for game in others:
        if game.coalitions.shape[1] != n:
            raise UserError(f"fidelity: {game.recipe!r} has {game.coalitions.shape[1]} contributors; expected {n}")
    ceiling = _ceiling(truth)
    credits = _credits(truth, estimator)
    rows = tuple(_row(game, truth, estimator, credits, ceiling) for game in by_method(others))
    return FidelityResult(truth.recipe, rows, ceiling)


def recommended_steps(result: FidelityResult, method: str, wanted: float) -> Recommendation:
    """Find the fewest steps at which the size-adjusted correlation, freed of retraining's noise, is expected to reach
    ``wanted``: where the non-decreasing least-squares fit over the evaluated steps, joined by straight lines, does."""
    if not 0 < wanted <= 1:
        raise UserError(f"wanted correlation: {wanted}; a number above 0 and at most 1 is accepted")
    rows = [row for row in result.of(method) if row.steps is not None and isfinite(row.freed_of_noise)]
    if not rows:
        return Recommendation(method, wanted, None)
    steps, reached = [float(row.steps or 0) for row in rows], [row.freed_of_noise for row in rows]
    found = first_reaching(steps, reached, wanted)
    fewest = None if found is None else ceil(found - 1e-9)
    return Recommendation(method, wanted, fewest, (min(steps), max(steps)), max(reached))


def _ceiling(truth: RecipeGame) -> SeedAgreement | None:
    known = replicates_of(truth)
    rows = [row for row, values in enumerate(known.values) if len(values) > 1]
    if len(rows) < LEAST_ROWS:
        return None
    one, other = (np.array([known.values[row][k] for row in rows]) for k in (0, 1))
    coalitions = known.coalitions[rows]
    return SeedAgreement(len(rows), **_correlations(one, other, coalitions.sum(axis=1), coalitions.shape[1]))


def _correlations(a: FloatArray, b: FloatArray, sizes: NDArray[np.intp], n: int) -> dict[str, Estimate]:
    """Return the correlations by their names in `SeedAgreement` and `RecipeFidelity`."""
    return {
        "pearson": correlation_with_interval(a, b, "pearson"),
        "spearman": correlation_with_interval(a, b, "spearman"),
        "size_adjusted": correlation_interval(jackknifed_size_adjusted(a, b, sizes, n), 0.95),
    }


def _row(
    game: RecipeGame, truth: RecipeGame, estimator: str, truth_credits: FloatArray | str, ceiling: SeedAgreement | None
) -> RecipeFidelity:
    both = shared(game, truth)
    about = (game.recipe, game.method, game.steps, both.first, both.second)
    if len(both.first) < LEAST_ROWS:
        note = f"shares {len(both.first)} coalitions with {truth.recipe}; at least {LEAST_ROWS} are needed"
        return RecipeFidelity(*about, note=note)
    gaps = np.abs(both.first - both.second)
    credits = truth_credits if isinstance(truth_credits, str) else _credits(game, estimator)
    agreement = None
    if not isinstance(credits, str) and not isinstance(truth_credits, str):
        agreement = _agreement(credits, truth_credits, _largest_gap(game, truth, gaps))
    constant = [
        which for which, values in ((game.recipe, both.first), (truth.recipe, both.second)) if not np.ptp(values)
    ]
    notes = [f"the property is constant over the coalitions of {which}" for which in constant]
    return RecipeFidelity(
        *about,
        **_correlations(both.first, both.second, both.sizes, both.coalitions.shape[1]),
        mean_gap=float(gaps.mean()),
        largest_gap=float(gaps.max()),
        attainable=_attainable(ceiling, both.second_replicates),
        credits=agreement,
        note="; ".join(notes + ([f"no credits: {credits}"] if isinstance(credits, str) else [])),
    )


def _attainable(ceiling: SeedAgreement | None, replicates: NDArray[np.intp]) -> float:
    """√(V/(V + σ²·mean(1/R))), where V/(V + σ²) is the correlation of two replicates and R how many were averaged."""
    if ceiling is None or not ceiling.size_adjusted.value > 0:
        return nan
    return 1 / sqrt(1 + float((1 / replicates).mean()) * (1 / ceiling.size_adjusted.value - 1))


def _credits(game: RecipeGame, estimator: str) -> FloatArray | str:
    """Return credits (n,), or the reason why there are none."""
    try:
        return game_credits(game, estimator)
    except UserError as error:
        return f"{game.recipe}: {error}"


def _largest_gap(game: RecipeGame, truth: RecipeGame, gaps: FloatArray) -> float:
    ends = [abs(np.mean(a) - np.mean(b)) for a, b in ((game.empty, truth.empty), (game.full, truth.full))]
    return float(max(gaps.max(), *ends))


def _agreement(credits: FloatArray, truth: FloatArray, largest_gap: float) -> CreditAgreement:
    return CreditAgreement(
        correlation(credits, truth, "pearson"),
        correlation(credits, truth, "spearman"),
        float(np.linalg.norm(credits - truth)),
        2 * sqrt(len(credits)) * largest_gap,
    )
