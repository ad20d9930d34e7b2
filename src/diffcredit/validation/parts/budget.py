"""Which recipe and estimator is best for the same compute?"""

from collections.abc import Iterator, Mapping
from math import isfinite

from diffcredit.validation.data import ValidationData
from diffcredit.validation.parts import convergence
from diffcredit.validation.presentation.figures import Series
from diffcredit.validation.presentation.sections import (
    Cell,
    PartResult,
    Section,
    Table,
    property_summary,
    property_table,
)
from diffcredit.validation.statistics.budget import BUDGETS, LEVELS, BudgetResult, lds_by_cost
from diffcredit.validation.statistics.records import Estimate

work = convergence.work


def result(data: ValidationData) -> PartResult[Mapping[str, BudgetResult]]:
    seconds = {each.name: data.seconds(each) for each in data.recipes}

    def by_cost(name: str) -> BudgetResult:
        games, truths = data.games(name), data.truths(name)
        return lds_by_cost(convergence.curves_of(data, name), games, truths, seconds, data.seconds(data.scratch))

    return PartResult(data.by_title(by_cost), caveats=convergence.surrogates_caveat(data))


def section(result: PartResult[Mapping[str, BudgetResult]]) -> Section:
    results = result.numbers
    unknown = sorted({recipe for each in results.values() for recipe in each.prices if not _whole(each, recipe)})
    lines = []
    for title, each in results.items():
        for curve in each.curves:
            pairs = zip(curve.lds, curve.stretches, strict=True)
            y = tuple(Estimate(lds.value, stretch.low, stretch.high) for lds, stretch in pairs)
            lines.append((title, curve.estimator, Series(curve.recipe, curve.costs, y)))
    figures = convergence.estimator_curves(
        "lds-by-budget",
        "LDS against compute",
        "LDS at the share nearest to ½ against the cost in retrainings, preparation included where it is known; bars: "
        "the lowest and the highest over disjoint stretches of as many evaluations.",
        lines,
        "cost in retrainings",
        "LDS",
    )
    return Section(
        "budget",
        "Budget: what the same compute buys",
        property_summary(results, _summary),
        (_table_at_budgets(results), _table_of_cheapest(results)),
        tuple(figures),
        caveats=(
            "The evaluations of F(∅) and F(N) are not counted in any cost, nor is measuring.",
            "The cost of the preparation before the first coalition is estimated from its steps, at the pace of "
            "coalitions' training; where a GPU trains several coalitions' models together, it took longer.",
            "The cheapest of many noisy curves looks cheaper than it is.",
            *([f"The cost of the preparation is not known for {', '.join(unknown)}."] if unknown else ()),
            *result.caveats,
        ),
    )


def _whole(result: BudgetResult, recipe: str) -> bool:
    return isfinite(result.prices[recipe].preparation)


def _summary(title: str, result: BudgetResult) -> list[str]:
    if not any(isfinite(each.value) for curve in result.curves for each in curve.stretches):
        return [f"{title}: no recipe and estimator has an LDS to set against its cost."]
    if not result.cheapest:
        return [f"{title}: no recipe and estimator reaches an LDS of {LEVELS[0]:g} (share {result.share:g})."]
    way = result.cheapest[-1]
    without = "" if _whole(result, way.recipe) else ", not counting its preparation, which is not known"
    return [
        f"{title}: the cheapest way to an LDS of {way.level:g} (share {result.share:g}) is {way.recipe} with "
        f"{way.estimator}, at the cost of {way.cost:.3g} retrainings of {result.unit:.3g} s{without}; no "
        "evaluated way reaches the next tenth."
    ]


def _table_at_budgets(results: Mapping[str, BudgetResult]) -> Table:
    def rows(result: BudgetResult) -> Iterator[tuple[Cell, ...]]:
        for curve in result.curves:
            price = result.prices[curve.recipe]
            about = (curve.recipe, curve.estimator, result.share, price.preparation, price.evaluation)
            yield *about, *(curve.at.get(float(amount)) for amount in BUDGETS)

    costs = ("share", "preparation", "one evaluation")
    columns = ("recipe", "estimator", *costs, *(f"LDS for {amount}" for amount in BUDGETS))
    title = "LDS at equal budgets; costs and budgets in retrainings"
    return property_table("lds-at-budgets", title, columns, results, rows)


def _table_of_cheapest(results: Mapping[str, BudgetResult]) -> Table:
    def rows(result: BudgetResult) -> Iterator[tuple[Cell, ...]]:
        for way in result.cheapest:
            known = "counted" if _whole(result, way.recipe) else "not known"
            yield way.level, way.recipe, way.estimator, way.cost, known

    columns = ("LDS", "recipe", "estimator", "retrainings", "preparation")
    return property_table("cheapest", "The cheapest way to an LDS", columns, results, rows, decimals=2)
