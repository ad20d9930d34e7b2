"""What the images of highly credited contributors are like: scores per image, contributor by contributor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.credit.correlations import correlation
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.util.seeds import derive_seed
from diffcredit.validation.counterfactual import share_count
from diffcredit.validation.figures import boxes
from diffcredit.validation.photographs import framed
from diffcredit.validation.records import Estimate
from diffcredit.validation.sections import Cell, Figure, Photograph, Section, Table
from diffcredit.validation.statistics import LEAST_ROWS, correlation_with_interval
from diffcredit.validation.wording import worded

TOP = 20  # per cent of the contributors
PERCENTILE = 90
SHOWN = 20  # contributors at either end of a figure
STRIPS, STRIP_IMAGES = 5, 5
RESAMPLES = 2000
LEAST_GROUP = 4  # below, intervals cover too seldom: see `median_difference`
NUMBER_OF_IMAGES = "number of images"


@dataclass(frozen=True)
class Quality:
    """One measure of one contributor's images: quartiles, mean, and the ``share`` of them above the 90th percentile of
    all images."""

    contributor: str
    images: int
    credit: Estimate
    lower: float
    median: float
    upper: float
    mean: float
    share: float


@dataclass(frozen=True, eq=False)
class Measure:
    """A score per image by its ``title``: ``qualities`` with the highest credit first, ``samples`` their scores,
    ``correlation`` Spearman's of contributors' medians with their credits."""

    title: str
    qualities: tuple[Quality, ...]
    samples: tuple[FloatArray, ...]
    correlation: Estimate


@dataclass(frozen=True)
class Trait:
    """The medians over contributors, of their own medians (or of their numbers of images), among the ``top`` fifth by
    credit and among the ``rest``, and their difference."""

    title: str
    top: float
    rest: float
    difference: Estimate


@dataclass(frozen=True, eq=False)
class Contributors:
    """``top`` are the fifth with the highest credits, best first; none where all credits are equal, nor ``traits``."""

    top: tuple[str, ...]
    measures: tuple[Measure, ...]
    traits: tuple[Trait, ...]


def contributors(
    scores: Mapping[str, ArrayLike],
    owner: ArrayLike,
    names: Sequence[str],
    credits: Sequence[Estimate],
    *,
    seed: int = 0,
) -> Contributors:
    """``scores`` (m,) of the m contributed images by the measure's title, ``owner`` (m,) the index of each image's
    contributor in ``names``, ``credits`` of one property as helpfulness, in the same order."""
    whose = np.asarray(owner)
    values = {title: np.asarray(score, np.float64) for title, score in scores.items()}
    _check(values, whose, names, credits)
    order = by_credit(credits)
    differ = len({credit.value for credit in credits}) > 1
    top = order[: share_count(TOP, len(names))] if differ else order[:0]
    measures = tuple(_measure(title, score, whose, names, credits, order) for title, score in values.items())
    traits: list[Trait] = []
    if differ:
        for measure in measures:
            medians = np.array([quality.median for quality in measure.qualities])  # best first, so the top come first
            traits.append(_trait(measure.title, medians, len(top), seed))
        counts = np.bincount(whose, minlength=len(names))
        traits.append(_trait(NUMBER_OF_IMAGES, counts[order].astype(np.float64), len(top), seed))
    return Contributors(tuple(names[i] for i in top), measures, tuple(traits))


def by_credit(credits: Sequence[Estimate]) -> NDArray[np.intp]:
    """Contributors' indices, the highest credit first; equal ones stay in order."""
    return np.argsort([-credit.value for credit in credits], kind="stable")


def median_difference(
    top: FloatArray, rest: FloatArray, seed: int = 0, confidence: float = 0.95, resamples: int = RESAMPLES
) -> Estimate:
    """median(top) − median(rest) of (k,) and (l,), with the percentile interval of the bootstrap that draws
    contributors anew within both. In simulations it covers at 92 to 97 % where both have at least 4, at 82 to 91 % with
    2 or 3; then there are no bounds."""
    value = float(np.median(top) - np.median(rest))
    if min(len(top), len(rest)) < LEAST_GROUP:
        return Estimate(value)
    generator = np.random.Generator(np.random.PCG64(derive_seed("contributors", seed)))
    first, second = (
        np.median(sample[(generator.random((resamples, len(sample))) * len(sample)).astype(np.intp)], axis=1)
        for sample in (top, rest)
    )
    low, high = np.quantile(first - second, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(value, float(low), float(high))


def strips(
    name: str,
    images: NDArray[np.uint8],
    owner: ArrayLike,
    names: Sequence[str],
    credits: Sequence[Estimate],
    measure: str,
    scores: ArrayLike,
) -> tuple[Photograph, Photograph]:
    """The contributors with the highest and those with the lowest credits, at most five each, one row a contributor:
    its images (of (m, h, w, 3)) with the highest ``scores`` (m,), then those with the lowest, at most five each."""
    whose, score = np.asarray(owner), np.asarray(scores, np.float64)
    _check({measure: score}, whose, names, credits)
    if len(images) != len(whose):
        raise UserError(f"contributors: {len(images)} images of {len(whose)} owners; expected one owner an image")
    order = by_credit(credits)
    shown = min(STRIPS, (len(order) + 1) // 2)
    ends = ((order[:shown], "highest", "top"), (order[::-1][: min(shown, len(order) // 2)], "lowest", "bottom"))
    first, second = (
        Photograph(
            f"{name}-{word}",
            f"Contributors with the {extreme} credits",
            f"Rows from top to bottom: {'; '.join(names[i] for i in chosen)}. In each the images with the highest "
            f"{measure} (at most {STRIP_IMAGES}, highest first), then those with the lowest, lowest last.",
            framed([images[_ends(np.flatnonzero(whose == i), score)] for i in chosen]),
        )
        for chosen, extreme, word in ends
    )
    return first, second


def contributors_section(results: Mapping[str, Contributors], photographs: Sequence[Photograph] = ()) -> Section:
    """``results`` by the properties' titles."""
    if not results:
        raise UserError("contributors: 0 properties; at least 1 is needed")
    return Section(
        part="contributors",
        title="What the top contributors have in common",
        summary=(
            *(sentence for title, result in results.items() for sentence in _summary(title, result)),
            *_too_few(results),
        ),
        tables=(_traits(results), _correlations(results), _qualities(results)),
        figures=tuple(_figure(index, *item) for index, item in enumerate(results.items(), start=1)),
        photographs=tuple(photographs),
        caveats=(
            "What goes with high credits need not cause them.",
            "Intervals are over contributors and take credits as they are; each holds on its own, not all at once.",
            f"Correlations of fewer than {LEAST_ROWS} contributors, or that are perfect without one of them, and "
            f"differences of groups of fewer than {LEAST_GROUP} have no interval.",
        ),
    )


def _measure(
    title: str,
    score: FloatArray,
    owner: NDArray[np.integer],
    names: Sequence[str],
    credits: Sequence[Estimate],
    order: NDArray[np.intp],
) -> Measure:
    threshold = np.percentile(score, PERCENTILE)
    samples = tuple(score[owner == i] for i in order)
    qualities = tuple(
        Quality(
            names[i],
            len(sample),
            credits[i],
            *(float(x) for x in np.percentile(sample, [25, 50, 75])),
            mean=float(sample.mean()),
            share=float((sample > threshold).mean()),
        )
        for i, sample in zip(order, samples, strict=True)
    )
    medians = np.array([quality.median for quality in qualities])
    return Measure(title, qualities, samples, _correlated(medians, np.array([credits[i].value for i in order])))


def _correlated(medians: FloatArray, credits: FloatArray) -> Estimate:
    """Spearman's correlation of (n,) and (n,). In simulations of 10 to 50 normal pairs with a correlation of 0 to .95
    its interval covers at 95 to 98 %; so few as 10 that correlate at .95 have none in one case of eight."""
    if len(medians) < LEAST_ROWS:
        return Estimate(correlation(medians, credits, "spearman"))
    return correlation_with_interval(medians, credits, "spearman")


def _trait(title: str, values: FloatArray, count: int, seed: int) -> Trait:
    """Of ``values`` (n,), the first ``count`` of which are the top's."""
    top, rest = values[:count], values[count:]
    return Trait(title, float(np.median(top)), float(np.median(rest)), median_difference(top, rest, seed))


def _ends(rows: NDArray[np.intp], score: FloatArray) -> NDArray[np.intp]:
    """The rows with the highest scores, then those with the lowest, none twice."""
    order = rows[np.argsort(-score[rows], kind="stable")]
    return order if len(order) <= 2 * STRIP_IMAGES else np.concatenate([order[:STRIP_IMAGES], order[-STRIP_IMAGES:]])


def _summary(title: str, result: Contributors) -> list[str]:
    if not result.top:
        return [f"{title}: all contributors have the same credit, so that there is no top fifth."]
    count, top = len(result.top), ", ".join(result.top[:SHOWN])
    more = f" and {count - SHOWN} more" if count > SHOWN else ""
    sentences = [f"{title}: the top fifth by credit is {top}{more}."]
    told = [
        f"{'higher' if trait.difference.value > 0 else 'lower'} {trait.title} "
        f"(median {worded(trait.top, '.3g')} against {worded(trait.rest, '.3g')})"
        for trait in result.traits
        if trait.difference.low > 0 or trait.difference.high < 0
    ]
    if told:
        sentences.append(f"{title}: the top fifth differs from the rest in {'; '.join(told)}.")
    elif not _unknown(result):
        sentences.append(f"{title}: no measure tells the top fifth from the rest.")
    constant = [measure.title for measure in result.measures if np.isnan(measure.correlation.value)]
    if constant:
        sentences.append(f"{title}: no correlation with {', '.join(constant)}, where medians or credits are all equal.")
    return sentences


def _unknown(result: Contributors) -> tuple[str, ...]:
    """The traits whose difference has no interval."""
    return tuple(
        trait.title for trait in result.traits if not np.isfinite([trait.difference.low, trait.difference.high]).all()
    )


def _too_few(results: Mapping[str, Contributors]) -> list[str]:
    """One sentence for all properties that lack the same."""
    lacking: dict[tuple[str, ...], list[str]] = {}
    for title, result in results.items():
        lacking.setdefault(_unknown(result), []).append(title)
    return [
        f"{'; '.join(titles)}: too few contributors to tell the top fifth from the rest in {', '.join(traits)}."
        for traits, titles in lacking.items()
        if traits
    ]


def _traits(results: Mapping[str, Contributors]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (title, trait.title, trait.top, trait.rest, trait.difference)
        for title, result in results.items()
        for trait in result.traits
    ]
    columns = ("property", "measure", "top fifth", "rest", "difference")
    return Table("contributors-top-fifth", "The top fifth against the rest, medians", columns, tuple(rows))


def _correlations(results: Mapping[str, Contributors]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (title, measure.title, None if np.isnan(measure.correlation.value) else measure.correlation)
        for title, result in results.items()
        for measure in result.measures
    ]
    columns = ("property", "measure", "correlation")
    return Table(
        "contributors-correlation", "Spearman's correlation of median scores with credits", columns, tuple(rows)
    )


def _qualities(results: Mapping[str, Contributors]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            title,
            measure.title,
            quality.contributor,
            quality.credit,
            quality.images,
            quality.lower,
            quality.median,
            quality.upper,
            quality.mean,
            quality.share,
        )
        for title, result in results.items()
        for measure in result.measures
        for quality in measure.qualities
    ]
    columns = (
        "property",
        "measure",
        "contributor",
        "credit",
        "images",
        "lower quartile",
        "median",
        "upper quartile",
        "mean",
        "share above the 90th percentile",
    )
    return Table("contributors", "Images' scores by contributor", columns, tuple(rows))


def _figure(index: int, title: str, result: Contributors) -> Figure:
    panels = {
        measure.title: {
            quality.contributor: sample
            for rank, (quality, sample) in enumerate(zip(measure.qualities, measure.samples, strict=True))
            if rank < SHOWN or rank >= len(measure.qualities) - SHOWN
        }
        for measure in result.measures
    }
    count = max((len(measure.qualities) for measure in result.measures), default=0)
    which = f"the {SHOWN} highest and {SHOWN} lowest of {count}" if count > 2 * SHOWN else "all contributors"
    return boxes(
        f"contributors-{index}",
        f"Scores of contributed images, ordered by credit for {title}",
        f"Box plots of each contributor's images, the highest credit for {title} on top: {which}.",
        panels,
        "score of an image",
    )


def _check(
    scores: Mapping[str, FloatArray], owner: NDArray[np.integer], names: Sequence[str], credits: Sequence[Estimate]
) -> None:
    n = len(names)
    if n < 2 or len(credits) != n:
        raise UserError(f"contributors: {n} names and {len(credits)} credits; expected as many, at least 2")
    if not np.isfinite([credit.value for credit in credits]).all():
        raise UserError("contributors: credits must be finite numbers")
    if len(set(names)) != n:
        raise UserError("contributors: names must differ")
    if not scores:
        raise UserError("contributors: 0 measures; at least 1 is needed")
    for title, score in scores.items():
        if score.shape != owner.shape or score.ndim != 1 or not np.isfinite(score).all():
            raise UserError(
                f"contributors: {title} has scores {score.shape} of {owner.shape} images; expected one finite each"
            )
    found = np.unique(owner)
    if not np.array_equal(found, np.arange(n)):
        raise UserError(f"contributors: owners {found.tolist()[:20]}; expected each of 0 to {n - 1} at least once")
