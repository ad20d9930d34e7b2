"""How well cheap retrainings stand in for retraining from scratch, coalition by coalition and credit by credit."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite, nan, sqrt

import numpy as np
from numpy.typing import NDArray

from diffcredit.credit.correlations import correlation, jackknifed_size_adjusted
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray, FloatArray
from diffcredit.validation.statistics.convergence import first_reaching
from diffcredit.validation.statistics.intervals import LEAST_ROWS, correlation_interval, correlation_with_interval
from diffcredit.validation.statistics.records import Estimate, RecipeGame, by_method, game_credits

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
    ``distance`` ‖β − β*‖₂, and the ``bound`` 2√n·C on it, C the largest observed gap, endpoints included. The bound
    holds for exact Shapley values, with C over all 2ⁿ coalitions; from a sample it is only a yardstick."""

    pearson: float
    spearman: float
    distance: float
    bound: float


@dataclass(frozen=True, eq=False)
class RecipeFidelity:
    """One recipe's ``values`` (k,) against ``retrained`` (k,) over shared coalitions. Gaps are of |F − F_retrained|,
    ``attainable`` is the size-adjusted correlation of F without retraining's noise (NaN: no replicates), ``note`` says
    why numbers are missing."""

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
        """The size-adjusted correlation with retraining averaged over very many seeds, estimated where replicates show
        how noisy retraining is; otherwise the plain correlation. The recipe's own noise is not removed."""
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
        """B: the largest |F − F_retrained| at the method's longest training, which gaps should approach."""
        return self.of(method)[-1].largest_gap


def compare_with_retraining(
    games: Sequence[RecipeGame], truth: RecipeGame, estimator: str = "shapley"
) -> FidelityResult:
    """Compare each game, except the truth's own, with ``truth``, which was retrained from scratch. A recipe that shares
    fewer than 10 coalitions with it, or whose credits cannot be estimated, keeps its row, with a note. Raises UserError
    without a game to compare, or when the truth has fewer than 10 coalitions."""
    others = [game for game in games if game.recipe != truth.recipe]
    if not others:
        raise UserError(f"fidelity: no recipe beside {truth.recipe!r}; at least one is needed")
    coalitions, replicates = replicates_of(truth)
    if len(replicates) < LEAST_ROWS:
        raise UserError(
            f"fidelity: {truth.recipe!r} has {len(replicates)} coalitions; at least {LEAST_ROWS} are needed"
        )
    twice = [row for row, values in enumerate(replicates) if len(values) > 1]
    ceiling = None
    if len(twice) >= LEAST_ROWS:
        one, other = (np.array([replicates[row][k] for row in twice]) for k in (0, 1))
        ceiling = SeedAgreement(len(twice), **_correlations(one, other, coalitions[twice]))
    credits = _credits(truth, estimator)
    rows = tuple(_row(game, truth, estimator, credits, ceiling) for game in by_method(others))
    return FidelityResult(truth.recipe, rows, ceiling)


def recommended_steps(result: FidelityResult, method: str, wanted: float) -> tuple[int | None, str]:
    """Return the fewest steps at which the size-adjusted correlation, freed of retraining's noise, is expected to reach
    ``wanted`` (None: no evaluated number does), and a sentence that says so. That is where the non-decreasing
    least-squares fit over the evaluated steps, joined by straight lines, reaches it."""
    known = [row for row in result.of(method) if row.steps is not None and isfinite(row.freed_of_noise)]
    if not known:
        return None, f"{method}: no number of steps has a known correlation with retraining."
    evaluated, reached = [float(row.steps or 0) for row in known], [row.freed_of_noise for row in known]
    found = first_reaching(evaluated, reached, wanted)
    if found is None:
        highest = f"{max(reached):z.2f}".replace("-", "−")
        none = f"{method}: none of up to {max(evaluated):.0f} steps reaches a correlation of {wanted:g}"
        return None, f"{none}; the highest is {highest}."
    steps = ceil(found - 1e-9)
    fewest = ", the fewest evaluated" if steps == ceil(min(evaluated)) else ""
    return steps, f"{method}: {steps} steps are expected to reach a correlation of {wanted:g}{fewest}."


def _correlations(a: FloatArray, b: FloatArray, coalitions: BoolArray) -> dict[str, Estimate]:
    """Return the correlations by their names in `SeedAgreement` and `RecipeFidelity`."""
    adjusted = jackknifed_size_adjusted(a, b, coalitions.sum(axis=1), coalitions.shape[1])
    return {
        "pearson": correlation_with_interval(a, b, "pearson"),
        "spearman": correlation_with_interval(a, b, "spearman"),
        "size_adjusted": correlation_interval(adjusted),
    }


def replicates_of(game: RecipeGame) -> tuple[BoolArray, list[FloatArray]]:
    """Return the distinct coalitions (k, n), neither empty nor full, in order, and the values of each in order."""
    sizes = game.coalitions.sum(axis=1)
    inner = np.flatnonzero((sizes > 0) & (sizes < game.coalitions.shape[1]))
    rows: dict[bytes, list[int]] = {}
    for row in inner:
        rows.setdefault(game.coalitions[row].tobytes(), []).append(int(row))
    first = [members[0] for members in rows.values()]
    return game.coalitions[first], [game.values[members] for members in rows.values()]


def shared(first: RecipeGame, second: RecipeGame) -> tuple[BoolArray, FloatArray, FloatArray, NDArray[np.intp]]:
    """Return the coalitions (k, n) that two games share, in the first game's order, the mean values (k,) of each game,
    and the number (k,) of replicates behind the second game's."""
    (coalitions, ours), (others, theirs) = replicates_of(first), replicates_of(second)
    values = {coalition.tobytes(): each for coalition, each in zip(others, theirs, strict=True)}
    rows = [row for row, coalition in enumerate(coalitions) if coalition.tobytes() in values]
    matched = [values[coalitions[row].tobytes()] for row in rows]
    means, others_means = np.array([ours[row].mean() for row in rows]), np.array([each.mean() for each in matched])
    return coalitions[rows], means, others_means, np.array([len(each) for each in matched], dtype=np.intp)


def _row(
    game: RecipeGame, truth: RecipeGame, estimator: str, truth_credits: FloatArray | str, ceiling: SeedAgreement | None
) -> RecipeFidelity:
    coalitions, values, retrained, replicates = shared(game, truth)
    about = (game.recipe, game.method, game.steps, values, retrained)
    if len(values) < LEAST_ROWS:
        note = f"shares {len(values)} coalitions with {truth.recipe}; at least {LEAST_ROWS} are needed"
        return RecipeFidelity(*about, note=note)
    gaps = np.abs(values - retrained)
    notes = [
        f"the property is constant over the coalitions of {which}"
        for which, each in ((game.recipe, values), (truth.recipe, retrained))
        if not np.ptp(each)
    ]
    agreement, credits = None, truth_credits if isinstance(truth_credits, str) else _credits(game, estimator)
    if isinstance(credits, str):
        notes.append(f"no credits: {credits}")
    elif not isinstance(truth_credits, str):
        ends = [abs(np.mean(a) - np.mean(b)) for a, b in ((game.empty, truth.empty), (game.full, truth.full))]
        agreement = CreditAgreement(
            correlation(credits, truth_credits, "pearson"),
            correlation(credits, truth_credits, "spearman"),
            float(np.linalg.norm(credits - truth_credits)),
            2 * sqrt(len(credits)) * float(max(gaps.max(), *ends)),
        )
    attainable = nan
    if ceiling is not None and ceiling.size_adjusted.value > 0:
        # √(V/(V + σ²·mean(1/R))), where V/(V + σ²) is the correlation of two replicates and R how many were averaged
        noise = 1 / ceiling.size_adjusted.value - 1
        attainable = 1 / sqrt(1 + float((1 / replicates).mean()) * noise)
    return RecipeFidelity(
        *about,
        **_correlations(values, retrained, coalitions),
        mean_gap=float(gaps.mean()),
        largest_gap=float(gaps.max()),
        attainable=attainable,
        credits=agreement,
        note="; ".join(notes),
    )


def _credits(game: RecipeGame, estimator: str) -> FloatArray | str:
    """Return credits (n,), or the reason why there are none."""
    try:
        return game_credits(game, estimator)
    except UserError as error:
        return f"{game.recipe}: {error}"
