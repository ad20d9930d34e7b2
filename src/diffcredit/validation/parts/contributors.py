"""Is there something that the contributors with the highest credits have in common?"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.baselines.controls import ApplicationScores
from diffcredit.baselines.similarity import ClusterDistance
from diffcredit.baselines.study import study_evidence
from diffcredit.errors import UserError
from diffcredit.properties.base import has_value_of_each
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.data import PartWork, ValidationData
from diffcredit.validation.presentation.figures import boxes
from diffcredit.validation.presentation.photographs import framed
from diffcredit.validation.presentation.sections import (
    Cell,
    Figure,
    PartResult,
    Photograph,
    Section,
    Table,
    property_summary,
    property_table,
    worded,
)
from diffcredit.validation.statistics.contributors import (
    LEAST_GROUP,
    ContributorsResult,
    by_credit,
    compare_contributors,
)
from diffcredit.validation.statistics.intervals import LEAST_ROWS
from diffcredit.validation.statistics.records import Estimate

SHOWN = 20  # contributors at either end of a figure
STRIPS, STRIP_IMAGES = 5, 5
CLUSTERS = 20


def work(data: ValidationData) -> list[PartWork]:
    """Need nothing: the study's own credits and images are enough."""
    return []


def result(data: ValidationData) -> PartResult[Mapping[str, ContributorsResult]]:
    contributions, credits = data.study.contributions, data.study.credits()
    theirs = ~contributions.house
    owner, images, who = contributions.owner[theirs], contributions.images[theirs], contributions.contributors
    scores = {title: score[theirs] for title, score in _image_scores(data).items()}
    results: dict[str, ContributorsResult] = {}
    photographs: list[Photograph] = []
    for index, name in enumerate(data.names, start=1):
        if name not in credits:
            continue
        sign, each = 1 if data.properties[name].higher_is_better else -1, credits[name]
        estimates = [
            Estimate(sign * value, *sorted((sign * low, sign * high)))
            for value, low, high in zip(each.rounded, each.low, each.high, strict=True)
        ]
        found = results[data.title(name)] = compare_contributors(scores, owner, who, estimates)
        own = _title_of_each(data, data.fitted_property(name))
        measure = own if own in scores else next(iter(scores))
        if found.top:
            photographs += strips(f"strips-{index}", images, owner, who, estimates, measure, scores[measure])
    if not results:
        raise UserError(f"no credits of {', '.join(data.names)} yet; diffcredit run comes first")
    return PartResult(results, tuple(photographs))


def _image_scores(data: ValidationData) -> dict[str, FloatArray]:
    """Score every training image by each property of single images, and by nearness to the base model's clusters."""
    study, scores = data.study, {}
    for prop in study.prepared.properties:
        if has_value_of_each(prop):
            scores[_title_of_each(data, prop)] = ApplicationScores().scores(study_evidence(study, prop))
    near = ClusterDistance(clusters=max(2, min(CLUSTERS, len(study.prepared.generated_images()) // 2)))
    scores["nearness to the base model's clusters"] = near.scores(study_evidence(study))
    return scores


def _title_of_each(data: ValidationData, prop: Any) -> str:
    """Return the property's own ``title_of_each`` where no other has the same, otherwise its title."""
    titles = [getattr(each, "title_of_each", None) for each in data.study.prepared.properties]
    own = getattr(prop, "title_of_each", None)
    return own if own is not None and titles.count(own) == 1 else data.title(prop.name)


def strips(
    name: str,
    images: NDArray[np.uint8],
    owner: NDArray[np.integer],
    names: Sequence[str],
    credits: Sequence[Estimate],
    measure: str,
    scores: FloatArray,
) -> tuple[Photograph, Photograph]:
    """Show the contributors with the highest and with the lowest credits, at most five each, in one row each: the
    images (of (m, h, w, 3)) with the highest ``scores`` (m,), then those with the lowest, at most five each."""
    order = by_credit(credits)
    shown = min(STRIPS, (len(order) + 1) // 2)
    ends = ((order[:shown], "highest", "top"), (order[::-1][: min(shown, len(order) // 2)], "lowest", "bottom"))
    first, second = (
        Photograph(
            f"{name}-{word}",
            f"Contributors with the {extreme} credits",
            f"Rows from top to bottom: {'; '.join(names[i] for i in chosen)}. In each the images with the highest "
            f"{measure} (at most {STRIP_IMAGES}, highest first), then those with the lowest, lowest last.",
            framed([images[_ends(np.flatnonzero(owner == i), scores)] for i in chosen]),
        )
        for chosen, extreme, word in ends
    )
    return first, second


def section(result: PartResult[Mapping[str, ContributorsResult]]) -> Section:
    results = result.numbers
    traits = property_table(
        "contributors-top-fifth",
        "The top fifth against the rest, medians",
        ("measure", "top fifth", "rest", "difference"),
        results,
        lambda result: [(trait.title, trait.top, trait.rest, trait.difference) for trait in result.traits],
    )
    correlations = property_table(
        "contributors-correlation",
        "Spearman's correlation of median scores with credits",
        ("measure", "correlation"),
        results,
        lambda result: [
            (each.title, None if np.isnan(each.correlation.value) else each.correlation) for each in result.measures
        ],
    )
    return Section(
        part="contributors",
        title="What the top contributors have in common",
        summary=(*property_summary(results, _summary), *_too_few(results)),
        tables=(traits, correlations, _qualities(results)),
        figures=tuple(_figure(index, *item) for index, item in enumerate(results.items(), start=1)),
        photographs=result.photographs,
        caveats=(
            "What goes with high credits need not cause them.",
            "Intervals are over contributors and take credits as they are; each holds on its own, not all at once.",
            f"Correlations of fewer than {LEAST_ROWS} contributors, or that are perfect without one of them, and "
            f"differences of groups of fewer than {LEAST_GROUP} have no interval.",
        ),
    )


def _ends(rows: NDArray[np.intp], score: FloatArray) -> NDArray[np.intp]:
    order = rows[np.argsort(-score[rows], kind="stable")]
    return order if len(order) <= 2 * STRIP_IMAGES else np.concatenate([order[:STRIP_IMAGES], order[-STRIP_IMAGES:]])


def _summary(title: str, result: ContributorsResult) -> Iterator[str]:
    if not result.top:
        yield f"{title}: all contributors have the same credit, so that there is no top fifth."
        return
    count, top = len(result.top), ", ".join(result.top[:SHOWN])
    more = f" and {count - SHOWN} more" if count > SHOWN else ""
    yield f"{title}: the top fifth by credit is {top}{more}."
    differing = [
        f"{'higher' if trait.difference.value > 0 else 'lower'} {trait.title} "
        f"(median {worded(trait.top, '.3g')} against {worded(trait.rest, '.3g')})"
        for trait in result.traits
        if trait.difference.low > 0 or trait.difference.high < 0
    ]
    if differing:
        yield f"{title}: the top fifth differs from the rest in {'; '.join(differing)}."
    elif not _unknown(result):
        yield f"{title}: no measure distinguishes the top fifth from the rest."
    constant = [measure.title for measure in result.measures if np.isnan(measure.correlation.value)]
    if constant:
        yield f"{title}: no correlation with {', '.join(constant)}, where medians or credits are all equal."


def _unknown(result: ContributorsResult) -> tuple[str, ...]:
    return tuple(trait.title for trait in result.traits if not trait.difference.bounded)


def _too_few(results: Mapping[str, ContributorsResult]) -> list[str]:
    """Write one sentence for all properties with the same unknown traits."""
    unknown: dict[tuple[str, ...], list[str]] = {}
    for title, result in results.items():
        unknown.setdefault(_unknown(result), []).append(title)
    return [
        f"{'; '.join(titles)}: too few contributors to compare the top fifth with the rest in {', '.join(traits)}."
        for traits, titles in unknown.items()
        if traits
    ]


def _qualities(results: Mapping[str, ContributorsResult]) -> Table:
    def rows(result: ContributorsResult) -> Iterator[tuple[Cell, ...]]:
        for measure in result.measures:
            for each in measure.qualities:
                quartiles = np.percentile(each.scores, [25, 50, 75]).tolist()
                about = (measure.title, each.contributor, each.credit, len(each.scores))
                yield (*about, *quartiles, float(each.scores.mean()), each.share)

    columns = (
        *("measure", "contributor", "credit", "images"),
        *("lower quartile", "median", "upper quartile", "mean", "share above the 90th percentile"),
    )
    return property_table("contributors", "Images' scores by contributor", columns, results, rows)


def _figure(index: int, title: str, result: ContributorsResult) -> Figure:
    count = len(result.measures[0].qualities)
    panels = {
        measure.title: {
            quality.contributor: quality.scores
            for rank, quality in enumerate(measure.qualities)
            if rank < SHOWN or rank >= count - SHOWN
        }
        for measure in result.measures
    }
    which = f"the {SHOWN} highest and {SHOWN} lowest of {count}" if count > 2 * SHOWN else "all contributors"
    return boxes(
        f"contributors-{index}",
        f"Scores of contributed images, ordered by credit for {title}",
        f"Box plots of each contributor's images, the highest credit for {title} on top: {which}.",
        panels,
        "score of an image",
    )
