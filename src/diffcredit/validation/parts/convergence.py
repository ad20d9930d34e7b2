"""How many evaluations are enough?"""

from collections.abc import Callable, Mapping
from math import isfinite

from diffcredit.validation.data import ValidationData
from diffcredit.validation.parts.outcome import PartResult
from diffcredit.validation.presentation.figures import Series, beside, curves
from diffcredit.validation.presentation.sections import Figure, Section, Table
from diffcredit.validation.presentation.wording import in_words
from diffcredit.validation.statistics.convergence import ConvergenceResult, PrefixScore, convergence_curves
from diffcredit.validation.statistics.records import Estimate
from diffcredit.validation.work import PartWork

SETTLED = 0.05
"""An LDS that differs by less from the last one has settled."""


def work(data: ValidationData) -> list[PartWork]:
    return [data.truth(), *map(data.design, data.compared)]


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
    results, figures = result.numbers, []
    scores = [each for found in results.values() for each in found.scores]
    if any(isfinite(each.lds[share].value) for each in scores for share in each.lds):
        figures.append(_lds_figure(results))
    if any(isfinite(each.with_retrained) for each in scores):
        figures.append(
            _correlation_figure(results, "retrained", "those from retraining", lambda each: each.with_retrained)
        )
    if any(isfinite(each.with_final) for each in scores):
        figures.append(
            _correlation_figure(results, "final", "the same recipe's final ones", lambda each: each.with_final)
        )
    return Section(
        "convergence",
        "Convergence: how many evaluations are enough?",
        tuple(sentence for title, each in results.items() for sentence in _summary(title, each)),
        (_table(results), *([_table_of_left_out(results)] if any(r.left_out for r in results.values()) else ())),
        tuple(figures),
        caveats=(
            "Credits from the first evaluations are part of the final ones: their correlation is 1 at the end "
            "whatever the credits are worth.",
            "Credits from retraining rest on the same coalitions: what an estimator makes of these very coalitions is "
            "in both, and a correlation takes it for agreement. The LDS does not, for its coalitions are others.",
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
    share = result.middle
    ends = [result.of(*curve)[-1] for curve in result.curves]
    known = [each for each in ends if isfinite(each.lds[share].value)]
    if not known:
        return [f"{title}: the LDS is not defined, since retrained values or predictions are all equal."]
    best = max(known, key=lambda each: each.lds[share].value)
    final, settled = best.lds[share], best
    # from the end, so that a lucky start does not count as settled
    for each in reversed(result.of(best.recipe, best.estimator)):
        if not abs(each.lds[share].value - final.value) <= SETTLED:
            break
        settled = each
    return [
        f"{title}: {best.recipe} with {best.estimator} ends highest, with an LDS of {in_words(final)} from "
        f"{best.evaluations} evaluations (share {share:g}); it stays within {SETTLED:g} of that from "
        f"{settled.evaluations} evaluations on."
    ]


def _table_of_left_out(results: Mapping[str, ConvergenceResult]) -> Table:
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


def _table(results: Mapping[str, ConvergenceResult]) -> Table:
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
    results: Mapping[str, ConvergenceResult], shown: Callable[[ConvergenceResult, PrefixScore], Estimate]
) -> dict[str, list[Series]]:
    """Make a panel for each property and estimator, with a line for each recipe."""
    panels: dict[str, list[Series]] = {}
    for title, result in results.items():
        for recipe, estimator in result.curves:
            scores = result.of(recipe, estimator)
            x = tuple(float(each.evaluations) for each in scores)
            series = Series(recipe, x, tuple(shown(result, each) for each in scores))
            panels.setdefault(f"{title}: {estimator}", []).append(series)
    return panels or {title: [] for title in results}


def _estimators(results: Mapping[str, ConvergenceResult]) -> int:
    """Return how many panels to put in a line: those of one property."""
    return beside(len({estimator for result in results.values() for _, estimator in result.curves}))


def _lds_figure(results: Mapping[str, ConvergenceResult]) -> Figure:
    def shown(result: ConvergenceResult, each: PrefixScore) -> Estimate:
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
    results: Mapping[str, ConvergenceResult], name: str, others: str, value: Callable[[PrefixScore], float]
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
