"""Which recipe and estimator is best for the same compute?"""

from collections.abc import Mapping
from math import isfinite

from diffcredit.validation.data import ValidationData
from diffcredit.validation.parts import convergence
from diffcredit.validation.parts.outcome import PartResult
from diffcredit.validation.presentation.figures import Series, beside, curves
from diffcredit.validation.presentation.sections import Cell, Figure, Section, Table
from diffcredit.validation.statistics.budget import BUDGETS, LEVELS, BudgetResult, Cheapest, lds_by_cost
from diffcredit.validation.statistics.records import Estimate

work = convergence.work


def result(data: ValidationData) -> PartResult[Mapping[str, BudgetResult]]:
    seconds = {each.name: data.seconds(each) for each in data.recipes}

    def by_cost(name: str) -> BudgetResult:
        games, truths = data.games(name), data.truths(name)
        return lds_by_cost(convergence.curves_of(data, name), games, truths, seconds, data.unit())

    return PartResult(data.by_title(by_cost), caveats=convergence.surrogates_caveat(data))


def section(result: PartResult[Mapping[str, BudgetResult]]) -> Section:
    results = result.numbers
    unknown = sorted(
        {recipe for each in results.values() for recipe, p in each.prices.items() if not isfinite(p.preparation)}
    )
    return Section(
        "budget",
        "Budget: what the same compute buys",
        tuple(sentence for title, each in results.items() for sentence in _summary(title, each)),
        (_table_at_budgets(results), _table_of_cheapest(results)),
        (_figure(results),) if any(isfinite(lds.value) for lds in _all_lds(results)) else (),
        caveats=(
            "The evaluations of F(∅) and F(N) are not counted in any cost, nor is measuring.",
            "What is prepared before the first coalition is reckoned, its steps at the pace of coalitions' training; "
            "where a GPU trains these in fleets, it took longer.",
            "The cheapest of many noisy curves looks cheaper than it is.",
            *([f"What was spent before the first coalition is not known of {', '.join(unknown)}."] if unknown else ()),
            *result.caveats,
        ),
    )


def _summary(title: str, result: BudgetResult) -> list[str]:
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


def _table_at_budgets(results: Mapping[str, BudgetResult]) -> Table:
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


def _table_of_cheapest(results: Mapping[str, BudgetResult]) -> Table:
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


def _all_lds(results: Mapping[str, BudgetResult]) -> list[Estimate]:
    return [lds for result in results.values() for curve in result.curves for lds in curve.lds]


def _figure(results: Mapping[str, BudgetResult]) -> Figure:
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
