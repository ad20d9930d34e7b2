"""Do the credits order models that were retrained without some contributors?"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import isfinite

from diffcredit.baselines.controls import RandomRanking
from diffcredit.coalitions import encode
from diffcredit.credit.correlations import RANDOM_RANKINGS
from diffcredit.errors import UserError
from diffcredit.study.reserved import LEAST_TRUTH, truth_coalitions
from diffcredit.validation.contenders import compute_baselines
from diffcredit.validation.data import PartWork, ValidationData
from diffcredit.validation.presentation.figures import forest
from diffcredit.validation.presentation.sections import (
    Cell,
    Figure,
    PartResult,
    Section,
    Table,
    in_words,
    property_summary,
    property_table,
    worded,
)
from diffcredit.validation.statistics.ceilings import Ceiling, Ceilings
from diffcredit.validation.statistics.datamodeling import Difference, LDSResult, compare_lds
from diffcredit.validation.statistics.records import UNCLEAR, Contender, Estimate

NAMED = 3  # methods that a sentence lists

REPLICATES = "ceiling: F without noise"
ADDITIVE = "ceiling: additive model of the truth"
RANDOM = f"floor: {RANDOM_RANKINGS} random rankings"


def work(data: ValidationData) -> list[PartWork]:
    needed = [data.needed_truth(), *map(data.design, data.compared)]
    if data.settings.leave_one_out and "leave-one-out" not in data.estimators:  # otherwise the design does that
        needed += map(data.leave_one_out, [data.study.recipe, *data.compared])
    return needed


def result(data: ValidationData) -> PartResult[Mapping[str, LDSResult]]:
    data.needed_truth()  # otherwise baselines would be computed in vain
    compute_baselines(data)
    return PartResult(data.by_title(lambda name: scores_of(data, name)))


def scores_of(data: ValidationData, name: str) -> LDSResult:
    """Score all contenders for a property. The part ``counterfactual`` chooses its rivals by these."""

    def compare() -> LDSResult:
        truths = data.truths(name)
        if not truths:
            raise UserError(_missing_truth(data, name))
        # one random ranking says nothing of what chance reaches
        return compare_lds(truths, [each for each in data.contenders(name) if each.name != RandomRanking.name])

    return data.remember(("lds", name), compare)


def _missing_truth(data: ValidationData, name: str) -> str:
    known, found = data.truth_values(name), []
    for share in data.settings.shares:
        coalitions = [encode(row) for row in truth_coalitions(data.study.config, data.n, share)]
        found.append(f"{sum(each in known for each in coalitions)} of {len(coalitions)} at share {share:g}")
    return f"truth coalitions with a value: {', '.join(found)}; an interval needs at least {LEAST_TRUTH}"


def section(result: PartResult[Mapping[str, LDSResult]]) -> Section:
    results = result.numbers
    return Section(
        part="lds",
        title="Do the credits order models that were retrained without some contributors?",
        summary=property_summary(results, _summary),
        tables=(_score_table(results), _difference_table(results), _ceiling_table(results), _detail_table(results)),
        figures=tuple(
            _figure(index, title, each)
            for index, (title, each) in enumerate(results.items(), start=1)
            if any(isfinite(score.spearman.value) for score in each.scores)
        ),
        caveats=(
            "The score is a rank correlation: it shows whether coalitions are put in the right order, not whether the "
            "sizes of credits are right. It can favour other additive values, such as Banzhaf's, over the Shapley "
            "value.",
            "Intervals speak of other coalitions of the same size and other training seeds together. Intervals over "
            "seeds alone, as papers give them, hold for the coalitions at hand only.",
            "The ceiling of F without noise follows from how far seeds agree; it may be too high, by up to 0.2, where "
            "a few coalitions stand far out, and there is none where they do not agree, which few coalitions may do by "
            "chance.",
            "The additive ceiling is the score of an additive model of these coalitions' own retrained models, each "
            "predicted from the others. With few coalitions it learns less than there is: a method may exceed it. Its "
            "interval is somewhat short.",
            "Each difference is judged by itself: among twenty methods that are as good as the one they are compared "
            "with, one is likely to be called better or worse by chance.",
            f"The floor of {RANDOM_RANKINGS} random rankings is their median with the range of 95 % of them, over the "
            "same coalitions; a method within that range is no better than chance.",
        ),
    )


def _score_table(results: Mapping[str, LDSResult]) -> Table:
    shares = sorted({each.share for result in results.values() for each in result.ceilings})

    def rows(result: LDSResult) -> Iterator[tuple[Cell, ...]]:
        ceilings = {each.share: _ceiling_lines(each.spearman) for each in result.ceilings}
        for name in (REPLICATES, ADDITIVE):
            yield (name, None, None, *(ceilings.get(share, {}).get(name) for share in shares))
        yield (RANDOM, None, None, *(_known(result.chance.get(share)) for share in shares))
        for contender in _best_first(result):
            found = {each.share: each.spearman for each in result.scores if each.contender is contender}
            about = (contender.name, contender.category, contender.recipe or None)
            yield (*about, *(_known(found.get(share)) for share in shares))

    columns = ("method", "category", "retraining", *(f"LDS, share {share:g}" for share in shares))
    return property_table("lds-scores", "LDS, best first, with its ceilings and its floor", columns, results, rows)


def _difference_table(results: Mapping[str, LDSResult]) -> Table:
    def rows(result: LDSResult) -> list[tuple[Cell, ...]]:
        order = [contender.name for contender in _best_first(result)]
        return [
            (each.share, each.contender, each.against, _known(each.spearman), each.verdict)
            for each in sorted(result.differences, key=lambda each: (each.share, order.index(each.contender)))
        ]

    columns = ("share", "method", "compared with", "difference of LDS", "verdict")
    return property_table("lds-differences", "Differences over the same coalitions", columns, results, rows)


def _ceiling_table(results: Mapping[str, LDSResult]) -> Table:
    def rows(result: LDSResult) -> Iterator[tuple[Cell, ...]]:
        for each in result.ceilings:
            both = [(kind.split, kind.replicates, kind.additive) for kind in (each.spearman, each.pearson)]
            yield (each.share, each.coalitions, each.seeds, *(_known(found) for kind in both for found in kind))

    found = ("one seed against another", "F without noise", "additive model of the truth")
    columns = tuple(f"{name}, {kind}" for kind, name in product(("Spearman", "Pearson"), found))
    title = "Ceilings: what could be reached against the mean over seeds"
    return property_table("lds-ceilings", title, ("share", "coalitions", "seeds", *columns), results, rows)


def _detail_table(results: Mapping[str, LDSResult]) -> Table:
    most = max((len(score.seeds) for result in results.values() for score in result.scores), default=0)

    def rows(result: LDSResult) -> Iterator[tuple[Cell, ...]]:
        order = _best_first(result)
        for each in result.ceilings:
            for score in sorted(result.at(each.share), key=lambda score: order.index(score.contender)):
                estimates = (score.spearman, score.pearson, score.of_ceiling, score.over_seeds)
                seeds = [value if isfinite(value) else None for value in score.seeds]
                unknown = [None] * (most - len(seeds))
                yield (each.share, score.contender.name, *map(_known, estimates), *seeds, *unknown)

    columns = (
        *("share", "method", "LDS", "Pearson's correlation"),
        "LDS as a part of the ceiling of F without noise",
        "mean LDS over seeds, interval over seeds alone",
        *(f"LDS against seed {seed}" for seed in range(1, most + 1)),
    )
    return property_table("lds-details", "Every score, by seed too", columns, results, rows)


def _figure(index: int, title: str, result: LDSResult) -> Figure:
    panels: dict[str, dict[str, Estimate]] = {}
    lines: dict[str, dict[str, Estimate]] = {}
    order = _best_first(result)
    for each in result.ceilings:
        found = {score.contender.name: score.spearman for score in result.at(each.share)}
        panel = f"share {each.share:g} of the contributors"
        panels[panel] = {contender.name: found[contender.name] for contender in order}
        marks = _ceiling_lines(each.spearman) | {RANDOM: _known(result.chance[each.share])}
        lines[panel] = {name: line for name, line in marks.items() if line is not None}
    caption = (
        f"LDS of every method for {title}, with 95 % intervals over coalitions, by the share of contributors that the "
        "models were retrained on; best first at the share nearest to a half. Dashed lines: the ceilings with their "
        f"intervals, and the floor with its range. In bold: {result.against}, which the others are compared with."
    )
    return forest(f"lds-{index}", f"LDS: {title}", caption, panels, "LDS", lines, marked=result.against)


def _summary(title: str, result: LDSResult) -> Iterator[str]:
    ceilings = result.ceilings_at(result.middle)
    scores = {score.contender.name: score.spearman for score in result.at(result.middle)}
    lead, share = scores[result.against], f"{100 * result.middle:.4g} %"
    if not any(isfinite(each.value) for each in scores.values()) and not isfinite(ceilings.spearman.additive.value):
        yield f"{title}: models retrained on {share} of the contributors all have one value; none to order."
        return
    counted = f"{ceilings.coalitions} held-out coalitions of {share} of the contributors"
    if not isfinite(lead.value):
        yield f"{title}: {result.against} predicts the same for all of {counted}; it has no score."
        return
    found = in_words(lead, interval="95 % interval ")
    yield (
        f"{title}: {result.against} orders {counted} with a rank correlation (LDS) of {found}, where 1 is perfect and "
        "0 is chance."
    )
    if isfinite((floor := result.chance[result.middle]).value):
        within = ", and so does it: it is not shown to be better than chance" if lead.value <= floor.high else ""
        yield (f"Of {RANDOM_RANKINGS} random rankings, 95 % score {worded(floor.low)} to {worded(floor.high)}{within}.")
    yield from _about_ceilings(ceilings)
    yield from _about_differences(result)
    best: dict[str, str] = {}  # method without retraining of each category
    for each in _best_first(result):
        if isfinite(scores[each.name].value) and not each.recipe and each.name != result.against:
            best.setdefault(each.category, f"{each.name} ({each.category}, {worded(scores[each.name].value)})")
    if best:
        yield f"The best baseline of each kind, with its LDS: {_listed([*best.values()])}."
    silent = [name for name, each in scores.items() if not isfinite(each.value)]
    if silent:
        yield f"No score for {_listed(silent)}: the same prediction for all coalitions."


def _about_ceilings(ceilings: Ceilings) -> Iterator[str]:
    noise, additive = ceilings.spearman.replicates, ceilings.spearman.additive
    reached = []
    if noise is not None and noise.value > 0:
        reached.append(f"a prediction without any error would reach {in_words(noise)}, since training seeds differ")
    elif noise is not None and isfinite(noise.value):
        most = f"; at most {worded(noise.high)} by its interval" if isfinite(noise.high) else ""
        reached.append(
            "what a prediction without any error would reach is not known, since two training seeds put these "
            f"coalitions in orders that do not agree{most}"
        )
    if isfinite(additive.value):
        reached.append(
            "an additive model that learns from these coalitions' own retrained models alone reaches "
            f"{in_words(additive)}, which methods that learn from more may exceed"
        )
    if reached:
        yield f"Its ceilings: {'; '.join(reached)}."
    if ceilings.seeds == 1:
        yield "With one training seed a coalition, what noise takes from the score is not known."


def _about_differences(result: LDSResult) -> Iterator[str]:
    """List the methods that are worse, better and not distinguished, the strongest first."""
    here = [each for each in result.differences if each.share == result.middle and isfinite(each.spearman.value)]
    verdicts = {"worse": "It beats", "better": "It is beaten by", UNCLEAR: "It does not clearly differ from"}
    for verdict, words in verdicts.items():
        found = sorted((each for each in here if each.verdict == verdict), key=lambda each: -each.spearman.value)
        if found:
            named = [f"{each.contender} {_margin(each)}" for each in found[:NAMED]]
            more = [f"{len(found) - NAMED} more"] if len(found) > NAMED else []
            yield f"{words} {_listed(named + more)}."


def _best_first(result: LDSResult) -> list[Contender]:
    """Sort contenders by their LDS at the middle share, those without one last."""
    worst = -2.0  # below any correlation
    scores = {score.contender: score.spearman.value for score in result.at(result.middle)}
    return sorted(scores, key=lambda each: -(scores[each] if isfinite(scores[each]) else worst))


def _ceiling_lines(ceiling: Ceiling) -> dict[str, Estimate | None]:
    replicates = _known(ceiling.replicates)
    # there is no ceiling where seeds do not agree
    noise = replicates if replicates is not None and replicates.value > 0 else None
    return {REPLICATES: noise, ADDITIVE: _known(ceiling.additive)}


def _known(estimate: Estimate | None) -> Estimate | None:
    return estimate if estimate is not None and isfinite(estimate.value) else None


def _margin(difference: Difference) -> str:
    found = difference.spearman
    if difference.verdict == UNCLEAR:
        return f"({worded(found.low, '+.2f')} to {worded(found.high, '+.2f')} against it)"
    low, high = sorted((abs(found.low), abs(found.high)))
    return f"by {abs(found.value):.2f} ({low:.2f} to {high:.2f})"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
