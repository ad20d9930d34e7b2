"""Do cheap retrainings stand in for retraining from scratch?"""

from collections.abc import Iterator, Mapping
from math import isfinite

from diffcredit.errors import UserError
from diffcredit.validation.data import PartWork, ValidationData
from diffcredit.validation.presentation.figures import Series, curves, scatter
from diffcredit.validation.presentation.sections import (
    Cell,
    Figure,
    PartResult,
    Section,
    Table,
    in_words,
    property_summary,
    property_table,
)
from diffcredit.validation.statistics.fidelity import FidelityResult, compare_with_retraining, recommended_steps

WANTED = 0.9  # the correlation that the section recommends steps for


def work(data: ValidationData) -> list[PartWork]:
    return [*map(data.design, data.compared), data.design(data.scratch)]


def result(data: ValidationData) -> PartResult[Mapping[str, FidelityResult]]:
    def fidelity(name: str) -> FidelityResult:
        scratch = data.game(data.scratch, name)
        if scratch is None:
            raise UserError(f"no evaluations of {data.scratch.name!r} beside truth's yet")
        return compare_with_retraining(data.games(name), scratch)

    return PartResult(data.by_title(fidelity))


def section(result: PartResult[Mapping[str, FidelityResult]]) -> Section:
    results = result.numbers
    figures = [_scatter(results)]
    if any(len({row.steps for row in each.of(m)}) > 1 for each in results.values() for m in each.methods):
        figures.append(_curves(results))
    return Section(
        "fidelity",
        "Fidelity: do cheap retrainings stand in for retraining?",
        property_summary(results, _summary),
        (_value_table(results), _gap_table(results), _steps_table(results)),
        tuple(figures),
        caveats=(
            "Intervals are over coalitions, for this base model and these initial noises.",
            "The paper's bounds are of exact values over all coalitions; here the largest gap and the credits come "
            "from the coalitions that were evaluated, with the noise of training in both.",
        ),
    )


def _summary(title: str, result: FidelityResult) -> Iterator[str]:
    known = [row for row in result.recipes if isfinite(row.size_adjusted.value)]
    if known:
        best = max(known, key=lambda row: row.size_adjusted.value)
        yield (
            f"{title}: of coalitions of one size, {best.recipe} follows retraining best, with a correlation of "
            f"{in_words(best.size_adjusted)} over {len(best.values)} coalitions."
        )
    else:
        yield f"{title}: no recipe's values correlate with retraining's, or they cannot be compared."
    if (own := result.ceiling) is not None:
        words = f"{title}: retraining follows itself with another seed with {in_words(own.size_adjusted)}"
        yield f"{words}, over {own.coalitions} coalitions."
    yield from (f"{title}: {row.recipe}: {row.note}." for row in result.recipes if row.note)


def _value_table(results: Mapping[str, FidelityResult]) -> Table:
    def rows(result: FidelityResult) -> Iterator[tuple[Cell, ...]]:
        for row in result.recipes:
            yield (
                *(row.recipe, row.method, row.steps, len(row.values)),
                *(row.pearson, row.spearman, row.size_adjusted),
                row.freed_of_noise if isfinite(row.attainable) else None,
                *((row.credits.pearson, row.credits.spearman) if row.credits else (None, None)),
            )
        if (own := result.ceiling) is not None:
            about = (f"{result.truth}, another seed", None, None, own.coalitions)
            yield (*about, own.pearson, own.spearman, own.size_adjusted, None, None, None)

    columns = (
        *("recipe", "method", "steps", "coalitions", "Pearson", "Spearman", "size-adjusted"),
        *("freed of retraining's noise", "Pearson of credits", "Spearman of credits"),
    )
    return property_table("correlations", "Correlation with retraining", columns, results, rows)


def _gap_table(results: Mapping[str, FidelityResult]) -> Table:
    def rows(result: FidelityResult) -> Iterator[tuple[Cell, ...]]:
        for row in result.recipes:
            bounded = (row.credits.distance, row.credits.bound) if row.credits else (None, None)
            yield row.recipe, row.steps, row.mean_gap, row.largest_gap, result.lottery_gap(row.method), *bounded

    columns = (
        *("recipe", "steps", "mean gap", "largest gap", "B: largest gap at the longest training"),
        *("distance of credits", "bound 2√n·C"),
    )
    return property_table("gaps", "Gap to retraining, beside the paper's bounds", columns, results, rows, decimals=4)


def _steps_table(results: Mapping[str, FidelityResult]) -> Table:
    def rows(result: FidelityResult) -> Iterator[tuple[Cell, ...]]:
        for method in result.methods:
            if any(row.steps is not None for row in result.of(method)):
                yield method, *recommended_steps(result, method, WANTED)

    title = f"The fewest steps that are expected to reach a size-adjusted correlation of {WANTED:g}"
    return property_table("steps", title, ("method", "steps", "in words"), results, rows)


def _curves(results: Mapping[str, FidelityResult]) -> Figure:
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


def _scatter(results: Mapping[str, FidelityResult]) -> Figure:
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
