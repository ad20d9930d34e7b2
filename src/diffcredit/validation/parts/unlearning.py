"""How close does each way to unlearn come to retraining? The distance between the images of both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10

import numpy as np
from numpy.typing import NDArray

from diffcredit.coalitions import encode, make_design
from diffcredit.errors import UserError
from diffcredit.execution import Task
from diffcredit.features import FeaturesOption
from diffcredit.features.base import option_name
from diffcredit.ledger.purposes import UNLEARNING_REPLICATE
from diffcredit.properties import Images
from diffcredit.properties.distances import FrechetDistance, frechet_distance, mean_kernel, moments, pairs, square_root
from diffcredit.properties.measuring import needs_features
from diffcredit.study.recipe import Recipe
from diffcredit.util.arrays import FloatArray
from diffcredit.util.seeds import derive_seed
from diffcredit.validation.data import ValidationData
from diffcredit.validation.parts.outcome import PartResult
from diffcredit.validation.presentation.figures import forest
from diffcredit.validation.presentation.photographs import same_noises
from diffcredit.validation.presentation.sections import Cell, Section, Table
from diffcredit.validation.presentation.wording import in_words
from diffcredit.validation.statistics.intervals import satterthwaite_estimate, variance_of_mean
from diffcredit.validation.statistics.records import Estimate
from diffcredit.validation.work import PartWork, keeping_images, kept_images

COALITIONS = 10
METHODS = {
    "fine_tune": "fine-tuning",
    "sparsified": "fine-tuning",
    "gradient_ascent": "gradient ascent",
    "influence": "influence",
}
"""The names of the ways to unlearn in tables, in order; others follow."""

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
        """The place in a table: fine-tuning, gradient ascent, influence, others; dense before sparse."""
        kinds = list(dict.fromkeys(METHODS.values()))
        kind = METHODS.get(self.method)
        return (len(kinds) if kind is None else kinds.index(kind), self.sparse, self.name)


@dataclass(frozen=True, eq=False)
class UnlearningResult:
    """Distances (B,) to the images of the model retrained from scratch on the same coalition.

    They are of each recipe, of a retraining with another seed (``floor``), and of the ``base`` model, which has
    unlearned nothing. ``measure`` names the distance between ``images`` of each model, as vectors of ``dimensions``.
    """

    measure: str
    images: int
    dimensions: int
    distances: Mapping[UnlearningRecipe, FloatArray]
    floor: FloatArray | None
    base: FloatArray | None


def work(data: ValidationData) -> list[PartWork]:
    return [_work(data, each) for each in data.recipes]


def _work(data: ValidationData, recipe: Recipe) -> PartWork:
    """Return a few coalitions of the Shapley kernel, whose images are kept; from scratch with two seeds."""
    seeds = 2 if recipe.name == data.scratch.name else 1
    rows = make_design("kernel", derive_seed(data.study.config.seed, "unlearning")).draw(data.n, 0, COALITIONS)
    coalitions = dict.fromkeys(encode(row) for row in rows)
    tasks = [
        Task(coalition, UNLEARNING_REPLICATE + seed, "validation") for seed in range(seeds) for coalition in coalitions
    ]
    keeping = keeping_images(recipe, data.evaluations)
    return PartWork(keeping, tasks, f"unlearning by {recipe.name}", pictured=tasks)


def result(data: ValidationData) -> PartResult[UnlearningResult]:
    option, scratch = _distance_features(data), _work(data, data.scratch)

    def vectors(some: Sequence[Images]) -> list[Vectors]:
        return [data.study.prepared.extractors.extract(option, each).vectors for each in some]

    count = len(scratch.tasks) // 2
    truth = _images(scratch, scratch.tasks[:count])
    by_recipe: dict[UnlearningRecipe, list[Images]] = {}
    left_out: list[str] = []
    for each in data.recipes:
        if each.name != data.scratch.name:
            own = _work(data, each)
            try:
                by_recipe[_unlearning_recipe(each)] = _images(own, own.tasks)
            except UserError as error:  # the others are compared all the same
                left_out.append(f"{each.name} is left out: {error}.")
    if not by_recipe:
        raise UserError(" ".join(left_out))
    base = data.study.prepared.generated_images()
    found = unlearning_distances(
        {recipe: vectors(some) for recipe, some in by_recipe.items()},
        vectors(truth),
        replicate=vectors(_images(scratch, scratch.tasks[count:])),
        base=data.study.prepared.extractors.extract(option, base).vectors,
    )
    first = {"retrained": truth[0], **{each.name: some[0] for each, some in by_recipe.items()}, "base model": base}
    rows = same_noises("unlearned", f"Coalition {scratch.tasks[0].coalition}, seen by {option_name(option)}", first)
    return PartResult(found, (rows,), tuple(left_out))


def _images(work: PartWork, tasks: Sequence[Task]) -> list[Images]:
    found = [kept_images(work.recipe, task) for task in tasks]
    missing = sum(each is None for each in found)
    if missing:
        raise UserError(f"images of {missing} of {len(tasks)} models of {work.recipe.name!r} are not there")
    return [each for each in found if each is not None]


def _unlearning_recipe(recipe: Recipe) -> UnlearningRecipe:
    section = recipe.section
    sparse = section.method == "sparsified" or section.options.get("sparse") is not None
    return UnlearningRecipe(recipe.name, section.method, sparse)


def _distance_features(data: ValidationData) -> FeaturesOption:
    """Return the extractor of the first property that has one, by which images are compared."""
    return next((prop.features for prop in data.study.prepared.properties if needs_features(prop)), "layout")


def unlearning_distances(
    features: Mapping[UnlearningRecipe, Sequence[Vectors]],
    truth: Sequence[Vectors],
    *,
    replicate: Sequence[Vectors] | None = None,
    base: Vectors | None = None,
) -> UnlearningResult:
    """Measure how far each recipe's images are from those of retrained models.

    ``features`` are each recipe's vectors (m, d) of the images of B coalitions, ``truth`` those of the models retrained
    on the same coalitions, ``replicate`` the same with another seed, ``base`` the base model's. Sequences are read one
    coalition at a time, so they may load lazily.

    The distance is Fréchet's. Its bias falls with the number of images, so all models must have equally many. Like
    `fid` it needs m > d. With fewer images covariances would be singular, and the kernel distance is used, which is
    unbiased for any number.
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
    return UnlearningResult(
        measure="kernel distance" if kernel else "Fréchet distance",
        images=shape[0],
        dimensions=shape[1],
        distances={recipe: np.array(found) for recipe, found in rows.items()},
        floor=np.array(floors) if replicate is not None else None,
        base=np.array(bases) if base is not None else None,
    )


def mean_distance(distances: FloatArray, confidence: float = 0.95) -> Estimate:
    """Average over coalitions (B,), with Student's interval; for differences of two recipes it is the paired one."""
    return satterthwaite_estimate(float(distances.mean()), [variance_of_mean(1, distances)], confidence)


def section(result: PartResult[UnlearningResult]) -> Section:
    found = result.numbers
    closest = min(found.distances, key=lambda recipe: float(found.distances[recipe].mean()))
    count, table = len(found.distances[closest]), _table(found, closest)
    figure = forest(
        "unlearning",
        table.title,
        f"Mean {found.measure} over {count} coalitions between images of unlearned and of retrained models, "
        "from the same noises; less is closer.",
        {table.title: {recipe.name: mean_distance(distances) for recipe, distances in found.distances.items()}},
        found.measure,
        {table.title: {name: mean_distance(distances) for name, distances in _ends(found).items()}},
    )
    return Section(
        part="unlearning",
        title="How close unlearning comes to retraining",
        summary=tuple(_summary(found, closest)),
        tables=(table,),
        figures=(figure,),
        photographs=result.photographs,
        caveats=(*_caveats(found, count), *result.caveats),
    )


def _ends(result: UnlearningResult) -> dict[str, FloatArray]:
    """Return the distances that recipes are compared with, by name."""
    ends = {"retrained with another seed": result.floor, "base model, nothing unlearned": result.base}
    return {name: distances for name, distances in ends.items() if distances is not None}


def _table(result: UnlearningResult, closest: UnlearningRecipe) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            METHODS.get(recipe.method, recipe.method),
            "sparse" if recipe.sparse else "dense",
            recipe.name,
            mean_distance(distances),
            None if result.floor is None else mean_distance(distances - result.floor),
            None if recipe == closest else mean_distance(distances - result.distances[closest]),
            None if result.base is None else mean_distance(result.base - distances),
        )
        for recipe, distances in result.distances.items()
    ]
    for name, distances in _ends(result).items():
        above = None if result.floor is None or distances is result.floor else mean_distance(distances - result.floor)
        below = None if result.base is None or distances is result.base else mean_distance(result.base - distances)
        rows.append((name, None, None, mean_distance(distances), above, None, below))
    title = f"{result.measure.capitalize()} to the images of the retrained model"
    columns = (
        *("unlearning", "model", "recipe", "distance"),
        *("above another seed", "above the closest", "below the base model"),
    )
    return Table("unlearning", title, columns, tuple(rows), _decimals([*result.distances.values()]))


def _caveats(result: UnlearningResult, count: int) -> list[str]:
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
    return caveats


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


def _summary(result: UnlearningResult, closest: UnlearningRecipe) -> list[str]:
    sentences = [
        f"{closest.name} comes closest to retraining, with a mean {result.measure} of "
        f"{_worded(mean_distance(result.distances[closest]))}."
    ]
    ends = []
    if result.floor is not None:
        ends.append(f"two retrainings with different seeds are {_worded(mean_distance(result.floor))} apart")
    if result.base is not None:
        ends.append(f"the base model, with nothing unlearned, is at {_worded(mean_distance(result.base))}")
    if ends:
        sentences.append(f"For comparison, {' and '.join(ends)}.")
    gaps = {
        recipe.name: mean_distance(distances - result.distances[closest])
        for recipe, distances in result.distances.items()
        if recipe != closest
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
    """Return the decimals for three digits of the largest mean, at least 3 as in other tables."""
    largest = max(abs(float(each.mean())) for each in distances)
    return max(3, 2 - floor(log10(largest))) if largest > 0 else 3


def _worded(estimate: Estimate) -> str:
    return in_words(estimate, ".3g")
