"""How close each way to unlearn comes to retraining: the distance between the images of both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10

import numpy as np
from numpy.typing import NDArray

from diffcredit.errors import UserError
from diffcredit.properties.frechet import FrechetDistance, frechet_distance, moments, square_root
from diffcredit.properties.kernel_distance import mean_kernel, pairs
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.figures import forest
from diffcredit.validation.records import Estimate
from diffcredit.validation.sections import Cell, Photograph, Section, Table
from diffcredit.validation.welch import welch_estimate
from diffcredit.validation.wording import in_words

METHODS = {
    "fine_tune": "fine-tuning",
    "sparsified": "fine-tuning",
    "gradient_ascent": "gradient ascent",
    "influence": "influence",
}
"""What tables call the ways to unlearn, in their order; others follow."""

Vectors = NDArray[np.floating]
"""Feature vectors (m, d) of m images."""


@dataclass(frozen=True)
class UnlearningRecipe:
    """A recipe's ``name``, its retraining ``method``, and whether it starts from the sparse model."""

    name: str
    method: str
    sparse: bool

    @property
    def place(self) -> tuple[int, bool, str]:
        """Where it stands in a table: fine-tuning, gradient ascent, influence, others; dense before sparse."""
        kinds = list(dict.fromkeys(METHODS.values()))
        kind = METHODS.get(self.method)
        return (len(kinds) if kind is None else kinds.index(kind), self.sparse, self.name)


@dataclass(frozen=True, eq=False)
class Unlearning:
    """Distances to the images of the model retrained from scratch on the same coalition, (B,) over coalitions: of each
    recipe, of another retraining with another seed (``floor``), and of the ``base`` model, with which nothing is
    unlearned. ``measure`` names the distance, from ``images`` a model with vectors of ``dimensions``."""

    measure: str
    images: int
    dimensions: int
    distances: Mapping[UnlearningRecipe, FloatArray]
    floor: FloatArray | None
    base: FloatArray | None


def unlearning(
    features: Mapping[UnlearningRecipe, Sequence[Vectors]],
    truth: Sequence[Vectors],
    *,
    replicate: Sequence[Vectors] | None = None,
    base: Vectors | None = None,
) -> Unlearning:
    """``features``: of each recipe the vectors (m, d) of the images of B coalitions; ``truth``: those of the models
    retrained on the same coalitions, ``replicate`` with another seed; ``base``: the base model's. Sequences are read
    one coalition at a time, so that they may load what is asked for.

    The distance is Fréchet's. Its bias falls with the number of images, so that all models must have equally many, and
    as `fid` does it needs m > d; with fewer images, whose covariances would be singular, it is the kernel distance,
    which has no bias for any number.
    """
    count = len(truth)
    lengths = {recipe.name: len(sets) for recipe, sets in features.items()}
    lengths |= {"another seed": len(replicate)} if replicate is not None else {}
    for name, length in lengths.items():
        if length != count:
            raise UserError(
                f"unlearning: {name} has images of {length} coalitions, retraining of {count}; must be equal"
            )
    if not features or count == 0:
        raise UserError(f"unlearning: {len(features)} recipes on {count} coalitions; at least 1 of each is needed")
    ordered = sorted(features, key=lambda recipe: recipe.place)
    shape = np.shape(truth[0])
    if len(shape) != 2 or shape[0] < 2:
        raise UserError(f"unlearning: features of retrained models are {shape}; expected (m, d) with m ≥ 2")
    kernel = shape[0] < FrechetDistance().least(shape[1])
    rows: dict[UnlearningRecipe, list[float]] = {recipe: [] for recipe in ordered}
    floors: list[float] = []
    bases: list[float] = []
    for index in range(count):
        reference = _checked(truth[index], shape, "retrained models")
        distance = _kernel_to(reference) if kernel else _frechet_to(reference)
        for recipe in ordered:
            rows[recipe].append(distance(_checked(features[recipe][index], shape, recipe.name)))
        if replicate is not None:
            floors.append(distance(_checked(replicate[index], shape, "another seed")))
        if base is not None:
            bases.append(distance(_checked(base, shape, "the base model")))
    return Unlearning(
        measure="kernel distance" if kernel else "Fréchet distance",
        images=shape[0],
        dimensions=shape[1],
        distances={recipe: np.array(found) for recipe, found in rows.items()},
        floor=np.array(floors) if replicate is not None else None,
        base=np.array(bases) if base is not None else None,
    )


def mean_distance(distances: FloatArray, confidence: float = 0.95) -> Estimate:
    """The mean over coalitions (B,) with Student's interval; of the differences of two recipes it is the paired one."""
    return welch_estimate(float(distances.mean()), [(1, distances)], confidence)


def unlearning_section(result: Unlearning, photographs: Sequence[Photograph] = ()) -> Section:
    best = min(result.distances, key=lambda recipe: float(result.distances[recipe].mean()))
    count = len(result.distances[best])
    rows: list[tuple[Cell, ...]] = [
        (
            METHODS.get(recipe.method, recipe.method),
            "sparse" if recipe.sparse else "dense",
            recipe.name,
            mean_distance(distances),
            None if result.floor is None else mean_distance(distances - result.floor),
            None if recipe == best else mean_distance(distances - result.distances[best]),
            None if result.base is None else mean_distance(result.base - distances),
        )
        for recipe, distances in result.distances.items()
    ]
    ends = {"retrained with another seed": result.floor, "base model, nothing unlearned": result.base}
    given = {name: distances for name, distances in ends.items() if distances is not None}
    for name, distances in given.items():
        above = None if result.floor is None or distances is result.floor else mean_distance(distances - result.floor)
        below = None if result.base is None or distances is result.base else mean_distance(result.base - distances)
        rows.append((name, None, None, mean_distance(distances), above, None, below))
    title = f"{result.measure.capitalize()} to the images of the retrained model"
    columns = (
        *("unlearning", "model", "recipe", "distance"),
        *("above another seed", "above the closest", "below the base model"),
    )
    caveats = [
        f"Intervals are over {count} coalitions, those of differences over the same coalitions' differences.",
        "A distance between images does not tell what the model still knows of those who left.",
    ]
    if result.measure == "Fréchet distance":
        caveats.append(
            f"The Fréchet distance of finitely many images is too high; all models have {result.images}, so that "
            "distances may be compared with each other, and with that of another seed, not with those of other studies."
        )
    else:
        caveats.append(
            f"{result.images} images a model are too few for the Fréchet distance of {result.dimensions} features; the "
            "kernel distance has no bias for any number of images, and chance may take it a little below 0."
        )
    if count == 1:
        caveats.append("With one coalition there is no interval.")
    return Section(
        part="unlearning",
        title="How close unlearning comes to retraining",
        summary=tuple(_summary(result, best)),
        tables=(Table("unlearning", title, columns, tuple(rows), _decimals([*result.distances.values()])),),
        figures=(
            forest(
                "unlearning",
                title,
                f"Mean {result.measure} over {count} coalitions between images of unlearned and of retrained models, "
                "from the same noises; less is closer.",
                {title: {recipe.name: mean_distance(found) for recipe, found in result.distances.items()}},
                result.measure,
                {title: {name: mean_distance(distances) for name, distances in given.items()}},
            ),
        ),
        photographs=tuple(photographs),
        caveats=tuple(caveats),
    )


def _frechet_to(reference: Vectors) -> Callable[[Vectors], float]:
    mean, covariance = moments(reference)
    root = square_root(covariance)
    return lambda vectors: frechet_distance(vectors, mean, root)


def _kernel_to(reference: Vectors) -> Callable[[Vectors], float]:
    within = pairs(reference, np.zeros(len(reference)))[0].mean()
    return lambda vectors: float(pairs(vectors, mean_kernel(vectors, reference))[0].mean() + within)


def _checked(vectors: Vectors, shape: tuple[int, ...], name: str) -> Vectors:
    if np.shape(vectors) != shape:
        raise UserError(f"unlearning: features of {name} are {np.shape(vectors)}, others {shape}; all must be equal")
    if not np.isfinite(vectors).all():
        raise UserError(f"unlearning: features of {name} are not all finite numbers")
    return vectors


def _summary(result: Unlearning, best: UnlearningRecipe) -> list[str]:
    closest = _told(mean_distance(result.distances[best]))
    sentences = [f"{best.name} comes closest to retraining, with a mean {result.measure} of {closest}."]
    ends = []
    if result.floor is not None:
        ends.append(f"two retrainings with different seeds are {_told(mean_distance(result.floor))} apart")
    if result.base is not None:
        ends.append(f"the base model, with nothing unlearned, is at {_told(mean_distance(result.base))}")
    if ends:
        sentences.append(f"For comparison, {' and '.join(ends)}.")
    gaps = {
        recipe.name: mean_distance(distances - result.distances[best])
        for recipe, distances in result.distances.items()
        if recipe != best
    }
    close = [name for name, gap in gaps.items() if not gap.low > 0]
    if close:
        sentences.append(f"Not told apart from it: {', '.join(close)}.")
    worse = [
        recipe.name
        for recipe, distances in result.distances.items()
        if result.base is not None and mean_distance(distances - result.base).low > 0
    ]
    if worse:
        sentences.append(f"Further from retraining than the base model itself: {', '.join(worse)}.")
    return sentences


def _decimals(distances: Sequence[FloatArray]) -> int:
    """Three digits of the largest mean, and no fewer decimals than other tables have."""
    largest = max(abs(float(each.mean())) for each in distances)
    return max(3, 2 - floor(log10(largest))) if largest > 0 else 3


def _told(estimate: Estimate) -> str:
    return in_words(estimate, ".3g")
