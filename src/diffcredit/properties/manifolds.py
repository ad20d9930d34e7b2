"""Fidelity and diversity measured apart: precision and density, recall and coverage.

Each vector of a set has a ball around it that reaches to its k-th nearest neighbour in the set, in Euclidean distance.
Precision and density ask whether generated images lie in balls of real ones; recall and coverage ask the converse.

A vector with k copies in its set has a ball of radius 0. As in the authors' code, balls are closed for precision and
recall, so that this one still contains further copies, and open for density and coverage, so that it contains nothing.
Squared distances are computed to a relative 1e-6, and closer ones count as equal; that of a copy is exactly 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from diffcredit.features import Features
from diffcredit.properties.base import Context, State
from diffcredit.properties.kinds import MeanProperty, ReferenceProperty, groups, halves, halves_error, jackknife_error

PAIRS = 1 << 23  # distances held at once: 64 MiB
SAME = 1e-6  # squared distances that differ relatively by less are equal
NEAR = 1e-8  # of the squared lengths: below it the product form of a squared distance may be off by more than SAME

Vectors = NDArray[np.floating]


@dataclass
class _Manifold(ReferenceProperty):
    """The options and the reference of all four; at most 10,000 ``reference`` images count."""

    neighbours: Annotated[int, Ge(1)] = 3

    range = (0.0, 1.0)

    def least(self, dimensions: int) -> int:
        return self.neighbours + 1

    @property
    def least_reference(self) -> int:
        return self.neighbours + 1

    def fit(self, context: Context) -> State:
        vectors = self.reference_vectors(context)
        return {"vectors": vectors, "radii": squared_radii(vectors, self.neighbours)}

    def restore(self, state: State) -> None:
        self.vectors: NDArray[np.float32] = state["vectors"]
        self.radii: NDArray[np.float64] = state["radii"]


@dataclass
class Precision(MeanProperty, _Manifold):
    """The share of the generated images that lie in a ball of the reference (Kynkäänniemi et al. 2019)."""

    name = "precision"
    heading = "Precision"
    unit = "share of generated images"
    differences = ("{} fewer pictures would look real", "{} more pictures would look real")
    explanation = "How many of the generated images look like real ones: 1 when all lie among the real images."
    bias = "None from the number of generated images; the number of reference images matters."

    def _each(self, features: Features) -> NDArray[np.float64]:
        reach = self.radii * (1 + SAME)
        parts = [(squared <= reach).any(axis=1) for _, squared in distances(features.vectors, self.vectors)]
        return np.concatenate(parts).astype(np.float64)


@dataclass
class Density(MeanProperty, _Manifold):
    """The mean number of balls of the reference that a generated image lies in, over k (Naeem et al. 2020).

    1/(k m) Σ_i Σ_j 1[xᵢ in the ball of yⱼ]. Its expectation is 1 when both sets are alike; above 1, generated images
    crowd where real ones are dense. An outlier of the reference, whose ball is large, counts less than for precision.
    """

    neighbours: Annotated[int, Ge(1)] = 5

    name = "density"
    heading = "Density"
    unit = "balls an image, over neighbours"
    differences = (
        "pictures would have {} less real pictures near them",
        "pictures would have {} more real pictures near them",
    )
    explanation = (
        "How well the generated images sit where real ones are dense: about 1 when they are as real ones are, 0 when "
        "none is near any; more than 1 when they keep to the densest places."
    )
    bias = "None from the number of generated images."
    range = (0.0, float("inf"))

    def _each(self, features: Features) -> NDArray[np.float64]:
        reach = self.radii * (1 - SAME)
        parts = [(squared < reach).sum(axis=1) for _, squared in distances(features.vectors, self.vectors)]
        return np.concatenate(parts) / self.neighbours


@dataclass
class Recall(_Manifold):
    """The share of the reference images that lie in a ball of the generated ones (Kynkäänniemi et al. 2019)."""

    name = "recall"
    heading = "Recall"
    unit = "share of reference images"
    differences = ("pictures would cover {} less of what is real", "pictures would cover {} more of what is real")
    explanation = "How much of the variety of real images is generated: 1 when every real image has its like."
    bias = (
        "Changes with the number of generated images, which have smaller balls the more they are; downwards where "
        "features have many dimensions: compare equal numbers of images only."
    )

    def least(self, dimensions: int) -> int:
        """Return twice k + 1, so that each image has its neighbours in either half of the images."""
        return 2 * (self.neighbours + 1)

    def fit(self, context: Context) -> State:
        return {"vectors": self.reference_vectors(context)}

    def restore(self, state: State) -> None:
        self.vectors = state["vectors"]

    def measure_features(self, features: Features) -> float:
        radii = squared_radii(features.vectors, self.neighbours)
        return float(self._covered(features, radii[None]).mean())

    def standard_error(self, features: Features) -> float:
        """Estimate it from random halves of the images.

        The bootstrap would draw images twice, and a copy is its own nearest neighbour. In simulations of normal sets it
        is 0.7 to 1.4 times the spread over fresh sets; a jackknife of 20 groups is up to 2.5 times too large.
        """
        one = halves(len(features))
        radii = squared_radii_in_parts(features.vectors, self.neighbours, one)
        both = np.concatenate([np.where(one, radii, -1), np.where(one, -1, radii)])
        return halves_error(*np.split(self._covered(features, both), 2))

    def _covered(self, features: Features, radii: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which reference images are in balls of each row of squared ``radii``, none if negative, (r, n)."""
        reach = radii * (1 + SAME)
        covered = np.empty((len(radii), len(self.vectors)), dtype=np.bool_)
        for rows, squared in distances(self.vectors, features.vectors):
            for balls, inside in zip(reach, covered, strict=True):
                inside[rows] = (squared <= balls).any(axis=1)
        return covered


@dataclass
class Coverage(_Manifold):
    """The share of the reference images whose ball holds a generated image (Naeem et al. 2020)."""

    neighbours: Annotated[int, Ge(1)] = 5

    name = "coverage"
    heading = "Coverage"
    unit = "share of reference images"
    differences = ("pictures would cover {} less of what is real", "pictures would cover {} more of what is real")
    explanation = "How many of the real images have a generated one nearby: 1 when no kind of real image is missed."
    bias = "Rises with the number of generated images: compare equal numbers of images only."

    def measure_features(self, features: Features) -> float:
        return float(self._hits(features, np.zeros(len(features), dtype=np.int64)).mean())

    def standard_error(self, features: Features) -> float:
        """Estimate it by the jackknife that leaves out groups of images.

        A resample of the bootstrap has only 63 % of the images and so covers less. In simulations of normal sets it is
        0.8 to 1.5 times the spread over fresh sets, and up to 3 times where nearly all is covered and both are small.
        """
        hits = self._hits(features, groups(len(features)))
        by_others = hits.sum(axis=1, keepdims=True) - hits > 0
        return jackknife_error(by_others.mean(axis=0))

    def _hits(self, features: Features, group: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return 1 where the ball of a reference image holds an image of a group, (n, g)."""
        reach = self.radii[:, None] * (1 - SAME)
        parts = []
        for rows, squared in distances(self.vectors, features.vectors):
            inside = squared < reach[rows]
            parts.append(np.stack([inside[:, group == g].any(axis=1) for g in np.unique(group)], axis=1))
        return np.concatenate(parts).astype(np.int64)


def distances(x: Vectors, y: Vectors) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield squared Euclidean distances between x (m, d) and y (n, d): rows of x, and their distances (b, n) to y."""
    centre = y[0].astype(np.float64)  # a vector of y, so that vectors equal to it become exact zeros
    y = y.astype(np.float64) - centre
    lengths = np.square(y).sum(axis=1)
    block = max(1, PAIRS // len(y))
    for start in range(0, len(x), block):
        rows = slice(start, min(start + block, len(x)))
        z = x[rows].astype(np.float64) - centre
        scale = np.square(z).sum(axis=1)[:, None] + lengths
        squared = z @ y.T
        squared *= -2
        squared += scale
        scale *= NEAR
        # the product form loses the digits of small distances: these are computed as Σ (x − y)²
        i, j = np.nonzero(squared < scale)
        for some in np.array_split(np.arange(len(i)), 1 + len(i) * z.shape[1] // PAIRS):
            squared[i[some], j[some]] = np.square(z[i[some]] - y[j[some]]).sum(axis=1)
        yield rows, squared


def squared_radii(x: Vectors, k: int) -> NDArray[np.float64]:
    """Return the squared distance of each vector to its k-th nearest among the others, (m,)."""
    return squared_radii_in_parts(x, k, np.ones((1, len(x)), dtype=np.bool_))[0]


def squared_radii_in_parts(x: Vectors, k: int, splits: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the same among the vectors on its own side of each split (random halves, or all on one side), (s, m)."""
    candidates = min(len(x) - 1, 8 * k + 64)  # fewer than k of them in the same half: practically impossible
    radii = np.empty(splits.shape)
    for rows, squared in distances(x, x):
        squared[np.arange(len(squared)), np.arange(rows.start, rows.stop)] = np.inf
        nearest = np.argpartition(squared, candidates - 1, axis=1)[:, :candidates]
        near = np.take_along_axis(squared, nearest, axis=1)
        for split, radius in zip(splits, radii, strict=True):
            together = np.where(split[nearest] == split[rows, None], near, np.inf)
            radius[rows] = np.partition(together, k - 1, axis=1)[:, k - 1]
    return radii
