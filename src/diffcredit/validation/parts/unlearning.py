"""How close does each way to unlearn come to retraining? The distance between the images of both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10

import numpy as np
from numpy.typing import NDArray

from diffcredit.coalitions import encode, make_design
from diffcredit.errors import UserError
from diffcredit.execution import Task
from diffcredit.features.base import option_name
from diffcredit.ledger.purposes import UNLEARNING_REPLICATE
from diffcredit.properties import Images
from diffcredit.properties.distances import FrechetDistance, frechet_distance, mean_kernel, moments, pairs, square_root
from diffcredit.properties.measuring import needs_features
from diffcredit.study.recipe import Recipe
from diffcredit.util.arrays import FloatArray
from diffcredit.util.seeds import derive_seed
from diffcredit.validation.data import PartWork, ValidationData, keeping_images, kept_images
from diffcredit.validation.presentation.figures import forest
from diffcredit.validation.presentation.photographs import same_noises
from diffcredit.validation.presentation.sections import Cell, PartResult, Section, Table, in_words
from diffcredit.validation.statistics.intervals import satterthwaite_estimate, variance_of_mean
from diffcredit.validation.statistics.records import Estimate

COALITIONS = 10
METHODS = {
    "fine_tune": "fine-tuning",
    "sparsified": "fine-tuning",
    "gradient_ascent": "gradient ascent",
    "influence": "influence",
}
"""The names of the ways to unlearn in tables, in order; others follow."""
OTHER_SEED, BASE = "retrained with another seed", "base model, nothing unlearned"

Vectors = NDArray[np.floating]  # feature vectors (m, d) of m images


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
    """Distances (B,) to the images of models retrained from scratch on the same coalitions: of each recipe, of another
    seed's (``floor``), and of the ``base`` model. ``measure`` names the distance between ``images`` of each, as vectors
    of ``dimensions``."""

    measure: str
    images: int
    dimensions: int
    distances: Mapping[UnlearningRecipe, FloatArray]
    floor: FloatArray
    base: FloatArray

    @property
    def closest(self) -> UnlearningRecipe:
        return min(self.distances, key=lambda recipe: float(self.distances[recipe].mean()))


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
    prepared, scratch = data.study.prepared, _work(data, data.scratch)
    # images are compared by the extractor of the first property that has one
    option = next((prop.features for prop in prepared.properties if needs_features(prop)), "layout")

    def vectors(some: Sequence[Images]) -> list[Vectors]:
        return [prepared.extractors.extract(option, each).vectors for each in some]

    count = len(scratch.tasks) // 2
    truth = _images(scratch, scratch.tasks[:count])
    by_recipe: dict[UnlearningRecipe, list[Images]] = {}
    left_out: list[str] = []
    for each in data.recipes:
        if each.name != data.scratch.name:
            section = each.section
            sparse = section.method == "sparsified" or section.options.get("sparse") is not None
            own = _work(data, each)
            try:
                by_recipe[UnlearningRecipe(each.name, section.method, sparse)] = _images(own, own.tasks)
            except UserError as error:  # the others are compared all the same
                left_out.append(f"{each.name} is left out: {error}.")
    if not by_recipe:
        raise UserError(" ".join(left_out) or f"no recipe beside {data.scratch.name!r}; at least one is needed")
    base = prepared.generated_images()
    found = unlearning_distances(
        {recipe: vectors(some) for recipe, some in by_recipe.items()},
        vectors(truth),
        vectors(_images(scratch, scratch.tasks[count:])),
        *vectors([base]),
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


def unlearning_distances(
    features: Mapping[UnlearningRecipe, Sequence[Vectors]],
    truth: Sequence[Vectors],
    replicate: Sequence[Vectors],
    base: Vectors,
) -> UnlearningResult:
    """Measure each recipe's distance from retrained models. All are vectors (m, d) of one shape: ``features`` of each
    recipe and ``truth`` of B coalitions' models, ``replicate`` the truth with another seed, ``base`` the base model's.
    The distance is Fréchet's; its bias falls with the number of images, so all need equally many. With m ≤ d, where
    covariances would be singular, it is the kernel distance, which has no bias."""
    images, dimensions = truth[0].shape
    kernel = images < FrechetDistance().least(dimensions)
    measures = [(_kernel_to if kernel else _frechet_to)(reference) for reference in truth]

    def distances(some: Sequence[Vectors]) -> FloatArray:
        return np.array([distance(each) for distance, each in zip(measures, some, strict=True)])

    return UnlearningResult(
        measure="kernel distance" if kernel else "Fréchet distance",
        images=images,
        dimensions=dimensions,
        distances={recipe: distances(features[recipe]) for recipe in sorted(features, key=lambda each: each.place)},
        floor=distances(replicate),
        base=distances([base] * len(truth)),
    )


def _frechet_to(reference: Vectors) -> Callable[[Vectors], float]:
    mean, covariance = moments(reference)
    root = square_root(covariance)
    return lambda vectors: frechet_distance(vectors, mean, root)


def _kernel_to(reference: Vectors) -> Callable[[Vectors], float]:
    within = pairs(reference, np.zeros(len(reference)))[0].mean()
    return lambda vectors: float(pairs(vectors, mean_kernel(vectors, reference))[0].mean() + within)


def mean_distance(distances: FloatArray) -> Estimate:
    """Average over coalitions (B,), with Student's interval; for differences of two recipes it is the paired one."""
    return satterthwaite_estimate(float(distances.mean()), [variance_of_mean(1, distances)])


def section(result: PartResult[UnlearningResult]) -> Section:
    found = result.numbers
    count, table = len(found.floor), _table(found)
    figure = forest(
        "unlearning",
        table.title,
        f"Mean {found.measure} over {count} coalitions between images of unlearned and of retrained models, "
        "from the same noises; less is closer.",
        {table.title: {recipe.name: mean_distance(distances) for recipe, distances in found.distances.items()}},
        found.measure,
        {table.title: {OTHER_SEED: mean_distance(found.floor), BASE: mean_distance(found.base)}},
    )
    return Section(
        part="unlearning",
        title="How close unlearning comes to retraining",
        summary=tuple(_summary(found)),
        tables=(table,),
        figures=(figure,),
        photographs=result.photographs,
        caveats=(*_caveats(found, count), *result.caveats),
    )


def _table(result: UnlearningResult) -> Table:
    closest = result.distances[result.closest]
    rows: list[tuple[Cell, ...]] = [
        (
            METHODS.get(recipe.method, recipe.method),
            "sparse" if recipe.sparse else "dense",
            recipe.name,
            mean_distance(distances),
            mean_distance(distances - result.floor),
            None if distances is closest else mean_distance(distances - closest),
            mean_distance(result.base - distances),
        )
        for recipe, distances in result.distances.items()
    ]
    apart = mean_distance(result.base - result.floor)
    rows.append((OTHER_SEED, None, None, mean_distance(result.floor), None, None, apart))
    rows.append((BASE, None, None, mean_distance(result.base), apart, None, None))
    columns = (
        *("unlearning", "model", "recipe", "distance"),
        *("above another seed", "above the closest", "below the base model"),
    )
    # three digits of the largest mean, at least 3 decimals as in other tables
    largest = max(abs(float(each.mean())) for each in result.distances.values())
    decimals = max(3, 2 - floor(log10(largest))) if largest > 0 else 3
    title = f"{result.measure.capitalize()} to the images of the retrained model"
    return Table("unlearning", title, columns, tuple(rows), decimals)


def _caveats(result: UnlearningResult, count: int) -> list[str]:
    bias = (
        f"The Fréchet distance of finitely many images is too high; all models have {result.images}, so that "
        "distances may be compared with each other, and with that of another seed, not with those of other studies."
    )
    if result.measure != "Fréchet distance":
        bias = (
            f"{result.images} images a model are too few for the Fréchet distance of {result.dimensions} features; the "
            "kernel distance has no bias for any number of images, and chance may take it a little below 0."
        )
    return [
        f"Intervals are over {count} coalitions, those of differences over the same coalitions' differences.",
        "A distance between images does not show what the model still knows of those who left.",
        bias,
        *(["With one coalition there is no interval."] if count == 1 else []),
    ]


def _summary(result: UnlearningResult) -> list[str]:
    def mean(distances: FloatArray) -> str:
        return in_words(mean_distance(distances), ".3g")

    closest = result.distances[result.closest]
    sentences = [
        f"{result.closest.name} comes closest to retraining, with a mean {result.measure} of {mean(closest)}.",
        f"For comparison, two retrainings with different seeds are {mean(result.floor)} apart and the base model, "
        f"with nothing unlearned, is at {mean(result.base)}.",
    ]
    others = {recipe.name: each for recipe, each in result.distances.items() if each is not closest}
    close = [name for name, each in others.items() if not mean_distance(each - closest).low > 0]
    if close:
        sentences.append(f"No clear difference from it: {', '.join(close)}.")
    worse = [each.name for each, found in result.distances.items() if mean_distance(found - result.base).low > 0]
    if worse:
        sentences.append(f"Further from retraining than the base model itself: {', '.join(worse)}.")
    return sentences
