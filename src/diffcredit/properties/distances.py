"""Distances between generated and real images: the Fréchet distance, FID, and the kernel distance, KID."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.features import Extractor, Features
from diffcredit.features.base import option_name
from diffcredit.properties.base import Context, State
from diffcredit.properties.kinds import ReferenceProperty, mean_error, named_images

BLOCK = 4096  # vectors held in double precision at once
PAIRED = 2048  # rows and columns of the blocks in which pairs are compared


@dataclass
class FrechetDistance(ReferenceProperty):
    """The Fréchet distance of Heusel et al. (2017) between the generated images and a ``reference``:

    |μ − μᵣ|² + tr Σ + tr Σᵣ − 2 tr (S Σ S)^½ with S = Σᵣ^½,

    where μ, μᵣ are the means and Σ, Σᵣ the covariances (unbiased, over m − 1) of their feature vectors. It is FID with
    the features ``inception_v3``.
    """

    name = "fid"
    heading = "Fréchet distance"
    higher_is_better = False
    unit = "squared feature distance"
    differences = (
        "pictures would be {} nearer to the reference pictures",
        "pictures would be {} further from the reference pictures",
    )
    explanation = (
        "How far the generated images as a whole are from real ones: 0 when their features have the same mean and "
        "covariance."
    )
    bias = (
        "Too high, by an amount that falls about as one over the number of images: compare equal numbers of images "
        "only."
    )
    range = (0.0, float("inf"))

    @property
    def title(self) -> str:
        variant = "fid" if isinstance(self.features, str) else self.features.get("variant", "fid")
        return "FID" if (option_name(self.features), variant) == ("inception_v3", "fid") else super().title

    def least(self, dimensions: int) -> int:
        """Return d + 1: fewer images have a singular covariance."""
        return dimensions + 1

    def check_extractor(self, extractor: Extractor, contributions: Contributions) -> None:
        images, dimensions = len(named_images(contributions, self.reference)), extractor.dimensions
        if images < self.least(dimensions):
            found = f"{images} images in {self.reference!r} for features of {dimensions} dimensions"
            raise UserError(f"reference: {found}; fid needs at least {self.least(dimensions)}, kid does with fewer")

    def fit(self, context: Context) -> State:
        self.check_extractor(context.extractors.get(self.features), context.contributions)
        mean, covariance = moments(self.reference_vectors(context, most=None))
        return {"mean": mean, "root": square_root(covariance)}

    def restore(self, state: State) -> None:
        self.mean: NDArray[np.float64] = state["mean"]
        self.root: NDArray[np.float64] = state["root"]

    def measure_features(self, features: Features) -> float:
        return frechet_distance(features.vectors, self.mean, self.root)

    def standard_error(self, features: Features) -> float:
        """Estimate it by the infinitesimal jackknife: σ(ψ)/√m over the influences ψ of the images,

        ψ(x) = 2 (μ − μᵣ)·z + zᵀ (I − A) z with z = x − μ and A = S (S Σ S)^{−½} S,

        up to a constant. This follows from dμ = z dε, dΣ = (z zᵀ − Σ) dε and d tr B^½ = ½ tr B^{−½} dB. In simulations
        it is right with many images for the dimensions and sets that differ; up to 1.4 times too large where the sets
        are alike (a second-order effect then dominates), and up to 1.7 times with hardly more images than dimensions.
        """
        mean, covariance = moments(features.vectors)
        eigenvalues, directions = np.linalg.eigh(self.root @ covariance @ self.root)
        seen = eigenvalues > eigenvalues[-1] * len(eigenvalues) * np.finfo(np.float64).eps
        # zᵀ A z = |z S U w^{−¼}|², on the range of S Σ S
        half = self.root @ (directions[:, seen] * eigenvalues[seen] ** -0.25)
        influences = np.empty(len(features))
        for start in range(0, len(features), BLOCK):
            rows = slice(start, start + BLOCK)
            z = features.vectors[rows].astype(np.float64) - mean
            influences[rows] = z @ (2 * (mean - self.mean)) + np.square(z).sum(axis=1) - np.square(z @ half).sum(axis=1)
        return mean_error(influences)


def frechet_distance(vectors: NDArray[np.floating], mean: NDArray[np.float64], root: NDArray[np.float64]) -> float:
    """Return the distance of vectors (m, d) from a reference with a mean (d,) and ``root`` (d, d) of its covariance."""
    own_mean, covariance = moments(vectors)
    eigenvalues = np.linalg.eigvalsh(root @ covariance @ root)
    overlap = np.sqrt(np.maximum(eigenvalues, 0)).sum()  # rounding may leave zeros a little below 0
    distance = np.square(own_mean - mean).sum() + np.trace(covariance) + np.square(root).sum() - 2 * overlap
    return float(max(distance, 0.0))


def moments(vectors: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean (d,) and the unbiased covariance (d, d) of vectors (m, d)."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    scatter = np.zeros((len(mean), len(mean)))
    for start in range(0, len(vectors), BLOCK):
        z = vectors[start : start + BLOCK].astype(np.float64) - mean
        scatter += z.T @ z
    return mean, scatter / (len(vectors) - 1)


def square_root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the symmetric square root of a positive semi-definite matrix (d, d)."""
    eigenvalues, directions = np.linalg.eigh(covariance)
    return (directions * np.sqrt(np.maximum(eigenvalues, 0))) @ directions.T


@dataclass
class KernelDistance(ReferenceProperty):
    """The kernel distance of Bińkowski et al. (2018) between generated images x and ``reference`` images y.

    It is mean_{i≠j} k(xᵢ, xⱼ) + mean_{i≠j} k(yᵢ, yⱼ) − 2 mean_{i,j} k(xᵢ, yⱼ) with k(x, y) = (xᵀy/d + 1)³, over all
    pairs, with at most 10,000 reference images. Published numbers are often noisier means over subsets of 1,000.
    """

    name = "kid"
    heading = "Kernel distance, KID"
    higher_is_better = False
    unit = "squared maximum mean discrepancy"
    differences = (
        "pictures would be {} nearer to the reference pictures",
        "pictures would be {} further from the reference pictures",
    )
    explanation = (
        "How far the generated images as a whole are from real ones: about 0 when they cannot be distinguished; chance "
        "may take it a little below 0."
    )
    least_reference = 2
    bias = "None, as the expected value is the same for any number of images."

    def least(self, dimensions: int) -> int:
        return 2

    def fit(self, context: Context) -> State:
        vectors = self.reference_vectors(context)
        rows, _ = pairs(vectors, np.zeros(len(vectors)))
        return {"vectors": vectors, "within": np.array([rows.mean()])}

    def restore(self, state: State) -> None:
        self.vectors: NDArray[np.float32] = state["vectors"]
        self.within = float(state["within"][0])

    def measure_features(self, features: Features) -> float:
        rows, _ = self._compared(features)
        return float(rows.mean() + self.within)

    def standard_error(self, features: Features) -> float:
        """Estimate that of a mean over pairs of h(x, x') = k(x, x') − c(x) − c(x') with c(x) = mean_j k(x, yⱼ).

        Its variance is 4 ζ₁/m + 2 ζ₂/m² (Hoeffding 1948), ζ₂ = Var h and ζ₁ = Var E[h | x]. The variance V of the
        images' own means over pairs (the Hájek projection) exceeds ζ₁ by ζ₂/m. So 4 V/m − 2 ζ₂/m², and at least
        2 ζ₂/m², the term that is left when the two sets are alike.
        """
        rows, variance = self._compared(features)
        m = len(features)
        second = 2 * variance / m**2
        return float(np.sqrt(max(4 * rows.var() / m - second, second)))

    def _compared(self, features: Features) -> tuple[NDArray[np.float64], float]:
        return pairs(features.vectors, mean_kernel(features.vectors, self.vectors))


def pairs(x: NDArray[np.floating], c: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return each image's mean, (m,), and the variance over all pairs i ≠ j of h = k(xᵢ, xⱼ) − cᵢ − cⱼ, c (m,)."""
    m = len(x)
    sums, squares = np.zeros(m), 0.0
    for one in range(0, m, PAIRED):
        a = slice(one, one + PAIRED)
        for other in range(one, m, PAIRED):
            b = slice(other, other + PAIRED)
            h = kernel(x[a], x[b])
            h -= c[a, None]
            h -= c[b]
            if one == other:
                np.fill_diagonal(h, 0)
            else:  # h is symmetric: the block below the diagonal counts as well
                sums[b] += h.sum(axis=0)
            sums[a] += h.sum(axis=1)
            squares += np.vdot(h, h) * (1 if one == other else 2)
    means = sums / (m - 1)
    return means, float(max(squares / (m * (m - 1)) - means.mean() ** 2, 0.0))


def mean_kernel(x: NDArray[np.floating], y: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return mean_j k(xᵢ, yⱼ), (m,), for vectors (m, d) and (n, d)."""
    sums = np.zeros(len(x))
    for one in range(0, len(x), PAIRED):
        for other in range(0, len(y), PAIRED):
            sums[one : one + PAIRED] += kernel(x[one : one + PAIRED], y[other : other + PAIRED]).sum(axis=1)
    return sums / len(y)


def kernel(x: NDArray[np.floating], y: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return k(x, y) = (xᵀy/d + 1)³ of each pair: (m, d), (n, d) → (m, n)."""
    inner = (x.astype(np.float64) / x.shape[1]) @ y.astype(np.float64).T
    inner += 1
    return inner * inner * inner
