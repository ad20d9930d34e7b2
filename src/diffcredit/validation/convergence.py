"""How fast credits settle as evaluations are added."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.crediting import credits_of
from diffcredit.validation.figures import Series, beside, curves
from diffcredit.validation.records import Estimate, RecipeGame, Truth
from diffcredit.validation.scores import Score, score
from diffcredit.validation.sections import Figure, Section, Table
from diffcredit.validation.statistics import LEAST_ROWS
from diffcredit.validation.wording import in_words

ESTIMATORS = ("shapley", "kernelshap", "unshrunk", "banzhaf")
POINTS = 10
SETTLED = 0.05
"""An LDS that differs by less from the last one has settled."""


@dataclass(frozen=True)
class LeftOut:
    """What could not be scored, at how many ``evaluations`` (none named: at any), and why; of several reasons that of
    the most evaluations."""

    what: str
    evaluations: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Convergence:
    """``scores`` by recipe, estimator and number of evaluations; the LDS is known at ``shares``. ``retrained`` is the
    recipe of retraining whose credits were compared with (None: none)."""

    shares: tuple[float, ...]
    retrained: str | None
    scores: tuple[Score, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def middle(self) -> float | None:
        """The share nearest to ½, the one to show where there is room for one."""
        return min(self.shares, key=lambda share: abs(share - 0.5), default=None)

    def of(self, recipe: str, estimator: str) -> tuple[Score, ...]:
        """Fewest evaluations first."""
        return tuple(each for each in self.scores if (each.recipe, each.estimator) == (recipe, estimator))

    @property
    def curves(self) -> tuple[tuple[str, str], ...]:
        """The recipes and estimators that have scores."""
        return tuple(dict.fromkeys((each.recipe, each.estimator) for each in self.scores))


def convergence(
    games: Sequence[RecipeGame],
    truths: Sequence[Truth],
    retrained: RecipeGame | None = None,
    estimators: Sequence[str] = ESTIMATORS,
) -> Convergence:
    """Scores of each game and estimator at about 10 counts of evaluations from n/2 to all, evenly on a logarithmic
    scale. ``retrained`` is the game of retraining from scratch, if its credits are to be compared with; to see its own
    curve, give it among the games as well.

    What an estimator refuses, and a share with fewer than 10 truth coalitions, is left out with its reason. Raises
    UserError when there is no game at all.
    """
    if not games:
        raise UserError("convergence: no recipe has evaluations; at least one is needed")
    usable = [truth for truth in truths if len(truth.coalitions) >= LEAST_ROWS]
    left_out = [
        LeftOut(
            f"LDS at share {truth.share:g}",
            (),
            f"{len(truth.coalitions)} truth coalitions; at least {LEAST_ROWS} are needed",
        )
        for truth in truths
        if len(truth.coalitions) < LEAST_ROWS
    ]
    scores: list[Score] = []
    for estimator in estimators:
        reference = None
        if retrained is not None:
            try:
                reference = credits_of(retrained, estimator)
            except UserError as error:
                left_out.append(LeftOut(f"correlation with {retrained.recipe}, {estimator}", (), str(error)))
        for game in games:
            found, refused = _curve(game, estimator, usable, reference)
            scores += found
            left_out += refused
    return Convergence(
        tuple(truth.share for truth in usable),
        None if retrained is None else retrained.recipe,
        tuple(scores),
        tuple(left_out),
    )


def counts_of(n: int, evaluations: int) -> tuple[int, ...]:
    """About 10 counts from n/2 (or ``evaluations``, if fewer) to ``evaluations``, evenly on a logarithmic scale."""
    least = min(max(n // 2, 1), evaluations)
    return tuple(int(count) for count in np.unique(np.geomspace(least, evaluations, POINTS).round().astype(np.intp)))


def _curve(
    game: RecipeGame, estimator: str, truths: Sequence[Truth], retrained: FloatArray | None
) -> tuple[list[Score], list[LeftOut]]:
    """The scores at all counts that the estimator accepts, and what it refused."""
    what = f"{game.recipe}, {estimator}"
    try:
        final = credits_of(game, estimator)
    except UserError as error:
        return [], [LeftOut(what, (), str(error))]
    scores, refused = [], {}
    for count in counts_of(game.coalitions.shape[1], len(game.values)):
        try:
            scores.append(score(game, estimator, count, truths, final, retrained))
        except UserError as error:
            refused[count] = str(error)
    return scores, [LeftOut(what, tuple(refused), refused[max(refused)])] if refused else []


def convergence_section(results: Mapping[str, Convergence]) -> Section:
    """``results`` by the title of the property."""
    figures = []
    if any(
        isfinite(each.lds[share].value) for result in results.values() for each in result.scores for share in each.lds
    ):
        figures.append(_lds_figure(results))
    if any(isfinite(each.with_retrained) for result in results.values() for each in result.scores):
        figures.append(
            _correlation_figure(results, "retrained", "those from retraining", lambda each: each.with_retrained)
        )
    if any(isfinite(each.with_final) for result in results.values() for each in result.scores):
        figures.append(
            _correlation_figure(results, "final", "the same recipe's final ones", lambda each: each.with_final)
        )
    return Section(
        "convergence",
        "Convergence: how many evaluations are enough?",
        tuple(sentence for title, result in results.items() for sentence in _summary(title, result)),
        (_table(results), *([_table_of_left_out(results)] if any(r.left_out for r in results.values()) else ())),
        tuple(figures),
        caveats=(
            "Credits from the first evaluations are part of the final ones: their correlation is 1 at the end "
            "whatever the credits are worth.",
            "Credits from retraining rest on the same coalitions: what an estimator makes of these very coalitions is "
            "in both, and a correlation takes it for agreement. The LDS does not, for its coalitions are others.",
            "An LDS has its interval over truth coalitions; what other evaluations of the same number would give is "
            "shown as the range over disjoint stretches of the design.",
        ),
    )


def _summary(title: str, result: Convergence) -> list[str]:
    if not result.scores:
        return [f"{title}: no estimator accepts the evaluations there are."]
    if result.middle is None:
        return [f"{title}: no truth coalitions, so no LDS."]
    share = result.middle
    ends = [result.of(*curve)[-1] for curve in result.curves]
    told = [each for each in ends if isfinite(each.lds[share].value)]
    if not told:
        return [f"{title}: the LDS is not defined, since retrained values or predictions are all equal."]
    best = max(told, key=lambda each: each.lds[share].value)
    final, settled = best.lds[share], best
    # from the end, so that a lucky start is no settling
    for each in reversed(result.of(best.recipe, best.estimator)):
        if not abs(each.lds[share].value - final.value) <= SETTLED:
            break
        settled = each
    return [
        f"{title}: {best.recipe} with {best.estimator} ends highest, with an LDS of {in_words(final)} from "
        f"{best.evaluations} evaluations (share {share:g}); it stays within {SETTLED:g} of that from "
        f"{settled.evaluations} evaluations on."
    ]


def _table_of_left_out(results: Mapping[str, Convergence]) -> Table:
    return Table(
        "left-out",
        "What could not be scored",
        ("property", "what", "at evaluations", "why"),
        tuple(
            (title, each.what, ", ".join(map(str, each.evaluations)) or "any", each.reason)
            for title, result in results.items()
            for each in result.left_out
        ),
    )


def _table(results: Mapping[str, Convergence]) -> Table:
    shares = sorted({share for result in results.values() for share in result.shares})
    lds = tuple(name for share in shares for name in (f"LDS at {share:g}", f"LDS of stretches at {share:g}"))
    return Table(
        "convergence",
        "Scores against the number of evaluations",
        ("property", "recipe", "estimator", "evaluations", *lds, "Pearson with final", "Pearson with retrained"),
        tuple(
            (
                *(title, each.recipe, each.estimator, each.evaluations),
                *(cell for share in shares for cell in (each.lds.get(share), each.stretches.get(share))),
                *(each.with_final, each.with_retrained),
            )
            for title, result in results.items()
            for each in result.scores
        ),
    )


def _panels(
    results: Mapping[str, Convergence], shown: Callable[[Convergence, Score], Estimate]
) -> dict[str, list[Series]]:
    """A panel for each property and estimator, a line for each recipe."""
    panels: dict[str, list[Series]] = {}
    for title, result in results.items():
        for recipe, estimator in result.curves:
            scores = result.of(recipe, estimator)
            x = tuple(float(each.evaluations) for each in scores)
            series = Series(recipe, x, tuple(shown(result, each) for each in scores))
            panels.setdefault(f"{title}: {estimator}", []).append(series)
    return panels or {title: [] for title in results}


def _estimators(results: Mapping[str, Convergence]) -> int:
    """Panels in a line: a property's."""
    return beside(len({estimator for result in results.values() for _, estimator in result.curves}))


def _lds_figure(results: Mapping[str, Convergence]) -> Figure:
    def shown(result: Convergence, each: Score) -> Estimate:
        if result.middle is None:
            return Estimate(float("nan"))
        stretches = each.stretches[result.middle]
        return Estimate(each.lds[result.middle].value, stretches.low, stretches.high)

    return curves(
        "lds-by-evaluations",
        "LDS against the number of evaluations",
        "LDS of credits from the first evaluations, at the share nearest to ½; bars: the lowest and the highest over "
        "disjoint stretches of as many evaluations.",
        _panels(results, shown),
        "evaluations",
        "LDS",
        log_x=True,
        per_line=_estimators(results),
    )


def _correlation_figure(
    results: Mapping[str, Convergence], name: str, others: str, value: Callable[[Score], float]
) -> Figure:
    return curves(
        f"correlation-with-{name}",
        f"Correlation of credits with {others}",
        f"Pearson's correlation of credits from the first evaluations with {others}.",
        _panels(results, lambda _, each: Estimate(value(each))),
        "evaluations",
        "Pearson's correlation",
        log_x=True,
        per_line=_estimators(results),
    )
