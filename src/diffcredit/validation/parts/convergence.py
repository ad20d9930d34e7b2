"""How many evaluations are enough?"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite, nan

from diffcredit.validation.data import PartWork, ValidationData
from diffcredit.validation.presentation.figures import Series, beside, curves
from diffcredit.validation.presentation.sections import (
    Figure,
    PartResult,
    Section,
    Table,
    in_words,
    property_summary,
    property_table,
)
from diffcredit.validation.statistics.convergence import ConvergenceResult, PrefixScore, convergence_curves
from diffcredit.validation.statistics.records import Estimate

SETTLED = 0.05  # an LDS that differs by less from the last one has settled


def work(data: ValidationData) -> list[PartWork]:
    return [data.needed_truth(), *map(data.design, data.compared)]


def result(data: ValidationData) -> PartResult[Mapping[str, ConvergenceResult]]:
    return PartResult(data.by_title(lambda name: curves_of(data, name)), caveats=surrogates_caveat(data))


def curves_of(data: ValidationData, name: str) -> ConvergenceResult:
    """Score the prefixes of every recipe's design. This takes long, and the part ``budget`` uses it too."""
    return data.remember(
        ("convergence", name),
        lambda: convergence_curves(data.games(name), data.truths(name), data.game(data.scratch, name)),
    )


def surrogates_caveat(data: ValidationData) -> tuple[str, ...]:
    names = ", ".join(data.study.surrogates.names)
    caveat = f"All credits here are by evaluations alone: the study's surrogates ({names}) take no part."
    return (caveat,) if names else ()


def section(result: PartResult[Mapping[str, ConvergenceResult]]) -> Section:
    results = result.numbers
    tables = [_table(results)]
    if any(each.left_out for each in results.values()):
        tables.append(_left_out_table(results))
    figures = estimator_curves(
        "lds-by-evaluations",
        "LDS against the number of evaluations",
        "LDS of credits from the first evaluations, at the share nearest to ½; bars: the lowest and the highest over "
        "disjoint stretches of as many evaluations.",
        _lines(results, _lds),
        "evaluations",
        "LDS",
    )
    for name, others in (("retrained", "those from retraining"), ("final", "the same recipe's final ones")):
        figures += estimator_curves(
            f"correlation-with-{name}",
            f"Correlation of credits with {others}",
            f"Pearson's correlation of credits from the first evaluations with {others}.",
            _lines(results, lambda _, each, name=name: Estimate(getattr(each, f"with_{name}"))),
            "evaluations",
            "Pearson's correlation",
        )
    return Section(
        "convergence",
        "Convergence: how many evaluations are enough?",
        property_summary(results, _summary),
        tuple(tables),
        tuple(figures),
        caveats=(
            "Credits from the first evaluations are part of the final ones: their correlation is 1 at the end "
            "whatever the credits are worth.",
            "Credits from retraining rest on the same coalitions, so an error that comes from the choice of coalitions "
            "is in both and counts as agreement. The LDS does not have this flaw: its coalitions are others.",
            "An LDS has its interval over truth coalitions; what other evaluations of the same number would give is "
            "shown as the range over disjoint stretches of the design.",
            *result.caveats,
        ),
    )


def _summary(title: str, result: ConvergenceResult) -> list[str]:
    if not result.scores:
        return [f"{title}: no estimator accepts the evaluations there are."]
    if result.middle is None:
        return [f"{title}: no truth coalitions, so no LDS."]
    share, curves = result.middle, result.curves.values()
    known = [curve for curve in curves if isfinite(curve[-1].lds[share].value)]
    if not known:
        return [f"{title}: the LDS is not defined, since retrained values or predictions are all equal."]
    curve = max(known, key=lambda curve: curve[-1].lds[share].value)
    settled = best = curve[-1]
    final = best.lds[share]
    # from the end, so that a lucky start does not count as settled
    for each in reversed(curve):
        if not abs(each.lds[share].value - final.value) <= SETTLED:
            break
        settled = each
    return [
        f"{title}: {best.recipe} with {best.estimator} ends highest, with an LDS of {in_words(final)} from "
        f"{best.evaluations} evaluations (share {share:g}); it stays within {SETTLED:g} of that from "
        f"{settled.evaluations} evaluations on."
    ]


def _left_out_table(results: Mapping[str, ConvergenceResult]) -> Table:
    return property_table(
        "left-out",
        "What could not be scored",
        ("what", "at evaluations", "why"),
        results,
        lambda result: [
            (each.what, ", ".join(map(str, each.evaluations)) or "any", each.reason) for each in result.left_out
        ],
    )


def _table(results: Mapping[str, ConvergenceResult]) -> Table:
    shares = sorted({share for result in results.values() for share in result.shares})
    lds = tuple(name for share in shares for name in (f"LDS at {share:g}", f"LDS of stretches at {share:g}"))
    return property_table(
        "convergence",
        "Scores against the number of evaluations",
        ("recipe", "estimator", "evaluations", *lds, "Pearson with final", "Pearson with retrained"),
        results,
        lambda result: [
            (
                *(each.recipe, each.estimator, each.evaluations),
                *(cell for share in shares for cell in (each.lds.get(share), each.stretches.get(share))),
                *(each.with_final, each.with_retrained),
            )
            for each in result.scores
        ],
    )


def _lds(result: ConvergenceResult, score: PrefixScore) -> Estimate:
    if result.middle is None:
        return Estimate(nan)
    stretches = score.stretches[result.middle]
    return Estimate(score.lds[result.middle].value, stretches.low, stretches.high)


def _lines(
    results: Mapping[str, ConvergenceResult], shown: Callable[[ConvergenceResult, PrefixScore], Estimate]
) -> Iterator[tuple[str, str, Series]]:
    for prop, result in results.items():
        for (recipe, estimator), scores in result.curves.items():
            x = tuple(float(each.evaluations) for each in scores)
            yield prop, estimator, Series(recipe, x, tuple(shown(result, each) for each in scores))


def estimator_curves(
    name: str, title: str, caption: str, lines: Iterable[tuple[str, str, Series]], x_axis: str, y_axis: str
) -> list[Figure]:
    """Draw a panel for each property and estimator, those of a property in one line; no figure where all is unknown."""
    panels: dict[str, list[Series]] = {}
    estimators = set()
    for prop, estimator, series in lines:
        panels.setdefault(f"{prop}: {estimator}", []).append(series)
        estimators.add(estimator)
    if not any(isfinite(each.value) for panel in panels.values() for series in panel for each in series.y):
        return []
    return [curves(name, title, caption, panels, x_axis, y_axis, log_x=True, per_line=beside(len(estimators)))]
