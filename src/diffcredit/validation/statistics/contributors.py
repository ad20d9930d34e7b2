"""Traits of the images of highly credited contributors: scores of single images, by contributor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diffcredit.credit.correlations import correlation
from diffcredit.util.arrays import FloatArray
from diffcredit.util.seeds import derive_seed
from diffcredit.validation.statistics.counterfactual import share_count
from diffcredit.validation.statistics.intervals import LEAST_ROWS, correlation_with_interval
from diffcredit.validation.statistics.records import Estimate

TOP = 20  # per cent of the contributors
PERCENTILE = 90
RESAMPLES, CONFIDENCE = 2000, 0.95
LEAST_GROUP = 4  # smaller groups have too low a coverage: see `median_difference`
NUMBER_OF_IMAGES = "number of images"


@dataclass(frozen=True, eq=False)
class Quality:
    """The ``scores`` of one contributor's images, and the ``share`` of them above the 90th percentile of all images."""

    contributor: str
    credit: Estimate
    scores: FloatArray
    share: float

    @property
    def median(self) -> float:
        return float(np.percentile(self.scores, 50))


@dataclass(frozen=True, eq=False)
class Measure:
    """One score of single images. ``qualities`` are by contributor, the highest credit first; ``correlation`` is
    Spearman's, of contributors' median scores with their credits."""

    title: str
    qualities: tuple[Quality, ...]
    correlation: Estimate


@dataclass(frozen=True)
class Trait:
    """The median over contributors of their own medians, or of their numbers of images, in the ``top`` fifth by credit
    and in the ``rest``, and the difference of the two."""

    title: str
    top: float
    rest: float
    difference: Estimate


@dataclass(frozen=True, eq=False)
class ContributorsResult:
    """``top`` is the fifth with the highest credits, best first. Without differences of credit there are no ``top`` and
    no ``traits``."""

    top: tuple[str, ...]
    measures: tuple[Measure, ...]
    traits: tuple[Trait, ...]


def compare_contributors(
    scores: Mapping[str, FloatArray], owner: NDArray[np.integer], names: Sequence[str], credits: Sequence[Estimate]
) -> ContributorsResult:
    """Compare the images of the most credited contributors with the others'. ``scores`` (m,) are of the m contributed
    images, by the measure's title, ``owner`` (m,) is the index of each image's contributor in ``names``, and
    ``credits`` are one property's, as helpfulness, in the order of the names."""
    order = by_credit(credits)
    differ = len({credit.value for credit in credits}) > 1
    top = order[: share_count(TOP, len(names))] if differ else order[:0]
    measures = tuple(_measure(title, score, owner, names, credits, order) for title, score in scores.items())
    # the highest credit first
    compared = {each.title: np.array([quality.median for quality in each.qualities]) for each in measures}
    compared[NUMBER_OF_IMAGES] = np.bincount(owner, minlength=len(names))[order].astype(np.float64)
    traits = []
    for title, values in compared.items() if differ else ():
        first, rest = values[: len(top)], values[len(top) :]
        traits.append(Trait(title, float(np.median(first)), float(np.median(rest)), median_difference(first, rest)))
    return ContributorsResult(tuple(names[i] for i in top), measures, tuple(traits))


def by_credit(credits: Sequence[Estimate]) -> NDArray[np.intp]:
    """Return contributors' indices, the highest credit first; ties keep their order."""
    return np.argsort([-credit.value for credit in credits], kind="stable")


def median_difference(top: FloatArray, rest: FloatArray, seed: int = 0) -> Estimate:
    """Return median(top) − median(rest) of (k,) and (l,), with the 95 % percentile interval of a bootstrap that redraws
    contributors within both. In simulations it covers 92 to 97 % with at least 4 in both, 82 to 91 % with 2 or 3, where
    no bounds are given."""
    value = float(np.median(top) - np.median(rest))
    if min(len(top), len(rest)) < LEAST_GROUP:
        return Estimate(value)
    generator = np.random.Generator(np.random.PCG64(derive_seed("contributors", seed)))
    first, second = (
        np.median(sample[(generator.random((RESAMPLES, len(sample))) * len(sample)).astype(np.intp)], axis=1)
        for sample in (top, rest)
    )
    low, high = np.quantile(first - second, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value, float(low), float(high))


def _measure(
    title: str,
    score: FloatArray,
    owner: NDArray[np.integer],
    names: Sequence[str],
    credits: Sequence[Estimate],
    order: NDArray[np.intp],
) -> Measure:
    high = score > np.percentile(score, PERCENTILE)
    qualities = tuple(Quality(names[i], credits[i], score[owner == i], float(high[owner == i].mean())) for i in order)
    pair = np.array([each.median for each in qualities]), np.array([each.credit.value for each in qualities])
    few = len(qualities) < LEAST_ROWS
    # in simulations of 10 to 50 normal pairs with a correlation of 0 to .95 the interval covers 95 to 98 %
    found = Estimate(correlation(*pair, "spearman")) if few else correlation_with_interval(*pair, "spearman")
    return Measure(title, qualities, found)
