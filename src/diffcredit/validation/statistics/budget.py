"""The LDS that the same compute buys with each recipe and estimator. The unit of cost is one retraining from scratch
with its sampling."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import floor, isfinite

from diffcredit.errors import UserError
from diffcredit.validation.statistics.convergence import ConvergenceResult, PrefixScore, first_reaching
from diffcredit.validation.statistics.datamodeling import lds
from diffcredit.validation.statistics.records import Estimate, RecipeGame, Truth, game_credits

BUDGETS = (1, 2, 5, 10, 20, 50, 100)  # in retrainings
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the LDS


@dataclass(frozen=True)
class Price:
    """The cost in retrainings: ``preparation`` once (NaN: unknown, counted as 0), then ``evaluation`` for each."""

    preparation: float
    evaluation: float

    def of(self, evaluations: int) -> float:
        return (self.preparation if isfinite(self.preparation) else 0.0) + evaluations * self.evaluation

    def evaluations(self, budget: float) -> int:
        """Return how many evaluations a budget buys."""
        return max(floor((budget - self.of(0)) / self.evaluation + 1e-9), 0)


@dataclass(frozen=True)
class Curve:
    """One recipe's and estimator's LDS against ``costs`` in retrainings, with the range over ``stretches`` (see
    `PrefixScore`); ``at`` has it for those of `BUDGETS` that buy enough evaluations and no more than there are."""

    recipe: str
    estimator: str
    costs: tuple[float, ...]
    lds: tuple[Estimate, ...]
    stretches: tuple[Estimate, ...]
    at: Mapping[float, Estimate]


@dataclass(frozen=True)
class Cheapest:
    """The least ``cost``, in retrainings, at which any recipe and estimator reaches the LDS ``level``."""

    level: float
    recipe: str
    estimator: str
    cost: float


@dataclass(frozen=True)
class BudgetResult:
    """Scores at equal compute. ``unit`` is the seconds of one retraining, ``share`` the LDS's, ``prices`` by recipe."""

    unit: float
    share: float
    prices: Mapping[str, Price]
    curves: tuple[Curve, ...]
    cheapest: tuple[Cheapest, ...]


def lds_by_cost(
    result: ConvergenceResult,
    games: Sequence[RecipeGame],
    truths: Sequence[Truth],
    seconds: Mapping[str, float],
    unit: float,
) -> BudgetResult:
    """Set the scores of ``result``, computed from these ``games`` and ``truths``, against compute. ``seconds``: the
    mean time of one evaluation's training and sampling, by recipe; recipes for which it is unknown are left out.
    ``unit``: the seconds of one retraining from scratch. Raises UserError when the unit or the LDS is unknown."""
    if not (isfinite(unit) and unit > 0):
        raise UserError(f"budget: {unit} seconds a retraining; a positive number is needed, from truth evaluations")
    truth = next((each for each in truths if each.share == result.middle), None)
    if truth is None:
        raise UserError("budget: no LDS is known; it needs at least 10 truth coalitions of one share")
    by_recipe = {game.recipe: game for game in games}
    prices = {
        recipe: Price(game.preparation / unit, seconds[recipe] / unit)
        for recipe, game in by_recipe.items()
        if isfinite(seconds[recipe]) and seconds[recipe] > 0
    }
    found = tuple(
        _curve(scores, by_recipe[recipe], estimator, truth, prices[recipe])
        for (recipe, estimator), scores in result.curves.items()
        if recipe in prices
    )
    return BudgetResult(unit, truth.share, prices, found, _cheapest(found))


def _curve(scores: Sequence[PrefixScore], game: RecipeGame, estimator: str, truth: Truth, price: Price) -> Curve:
    at = {}
    for amount in BUDGETS:
        evaluations = price.evaluations(amount)
        if 0 < evaluations <= len(game.values):
            with suppress(UserError):
                credits = game_credits(game, estimator, slice(evaluations))
                at[float(amount)] = lds(credits, truth.coalitions, truth.values)
    return Curve(
        game.recipe,
        estimator,
        costs=tuple(price.of(each.evaluations) for each in scores),
        lds=tuple(each.lds[truth.share] for each in scores),
        stretches=tuple(each.stretches[truth.share] for each in scores),
        at=at,
    )


def _cheapest(found: Sequence[Curve]) -> tuple[Cheapest, ...]:
    """Find the cheapest way to each level, by the non-decreasing fit of each curve's mean over stretches."""
    cheapest = []
    for level in LEVELS:
        ways = []
        for curve in found:
            cost = first_reaching(curve.costs, [each.value for each in curve.stretches], level)
            if cost is not None:
                ways.append(Cheapest(level, curve.recipe, curve.estimator, cost))
        if ways:
            cheapest.append(min(ways, key=lambda way: way.cost))
    return tuple(cheapest)
