"""How well cheap retrainings stand in for retraining from scratch, coalition by coalition and credit by credit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite, nan, sqrt

import numpy as np
from numpy.typing import NDArray

from diffcredit.credit.correlations import correlation, jackknifed_size_adjusted
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.crediting import credits_of
from diffcredit.validation.figures import Series, curves, scatter
from diffcredit.validation.matching import replicates_of, shared
from diffcredit.validation.monotone import first_reaching
from diffcredit.validation.records import Estimate, RecipeGame, by_method
from diffcredit.validation.sections import Cell, Figure, Section, Table
from diffcredit.validation.statistics import LEAST_ROWS, correlation_interval, correlation_with_interval
from diffcredit.validation.wording import in_words, worded

WANTED = 0.9
"""The correlation that the section's recommended steps are for."""

UNKNOWN = Estimate(nan)


@dataclass(frozen=True)
class Ceiling:
    """Retraining from scratch against itself with another training seed, over ``coalitions`` that have two: what
    one training's noise leaves of the correlations."""

    coalitions: int
    pearson: Estimate
    spearman: Estimate
    size_adjusted: Estimate


@dataclass(frozen=True)
class CreditAgreement:
    """Credits β of one recipe against those β* of retraining, each from all its evaluations: correlations, the
    ``distance`` ‖β − β*‖₂, and the ``bound`` 2√n·C on it, C the largest gap that was seen, endpoints included.

    The bound is one of exact Shapley values, with C over all 2ⁿ coalitions; from a sample of them it is a yardstick.
    """

    pearson: float
    spearman: float
    distance: float
    bound: float


@dataclass(frozen=True, eq=False)
class RecipeFidelity:
    """One recipe against retraining over k shared coalitions: ``values`` (k,) against ``retrained`` (k,).

    ``mean_gap`` and ``largest_gap`` are of |F − F_retrained|. ``attainable`` is the size-adjusted correlation that F
    without the noise of retraining would reach with ``retrained`` (NaN: no replicates tell). ``note`` says why
    numbers are lacking.
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
        """The size-adjusted correlation with what retraining would give on average over its seeds, where replicates
        tell how noisy it is; else the correlation as it is. The recipe's own noise stays in: it is the recipe's."""
        value = self.size_adjusted.value
        return min(value / self.attainable, 1.0) if isfinite(self.attainable) else value


@dataclass(frozen=True)
class Fidelity:
    """``recipes`` against the retraining ``truth``, by method and steps; credits by ``estimator``."""

    truth: str
    estimator: str
    recipes: tuple[RecipeFidelity, ...]
    ceiling: Ceiling | None

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.method for row in self.recipes))

    def of(self, method: str) -> tuple[RecipeFidelity, ...]:
        """The recipes of a method, fewest steps first."""
        return tuple(row for row in self.recipes if row.method == method)

    def lottery_gap(self, method: str) -> float:
        """B: the largest |F − F_retrained| at the method's longest training, towards which the gap of any training
        is to fall. NaN where it was not evaluated."""
        return self.of(method)[-1].largest_gap


@dataclass(frozen=True)
class Recommendation:
    """The fewest ``steps`` of a method that are expected to reach the ``wanted`` correlation (None: none of those
    evaluated do), and the same in words."""

    method: str
    wanted: float
    steps: int | None
    sentence: str


def fidelity(games: Sequence[RecipeGame], truth: RecipeGame, estimator: str = "shapley") -> Fidelity:
    """Each game but the truth's own against ``truth``, which was retrained from scratch.

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
    return Fidelity(truth.recipe, estimator, rows, ceiling)


def recommended_steps(result: Fidelity, method: str, wanted: float) -> Recommendation:
    """The fewest steps at which the size-adjusted correlation, freed of retraining's noise, is expected to reach
    ``wanted``: where the non-decreasing least-squares fit over the evaluated steps, joined by straight lines, does."""
    if not 0 < wanted <= 1:
        raise UserError(f"wanted correlation: {wanted}; a number above 0 and at most 1 is accepted")
    rows = [row for row in result.of(method) if row.steps is not None and isfinite(row.freed_of_noise)]
    if not rows:
        sentence = f"{method}: no number of steps has a known correlation with retraining."
        return Recommendation(method, wanted, None, sentence)
    steps, reached = [float(row.steps or 0) for row in rows], [row.freed_of_noise for row in rows]
    found = first_reaching(steps, reached, wanted)
    if found is None:
        sentence = (
            f"{method}: none of up to {max(steps):.0f} steps reaches a correlation of {wanted:g}; the highest is "
            f"{worded(max(reached))}."
        )
        return Recommendation(method, wanted, None, sentence)
    fewest = ceil(found - 1e-9)
    least = ", the fewest evaluated" if found == min(steps) else ""
    return Recommendation(
        method, wanted, fewest, f"{method}: {fewest} steps are expected to reach a correlation of {wanted:g}{least}."
    )


def _ceiling(truth: RecipeGame) -> Ceiling | None:
    known = replicates_of(truth)
    rows = [row for row, values in enumerate(known.values) if len(values) > 1]
    if len(rows) < LEAST_ROWS:
        return None
    one, other = (np.array([known.values[row][k] for row in rows]) for k in (0, 1))
    coalitions = known.coalitions[rows]
    return Ceiling(len(rows), **_correlations(one, other, coalitions.sum(axis=1), coalitions.shape[1]))


def _correlations(a: FloatArray, b: FloatArray, sizes: NDArray[np.intp], n: int) -> dict[str, Estimate]:
    """By their names in `Ceiling` and `RecipeFidelity`."""
    return {
        "pearson": correlation_with_interval(a, b, "pearson"),
        "spearman": correlation_with_interval(a, b, "spearman"),
        "size_adjusted": correlation_interval(jackknifed_size_adjusted(a, b, sizes, n), 0.95),
    }


def _row(
    game: RecipeGame, truth: RecipeGame, estimator: str, truth_credits: FloatArray | str, ceiling: Ceiling | None
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


def _attainable(ceiling: Ceiling | None, replicates: NDArray[np.intp]) -> float:
    """√(V/(V + σ²·mean(1/R))), where V/(V + σ²) is the correlation of two replicates and R how many were averaged."""
    if ceiling is None or not ceiling.size_adjusted.value > 0:
        return nan
    return 1 / sqrt(1 + float((1 / replicates).mean()) * (1 / ceiling.size_adjusted.value - 1))


def _credits(game: RecipeGame, estimator: str) -> FloatArray | str:
    """(n,), or why there are none."""
    try:
        return credits_of(game, estimator)
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


def fidelity_section(results: Mapping[str, Fidelity]) -> Section:
    """``results`` by the title of the property."""
    figures = [_scatter(results)]
    if any(len({row.steps for row in result.of(m)}) > 1 for result in results.values() for m in result.methods):
        figures.append(_curves(results))
    return Section(
        "fidelity",
        "Fidelity: do cheap retrainings stand in for retraining?",
        tuple(sentence for title, result in results.items() for sentence in _summary(title, result)),
        (_value_table(results), _gap_table(results), _steps_table(results)),
        tuple(figures),
        caveats=(
            "Intervals are over coalitions, for this base model and these initial noises.",
            "The paper's bounds are of exact values over all coalitions; here the largest gap and the credits come "
            "from the coalitions that were evaluated, with the noise of training in both.",
        ),
    )


def _summary(title: str, result: Fidelity) -> list[str]:
    sentences = []
    told = [row for row in result.recipes if isfinite(row.size_adjusted.value)]
    if told:
        best = max(told, key=lambda row: row.size_adjusted.value)
        sentences.append(
            f"{title}: of coalitions of one size, {best.recipe} follows retraining best, with a correlation of "
            f"{in_words(best.size_adjusted)} over {len(best.values)} coalitions."
        )
    else:
        sentences.append(f"{title}: no recipe's values correlate with retraining's, or they cannot be compared.")
    if result.ceiling is not None:
        sentences.append(
            f"{title}: retraining follows itself with another seed with {in_words(result.ceiling.size_adjusted)}, over "
            f"{result.ceiling.coalitions} coalitions."
        )
    sentences += [f"{title}: {row.recipe}: {row.note}." for row in result.recipes if row.note]
    return sentences


def _value_table(results: Mapping[str, Fidelity]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for title, result in results.items():
        rows += [
            (
                *(title, row.recipe, row.method, row.steps, len(row.values)),
                *(row.pearson, row.spearman, row.size_adjusted),
                row.freed_of_noise if isfinite(row.attainable) else None,
                *((row.credits.pearson, row.credits.spearman) if row.credits else (None, None)),
            )
            for row in result.recipes
        ]
        if result.ceiling is not None:
            c = result.ceiling
            label = f"{result.truth}, another seed"
            about = (title, label, None, None, c.coalitions)
            rows.append((*about, c.pearson, c.spearman, c.size_adjusted, None, None, None))
    return Table(
        "correlations",
        "Correlation with retraining",
        (
            *("property", "recipe", "method", "steps", "coalitions"),
            *("Pearson", "Spearman", "size-adjusted", "freed of retraining's noise"),
            *("Pearson of credits", "Spearman of credits"),
        ),
        tuple(rows),
    )


def _gap_table(results: Mapping[str, Fidelity]) -> Table:
    return Table(
        "gaps",
        "Gap to retraining, beside the paper's bounds",
        (
            *("property", "recipe", "steps", "mean gap", "largest gap", "B: largest gap at the longest training"),
            *("distance of credits", "bound 2√n·C"),
        ),
        tuple(
            (title, row.recipe, row.steps, row.mean_gap, row.largest_gap, result.lottery_gap(row.method))
            + ((row.credits.distance, row.credits.bound) if row.credits else (None, None))
            for title, result in results.items()
            for row in result.recipes
        ),
        decimals=4,
    )


def _steps_table(results: Mapping[str, Fidelity]) -> Table:
    found = {
        title: [
            recommended_steps(result, method, WANTED)
            for method in result.methods
            if any(row.steps is not None for row in result.of(method))
        ]
        for title, result in results.items()
    }
    return Table(
        "steps",
        f"The fewest steps that are expected to reach a size-adjusted correlation of {WANTED:g}",
        ("property", "method", "steps", "in words"),
        tuple((title, each.method, each.steps, each.sentence) for title, listed in found.items() for each in listed),
    )


def _curves(results: Mapping[str, Fidelity]) -> Figure:
    panels: dict[str, list[Series]] = {}
    for title, result in results.items():
        panels[title] = []
        for method in result.methods:
            rows = [row for row in result.of(method) if row.steps is not None]
            if rows:
                x, y = tuple(float(row.steps or 0) for row in rows), tuple(row.size_adjusted for row in rows)
                panels[title].append(Series(method, x, y))
    return curves(
        "correlation-by-steps",
        "More steps come closer to retraining",
        "Size-adjusted correlation of F with retraining's, with its interval over coalitions, against training steps "
        "of a coalition.",
        panels,
        "training steps",
        "size-adjusted correlation",
    )


def _scatter(results: Mapping[str, Fidelity]) -> Figure:
    return scatter(
        "values-against-retraining",
        "F by each recipe against F retrained",
        "Each point is a coalition: helpfulness after retraining from scratch (across) and by the recipe (up).",
        {
            title: {row.recipe: (row.retrained, row.values) for row in result.recipes}
            for title, result in results.items()
        },
        "F retrained from scratch",
        "F by the recipe",
    )
