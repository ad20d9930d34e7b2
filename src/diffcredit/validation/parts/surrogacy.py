"""How many evaluations do the study's surrogates save?"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import isfinite

from diffcredit.errors import UserError
from diffcredit.validation.contenders import known_surrogates
from diffcredit.validation.data import PartWork, ValidationData
from diffcredit.validation.presentation.figures import Series, curves
from diffcredit.validation.presentation.sections import (
    Figure,
    PartResult,
    Section,
    Table,
    in_words,
    property_summary,
    property_table,
)
from diffcredit.validation.statistics.records import RecipeGame
from diffcredit.validation.statistics.runtime import mean_of_known
from diffcredit.validation.statistics.surrogacy import CONTROL, NEAR, NONE, SHARE, SurrogacyResult, compare_surrogates


def work(data: ValidationData) -> list[PartWork]:
    _check(data)  # before anything is retrained in vain
    return [data.needed_truth()]


def result(data: ValidationData) -> PartResult[Mapping[str, SurrogacyResult]]:
    _check(data)

    def surrogacy(name: str) -> SurrogacyResult:
        game = data.game(data.study.recipe, name)
        if game is None:
            raise UserError(f"{data.study.recipe.name!r} has no evaluations yet; diffcredit run comes first")
        known, truths = known_surrogates(data, name, game), data.truths(name)
        return compare_surrogates(game, known, truths, partial(_price, data, game))

    return PartResult(data.by_title(surrogacy))


def _check(data: ValidationData) -> None:
    surrogates = data.study.surrogates
    if not surrogates.names:
        raise UserError("the study file names no surrogates")
    if not surrogates.ready():
        raise UserError(f"{', '.join(surrogates.names)}: not measured yet; diffcredit run does that")


def _price(data: ValidationData, game: RecipeGame, surrogates: Sequence[str]) -> float:
    """Return how many evaluations of ``game`` cost as much as all that these surrogates fine-tune and sample. Where
    seconds are unknown, each fine-tuned model counts as one evaluation."""
    work = data.study.surrogates.work(data.n, len(game.values), surrogates)
    training, sampling = mean_of_known(game.training_seconds), mean_of_known(game.sampling_seconds)
    if not training + sampling > 0:
        return float(work.fine_tunings)
    return (work.fine_tunings * training + work.samplings * sampling) / (training + sampling)


def section(result: PartResult[Mapping[str, SurrogacyResult]]) -> Section:
    results = result.numbers
    return Section(
        "surrogates",
        "Surrogates: how many evaluations do they save?",
        property_summary(results, _summary),
        (_table(results),),
        (_figure(results),),
        caveats=(
            "With 0 evaluations credits are a surrogate's own. Costs are in evaluations, and count the models that a "
            "surrogate fine-tunes and samples, one for each contributor or none, not what it takes to measure images.",
            f"A surrogate passes if, for at most {100 * SHARE:.0f} % of what all evaluations cost, it is clearly "
            f"better than {CONTROL} (the interval of the difference is above 0) and its LDS is at most {NEAR:g} below "
            f"that of all evaluations. Each is judged by itself. If {CONTROL} predicts the same for all coalitions, it "
            "orders none of them, and counts as chance, 0.",
        ),
    )


def _summary(title: str, result: SurrogacyResult) -> list[str]:
    everything = result.evaluated
    if not isfinite(everything.lds.value):
        return [f"{title}: the LDS is not defined, since retrained values or predictions are all equal."]
    sentences = [
        f"{title}: {everything.evaluations} evaluations alone reach an LDS of {in_words(everything.lds)} at "
        f"share {result.share:g}; from {result.enough.evaluations} on they are within {NEAR:g} of it."
    ]
    for name in result.surrogates:
        worth = result.passing(name)
        if worth is not None:
            how = f"with {worth.evaluations} evaluations" if worth.evaluations else "without any evaluation"
            sentences.append(f"{name} passes {how}, at the cost of {worth.cost:.0f}: {in_words(worth.lds)}.")
    if len(sentences) == 1:
        sentences.append("No surrogate passes.")
    return [" ".join(sentences)]


def _table(results: Mapping[str, SurrogacyResult]) -> Table:
    differences = ("less all evaluations alone", f"less {CONTROL} alone")
    return property_table(
        "surrogates",
        "LDS of surrogates, alone and corrected by evaluations",
        ("surrogate", "evaluations", "cost in evaluations", "LDS", *differences),
        results,
        lambda result: [
            (each.surrogate, each.evaluations, each.cost, each.lds, each.less_evaluated, each.less_control)
            for each in result.worths
        ],
    )


def _figure(results: Mapping[str, SurrogacyResult]) -> Figure:
    panels = {
        title: [
            Series(name, tuple(float(each.evaluations) for each in own), tuple(each.lds for each in own))
            for name in (NONE, *result.surrogates)
            if (own := result.of(name))
        ]
        for title, result in results.items()
    }
    return curves(
        "lds-by-surrogate",
        "LDS against the number of evaluations, by surrogate",
        "LDS of credits from the first evaluations with each surrogate, with 0 evaluations its own credits, at the "
        "share nearest to ½; bars: 95 % intervals over truth coalitions.",
        panels,
        "evaluations",
        "LDS",
    )
