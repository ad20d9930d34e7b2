"""What the same compute buys with each recipe and estimator; its unit is one retraining with its sampling."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite

from diffcredit.errors import UserError
from diffcredit.validation.convergence import Convergence
from diffcredit.validation.crediting import credits_of
from diffcredit.validation.figures import Series, beside, curves
from diffcredit.validation.monotone import first_reaching
from diffcredit.validation.records import Estimate, RecipeGame, Truth
from diffcredit.validation.scores import lds_of
from diffcredit.validation.sections import Cell, Figure, Section, Table

BUDGETS = (1, 2, 5, 10, 20, 50, 100)
"""In retrainings."""
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Of the LDS."""


@dataclass(frozen=True)
class Price:
    """What a recipe's evaluations cost, in retrainings: ``preparation`` once (NaN: not known, counted as 0), then
    ``evaluation`` each."""

    preparation: float
    evaluation: float

    def of(self, evaluations: int) -> float:
        return (self.preparation if isfinite(self.preparation) else 0.0) + evaluations * self.evaluation

    def evaluations(self, budget: float) -> int:
        """How many a budget buys."""
        return max(floor((budget - self.of(0)) / self.evaluation + 1e-9), 0)


@dataclass(frozen=True)
class Curve:
    """The LDS of one recipe and estimator: ``costs`` in retrainings with the LDS of the first so many evaluations and
    the range over stretches of the design (see `Score`); ``at`` a budget the LDS that it buys, with its interval over
    truth coalitions (absent: it buys too few evaluations, or more than there are)."""

    recipe: str
    estimator: str
    costs: tuple[float, ...]
    lds: tuple[Estimate, ...]
    stretches: tuple[Estimate, ...]
    at: Mapping[float, Estimate]


@dataclass(frozen=True)
class Cheapest:
    """The least ``cost``, in retrainings, at which any recipe and estimator reaches the LDS ``level``; ``whole``: the
    preparation is known, and in it."""

    level: float
    recipe: str
    estimator: str
    cost: float
    whole: bool


@dataclass(frozen=True)
class Budget:
    """At equal compute: ``unit`` is the seconds of one retraining, ``share`` that of the LDS, ``prices`` by recipe."""

    unit: float
    share: float
    prices: Mapping[str, Price]
    curves: tuple[Curve, ...]
    cheapest: tuple[Cheapest, ...]


def budget(
    result: Convergence,
    games: Sequence[RecipeGame],
    truths: Sequence[Truth],
    seconds: Mapping[str, float],
    unit: float,
) -> Budget:
    """The scores of ``result``, which is of these ``games`` and ``truths``, against compute.

    seconds: the mean of one evaluation by recipe, training and sampling, so that the price does not depend on who came
    first; recipes whose seconds are not known are left out. unit: that of one retraining from scratch.
    Raises UserError when the unit is not known, or no LDS.
    """
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
        _curve(result, by_recipe[recipe], estimator, truth, prices[recipe])
        for recipe, estimator in result.curves
        if recipe in prices
    )
    return Budget(unit, truth.share, prices, found, _cheapest(found, prices))


def _curve(result: Convergence, game: RecipeGame, estimator: str, truth: Truth, price: Price) -> Curve:
    scores = result.of(game.recipe, estimator)
    at = {}
    for amount in BUDGETS:
        evaluations = price.evaluations(amount)
        if 0 < evaluations <= len(game.values):
            try:
                at[float(amount)] = lds_of(credits_of(game, estimator, slice(evaluations)), truth)
            except UserError:
                continue
    return Curve(
        game.recipe,
        estimator,
        costs=tuple(price.of(each.evaluations) for each in scores),
        lds=tuple(each.lds[truth.share] for each in scores),
        stretches=tuple(each.stretches[truth.share] for each in scores),
        at=at,
    )


def _cheapest(found: Sequence[Curve], prices: Mapping[str, Price]) -> tuple[Cheapest, ...]:
    """By the non-decreasing fit of each curve's mean over stretches."""
    cheapest = []
    for level in LEVELS:
        ways = []
        for curve in found:
            cost = first_reaching(curve.costs, [each.value for each in curve.stretches], level)
            if cost is not None:
                whole = isfinite(prices[curve.recipe].preparation)
                ways.append(Cheapest(level, curve.recipe, curve.estimator, cost, whole))
        if ways:
            cheapest.append(min(ways, key=lambda way: way.cost))
    return tuple(cheapest)


def budget_section(results: Mapping[str, Budget]) -> Section:
    """``results`` by the title of the property."""
    unknown = sorted(
        {recipe for result in results.values() for recipe, p in result.prices.items() if not isfinite(p.preparation)}
    )
    return Section(
        "budget",
        "Budget: what the same compute buys",
        tuple(sentence for title, result in results.items() for sentence in _summary(title, result)),
        (_table_at_budgets(results), _table_of_cheapest(results)),
        (_figure(results),) if any(isfinite(lds.value) for lds in _all_lds(results)) else (),
        caveats=(
            "The evaluations of F(∅) and F(N) are not counted in any cost, nor is measuring.",
            "What is prepared before the first coalition is reckoned, its steps at the pace of coalitions' training; "
            "where a GPU trains these in fleets, it took longer.",
            "The cheapest of many noisy curves looks cheaper than it is.",
            *([f"What was spent before the first coalition is not known of {', '.join(unknown)}."] if unknown else ()),
        ),
    )


def _summary(title: str, result: Budget) -> list[str]:
    if not any(isfinite(each.value) for curve in result.curves for each in curve.stretches):
        return [f"{title}: no recipe and estimator has an LDS to set against its cost."]
    if not result.cheapest:
        return [f"{title}: no recipe and estimator reaches an LDS of {LEVELS[0]:g} (share {result.share:g})."]
    way = result.cheapest[-1]
    return [
        f"{title}: the cheapest way to an LDS of {way.level:g} (share {result.share:g}) is {way.recipe} with "
        f"{way.estimator}, at the cost of {way.cost:.3g} retrainings of {result.unit:.3g} s{_without(way)}; no "
        "evaluated way reaches the next tenth."
    ]


def _without(way: Cheapest) -> str:
    return "" if way.whole else ", not counting its preparation, which is not known"


def _table_at_budgets(results: Mapping[str, Budget]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for title, result in results.items():
        for curve in result.curves:
            price = result.prices[curve.recipe]
            about = (title, curve.recipe, curve.estimator, result.share, price.preparation, price.evaluation)
            rows.append((*about, *(curve.at.get(float(amount)) for amount in BUDGETS)))
    return Table(
        "lds-at-budgets",
        "LDS at equal budgets; costs and budgets in retrainings",
        (
            *("property", "recipe", "estimator", "share", "preparation", "one evaluation"),
            *(f"LDS for {amount}" for amount in BUDGETS),
        ),
        tuple(rows),
    )


def _table_of_cheapest(results: Mapping[str, Budget]) -> Table:
    return Table(
        "cheapest",
        "The cheapest way to an LDS",
        ("property", "LDS", "recipe", "estimator", "retrainings", "preparation"),
        tuple(
            (title, way.level, way.recipe, way.estimator, way.cost, "counted" if way.whole else "not known")
            for title, result in results.items()
            for way in result.cheapest
        ),
        decimals=2,
    )


def _all_lds(results: Mapping[str, Budget]) -> list[Estimate]:
    return [lds for result in results.values() for curve in result.curves for lds in curve.lds]


def _figure(results: Mapping[str, Budget]) -> Figure:
    panels: dict[str, list[Series]] = {}
    for title, result in results.items():
        for curve in result.curves:
            y = tuple(
                Estimate(lds.value, each.low, each.high) for lds, each in zip(curve.lds, curve.stretches, strict=True)
            )
            panels.setdefault(f"{title}: {curve.estimator}", []).append(Series(curve.recipe, curve.costs, y))
    return curves(
        "lds-by-budget",
        "LDS against compute",
        "LDS at the share nearest to ½ against the cost in retrainings, preparation included where it is known; bars: "
        "the lowest and the highest over disjoint stretches of as many evaluations.",
        panels or {title: [] for title in results},
        "cost in retrainings",
        "LDS",
        log_x=True,
        per_line=beside(len({curve.estimator for result in results.values() for curve in result.curves})),
    )
