"""The linear datamodeling score: how well credits order held-out coalitions by the property of their models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isfinite, sqrt

import numpy as np

from diffcredit.credit.correlations import Kind, correlation, jackknifed_correlation
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.figures import forest
from diffcredit.validation.records import Contender, Estimate, Truth
from diffcredit.validation.sections import Cell, Figure, Section, Table
from diffcredit.validation.statistics import (
    LEAST_ROWS,
    additive_predictions,
    correlation_interval,
    correlation_with_interval,
    jackknife_interval,
    jackknifed_split,
    mean_over_seeds,
    predictions,
    replicate_ceiling,
    replicate_ceiling_interval,
    seeds_interval,
)
from diffcredit.validation.wording import in_words, worded

NAMED = 3  # methods that a sentence lists

REPLICATES = "ceiling: F without noise"
ADDITIVE = "ceiling: additive model of the truth"
RANDOM = "random_ranking"
"""The baseline that is one draw of chance."""


@dataclass(frozen=True)
class Score:
    """A contender's correlation with the mean over seeds of the retrained models' F, with intervals over coalitions.

    ``spearman`` is the LDS. ``seeds`` (R,) are the LDS against each seed alone, ``over_seeds`` their mean with its
    interval over seeds. ``of_ceiling`` is the LDS as a part of what F without noise would reach, None where that is
    not known or may be 0.
    """

    contender: Contender
    share: float
    spearman: Estimate
    pearson: Estimate
    seeds: tuple[float, ...]
    over_seeds: Estimate
    of_ceiling: Estimate | None


@dataclass(frozen=True)
class Ceiling:
    """What could be reached at one share, by Spearman's or Pearson's correlation with the mean over seeds.

    ``split`` is one seed against another and ``replicates`` what F without noise would reach (None: one seed alone);
    ``additive`` what an additive model does that is fitted to the other coalitions' truth.
    """

    split: Estimate | None
    replicates: Estimate | None
    additive: Estimate


@dataclass(frozen=True)
class Ceilings:
    """At one share, from so many coalitions and seeds."""

    share: float
    coalitions: int
    seeds: int
    spearman: Ceiling
    pearson: Ceiling


@dataclass(frozen=True)
class Difference:
    """A contender's LDS less that of ``against``, over the same coalitions."""

    contender: str
    against: str
    share: float
    spearman: Estimate

    @property
    def verdict(self) -> str:
        if not isfinite(self.spearman.value):
            return "no score"
        if self.spearman.low > 0:
            return "better"
        return "worse" if self.spearman.high < 0 else "not told apart"


@dataclass(frozen=True)
class LDS:
    """One property's scores and differences, contenders in the order given within each share, and its ceilings."""

    against: str
    confidence: float
    scores: tuple[Score, ...]
    ceilings: tuple[Ceilings, ...]
    differences: tuple[Difference, ...]

    @property
    def middle(self) -> float:
        """The share nearest to one half."""
        return min((each.share for each in self.ceilings), key=lambda share: abs(share - 0.5))

    def at(self, share: float) -> tuple[Score, ...]:
        return tuple(score for score in self.scores if score.share == share)

    def ceilings_at(self, share: float) -> Ceilings:
        return next(each for each in self.ceilings if each.share == share)


def lds(
    truths: Sequence[Truth],
    contenders: Sequence[Contender],
    *,
    against: str | None = None,
    confidence: float = 0.95,
) -> LDS:
    """Scores of every contender at every share, and how each differs from ``against`` (None: the first)."""
    _check(truths, contenders)
    names = [contender.name for contender in contenders]
    reference = names[0] if against is None else against
    if reference not in names:
        raise UserError(f"LDS: against {reference!r}; accepted: {', '.join(names)}")
    scores: list[Score] = []
    differences: list[Difference] = []
    for truth in truths:
        seeds, means = truth.values.T, mean_over_seeds(truth.values)
        ceiling = _known_ceiling(truth, confidence)
        found = {}
        for contender in contenders:
            said = predictions(contender.credits, truth.coalitions)
            spearman = found[contender.name] = jackknifed_correlation(said, means, "spearman")
            by_seed = np.array([correlation(said, seed, "spearman") for seed in seeds])
            scores.append(
                Score(
                    contender,
                    truth.share,
                    correlation_interval(spearman, confidence),
                    correlation_with_interval(said, means, "pearson", confidence),
                    tuple(float(score) for score in by_seed),
                    seeds_interval(by_seed, confidence),
                    None if ceiling is None else jackknife_interval(spearman / ceiling, confidence),
                )
            )
        differences += [
            Difference(name, reference, truth.share, jackknife_interval(each - found[reference], confidence))
            for name, each in found.items()
            if name != reference
        ]
    ceilings = tuple(_ceilings(truth, confidence) for truth in truths)
    return LDS(reference, confidence, tuple(scores), ceilings, tuple(differences))


def _known_ceiling(truth: Truth, confidence: float) -> FloatArray | None:
    """(B + 1,): what F without noise would reach, jackknifed, unless that may be 0: nothing is a part of 0."""
    seeds = truth.values.shape[1]
    if seeds == 1:
        return None
    split = jackknifed_split(truth.values, "spearman")
    known = correlation_interval(split, confidence).low > 0
    return replicate_ceiling(split, seeds, "spearman") if known else None


def _ceilings(truth: Truth, confidence: float) -> Ceilings:
    count, seeds = truth.values.shape
    means = mean_over_seeds(truth.values)
    additive = additive_predictions(truth.coalitions, means)

    def ceiling(kind: Kind) -> Ceiling:
        reached = correlation_with_interval(additive, means, kind, confidence)
        if seeds == 1:
            return Ceiling(None, None, reached)
        split = jackknifed_split(truth.values, kind)
        replicates = replicate_ceiling_interval(split, seeds, kind, confidence)
        return Ceiling(correlation_interval(split, confidence), replicates, reached)

    return Ceilings(truth.share, count, seeds, ceiling("spearman"), ceiling("pearson"))


def _check(truths: Sequence[Truth], contenders: Sequence[Contender]) -> None:
    if not truths or not contenders:
        raise UserError(f"LDS: {len(truths)} shares of truth and {len(contenders)} contenders; needs one of each")
    keys = {
        "contender": [contender.name for contender in contenders],
        "share": [f"{truth.share:g}" for truth in truths],
    }
    for what, each in keys.items():
        for twice in each:
            if each.count(twice) > 1:
                raise UserError(f"LDS: {what} {twice} is there twice; they must differ")
    for truth in truths:
        where, count = f"LDS, truth of share {truth.share:g}", len(truth.coalitions)
        if count < LEAST_ROWS:
            raise UserError(f"{where}: {count} coalitions; an interval needs at least {LEAST_ROWS}")
        if truth.values.ndim != 2 or len(truth.values) != count or truth.values.shape[1] == 0:
            raise UserError(f"{where}: values {truth.values.shape}; expected ({count}, R) for R ≥ 1 seeds")
        if not np.isfinite(truth.values).all():
            row, seed = np.argwhere(~np.isfinite(truth.values))[0]
            raise UserError(f"{where}: the value of coalition {row}, seed {seed} is not a finite number")
        n = truth.coalitions.shape[1]
        for contender in contenders:
            if contender.credits.shape != (n,):
                raise UserError(
                    f"LDS, {contender.name}: credits {contender.credits.shape}; the truth has {n} contributors"
                )
    for contender in contenders:
        if not np.isfinite(contender.credits).all():
            first = int(np.argmin(np.isfinite(contender.credits)))
            raise UserError(f"LDS, {contender.name}: the credit of contributor {first} is not a finite number")


def lds_section(results: Mapping[str, LDS]) -> Section:
    """``results`` by the properties' titles."""
    return Section(
        part="lds",
        title="Do the credits order models that were retrained without some contributors?",
        summary=tuple(sentence for title, result in results.items() for sentence in _sentences(title, result)),
        tables=(
            _score_table(results),
            _difference_table(results),
            _ceiling_table(results),
            _detail_table(results),
        ),
        figures=tuple(
            _figure(index, title, result)
            for index, (title, result) in enumerate(results.items(), start=1)
            if any(isfinite(score.spearman.value) for score in result.scores)
        ),
        caveats=(
            "The score is a rank correlation: it tells whether coalitions are put in the right order, not whether the "
            "sizes of credits are right. It can favour other additive values, such as Banzhaf's, over the Shapley "
            "value.",
            "Intervals speak of other coalitions of the same size and other training seeds together. Intervals over "
            "seeds alone, as papers give them, hold for the coalitions at hand only.",
            "The ceiling of F without noise follows from how far seeds agree; it may be too high, by up to 0.2, where "
            "a few coalitions stand far out, and there is none where they do not agree, which few coalitions may do by "
            "chance.",
            "The additive ceiling is what an additive model learns from these coalitions' own retrained models, each "
            "foretold from the others. With few coalitions it learns less than there is: a method may exceed it. Its "
            "interval is somewhat short.",
            "Each difference is judged by itself: among twenty methods that are as good as the one they are compared "
            "with, one is likely to be called better or worse by chance.",
            *_at_random(results),
        ),
    )


def _at_random(results: Mapping[str, LDS]) -> list[str]:
    """What chance does to a ranking at random, where there is one: the credits of n contributors, put in any order,
    correlate with others by 0 ± 1/√(n − 1)."""
    contenders = (each.contender for result in results.values() for each in result.scores)
    counts = {len(each.credits) for each in contenders if each.name == RANDOM}
    return [
        f"{RANDOM} is one draw: over {n} contributors the score of such has a standard deviation of about "
        f"{1 / sqrt(n - 1):.2f} about 0, and its interval, over coalitions, says nothing of that."
        for n in sorted(counts)
        if n > 1
    ]


def _score_table(results: Mapping[str, LDS]) -> Table:
    """A row a method, best first, and above them the ceilings; a column a share."""
    shares = sorted({each.share for result in results.values() for each in result.ceilings})
    rows: list[tuple[Cell, ...]] = []
    for title, result in results.items():
        ceilings = {each.share: each.spearman for each in result.ceilings}
        for name in (REPLICATES, ADDITIVE):
            rows.append((title, name, None, None, *(_ceiling_lines(ceilings.get(share)).get(name) for share in shares)))
        for contender in _best_first(result):
            found = {each.share: each.spearman for each in result.scores if each.contender is contender}
            rows.append(
                (
                    title,
                    contender.name,
                    contender.category,
                    contender.recipe or None,
                    *(_known(found.get(share)) for share in shares),
                )
            )
    columns = ("property", "method", "category", "retraining", *(f"LDS, share {share:g}" for share in shares))
    return Table("lds-scores", "LDS, best first, with its ceilings", columns, tuple(rows))


def _difference_table(results: Mapping[str, LDS]) -> Table:
    rows = []
    for title, result in results.items():
        order = [contender.name for contender in _best_first(result)]
        rows += [
            (title, each.share, each.contender, each.against, _known(each.spearman), each.verdict)
            for each in sorted(result.differences, key=lambda each: (each.share, order.index(each.contender)))
        ]
    columns = ("property", "share", "method", "compared with", "difference of LDS", "verdict")
    return Table("lds-differences", "Differences over the same coalitions", columns, tuple(rows))


def _ceiling_table(results: Mapping[str, LDS]) -> Table:
    rows = [
        (
            title,
            each.share,
            each.coalitions,
            each.seeds,
            *(
                _known(found)
                for ceiling in (each.spearman, each.pearson)
                for found in (ceiling.split, ceiling.replicates, ceiling.additive)
            ),
        )
        for title, result in results.items()
        for each in result.ceilings
    ]
    found = ("one seed against another", "F without noise", "additive model of the truth")
    columns = tuple(f"{name}, {kind}" for kind, name in product(("Spearman", "Pearson"), found))
    title = "Ceilings: what could be reached against the mean over seeds"
    return Table("lds-ceilings", title, ("property", "share", "coalitions", "seeds", *columns), tuple(rows))


def _detail_table(results: Mapping[str, LDS]) -> Table:
    most = max((len(score.seeds) for result in results.values() for score in result.scores), default=0)
    rows = [
        (
            title,
            share,
            score.contender.name,
            *(_known(each) for each in (score.spearman, score.pearson, score.of_ceiling, score.over_seeds)),
            *(value if isfinite(value) else None for value in score.seeds),
            *(None for _ in range(most - len(score.seeds))),
        )
        for title, result in results.items()
        for share in (each.share for each in result.ceilings)
        for contender in _best_first(result)
        for score in result.at(share)
        if score.contender is contender
    ]
    columns = (
        "property",
        "share",
        "method",
        "LDS",
        "Pearson's correlation",
        "LDS as a part of the ceiling of F without noise",
        "mean LDS over seeds, interval over seeds alone",
        *(f"LDS against seed {seed}" for seed in range(1, most + 1)),
    )
    return Table("lds-details", "Every score, by seed too", columns, tuple(rows))


def _figure(index: int, title: str, result: LDS) -> Figure:
    panels: dict[str, dict[str, Estimate]] = {}
    lines: dict[str, dict[str, Estimate]] = {}
    order = _best_first(result)
    for each in result.ceilings:
        found = {score.contender.name: score.spearman for score in result.at(each.share)}
        panel = f"share {each.share:g} of the contributors"
        panels[panel] = {contender.name: found[contender.name] for contender in order}
        lines[panel] = {name: line for name, line in _ceiling_lines(each.spearman).items() if line is not None}
    caption = (
        f"LDS of every method for {title}, with {_percent(result.confidence)} intervals over coalitions, by the share "
        "of contributors that the models were retrained on; best first at the share nearest to a half. Dashed lines: "
        f"the ceilings with their intervals. In bold: {result.against}, which the others are compared with."
    )
    return forest(f"lds-{index}", f"LDS: {title}", caption, panels, "LDS", lines, marked=result.against)


def _sentences(title: str, result: LDS) -> list[str]:
    share, ceilings = result.middle, result.ceilings_at(result.middle)
    scores = {score.contender.name: score.spearman for score in result.at(share)}
    lead = scores[result.against]
    if not any(isfinite(each.value) for each in scores.values()) and not isfinite(ceilings.spearman.additive.value):
        return [
            f"{title}: models retrained on {_percent(share)} of the contributors all have one value; none to order."
        ]
    counted = f"{ceilings.coalitions} held-out coalitions of {_percent(share)} of the contributors"
    if not isfinite(lead.value):
        return [f"{title}: {result.against} foretells the same for all of {counted}; it has no score."]
    said = [
        f"{title}: {result.against} orders {counted} with a rank correlation (LDS) of "
        f"{in_words(lead, interval=f'{_percent(result.confidence)} interval ')}, where 1 is perfect and 0 is chance."
    ]
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
        said.append(f"Its ceilings: {'; '.join(reached)}.")
    if ceilings.seeds == 1:
        said.append("With one training seed a coalition, what noise takes from the score is not known.")
    here = [each for each in result.differences if each.share == share and isfinite(each.spearman.value)]
    for verdict, words in (
        ("worse", "It beats"),
        ("better", "It is beaten by"),
        ("not told apart", "It cannot be told from"),
    ):
        # The strongest first: they are what the reader asks for.
        found = sorted((each for each in here if each.verdict == verdict), key=lambda each: -each.spearman.value)
        if found:
            named = [f"{each.contender} {_margin(each)}" for each in found[:NAMED]]
            more = [f"{len(found) - NAMED} more"] if len(found) > NAMED else []
            said.append(f"{words} {_listed(named + more)}.")
    best = _best_baselines(result)
    if best:
        named = [f"{score.contender.name} ({kind}, {worded(score.spearman.value)})" for kind, score in best.items()]
        said.append(f"The best baseline of each kind, with its LDS: {_listed(named)}.")
    silent = [name for name, each in scores.items() if not isfinite(each.value)]
    if silent:
        said.append(f"No score for {_listed(silent)}: the same prediction for all coalitions.")
    return said


def _best_baselines(result: LDS) -> dict[str, Score]:
    """By category, the best first: those that rest on no retraining, by their LDS at the middle share."""
    order = [contender.name for contender in _best_first(result)]
    known = [score for score in result.at(result.middle) if isfinite(score.spearman.value)]
    best: dict[str, Score] = {}
    for score in sorted(known, key=lambda score: order.index(score.contender.name)):
        if not score.contender.recipe and score.contender.name != result.against:
            best.setdefault(score.contender.category, score)
    return best


def _best_first(result: LDS) -> list[Contender]:
    """By the LDS at the middle share; those without any come last."""
    scores = result.at(result.middle)
    worst = -2.0  # below any correlation
    ranked = sorted(scores, key=lambda score: -(score.spearman.value if isfinite(score.spearman.value) else worst))
    return [score.contender for score in ranked]


def _ceiling_lines(ceiling: Ceiling | None) -> dict[str, Estimate | None]:
    if ceiling is None:
        return {}
    replicates = _known(ceiling.replicates)
    # seeds that do not agree tell no ceiling
    told = replicates if replicates is not None and replicates.value > 0 else None
    return {REPLICATES: told, ADDITIVE: _known(ceiling.additive)}


def _known(estimate: Estimate | None) -> Estimate | None:
    return estimate if estimate is not None and isfinite(estimate.value) else None


def _margin(difference: Difference) -> str:
    found = difference.spearman
    if difference.verdict == "not told apart":
        return f"({worded(found.low, '+.2f')} to {worded(found.high, '+.2f')} against it)"
    low, high = sorted((abs(found.low), abs(found.high)))
    return f"by {abs(found.value):.2f} ({low:.2f} to {high:.2f})"


def _percent(part: float) -> str:
    return f"{100 * part:.4g} %"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
