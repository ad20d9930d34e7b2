"""Kernel distance between two sets of images: KID."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.features import Features, FeaturesOption
from diffcredit.properties.base import Context, State
from diffcredit.properties.kinds import FeatureProperty
from diffcredit.properties.reference import CONTRIBUTIONS, MOST, check_reference, reference_features

BLOCK = 2048  # rows and columns of the blocks in which pairs are compared


@dataclass
class KernelDistance(FeatureProperty):
    """The kernel distance of Bińkowski et al. (2018) between generated images x and ``reference`` images y.

    It is the squared maximum mean discrepancy with k(x, y) = (xᵀy/d + 1)³:

    mean_{i≠j} k(xᵢ, xⱼ) + mean_{i≠j} k(yᵢ, yⱼ) − 2 mean_{i,j} k(xᵢ, yⱼ),

    over all pairs at once, with at most 10,000 reference images. Published numbers are often means over subsets of
    1,000, which estimate the same with more noise.
    """

    features: FeaturesOption = "efficientnet_lite0"
    reference: str = CONTRIBUTIONS

    name = "kid"
    heading = "Kernel distance, KID"
    higher_is_better = False
    unit = "squared maximum mean discrepancy"
    explanation = (
        "How far the generated images as a whole are from real ones: about 0 when they cannot be distinguished; chance "
        "may take it a little below 0."
    )
    bias = "None, as the expected value is the same for any number of images."

    def least(self, dimensions: int) -> int:
        return 2

    def check(self, contributions: Contributions, images: int) -> None:
        check_reference(contributions, self.reference, least=2)

    def fit(self, context: Context) -> State:
        self.check(context.contributions, len(context.generated))
        vectors = reference_features(context, self.features, self.reference, MOST).vectors
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
    """Return each image's mean, (m,), and the variance over all pairs i ≠ j of h = k(xᵢ, xⱼ) − cᵢ − cⱼ.

    x is (m, d), c is (m,).
    """
    m = len(x)
    sums, squares = np.zeros(m), 0.0
    for one in range(0, m, BLOCK):
        a = slice(one, one + BLOCK)
        for other in range(one, m, BLOCK):
            b = slice(other, other + BLOCK)
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
    for one in range(0, len(x), BLOCK):
        for other in range(0, len(y), BLOCK):
            sums[one : one + BLOCK] += kernel(x[one : one + BLOCK], y[other : other + BLOCK]).sum(axis=1)
    return sums / len(y)


def kernel(x: NDArray[np.floating], y: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return k(x, y) = (xᵀy/d + 1)³ of each pair: (m, d), (n, d) → (m, n)."""
    inner = (x.astype(np.float64) / x.shape[1]) @ y.astype(np.float64).T
    inner += 1
    return inner * inner * inner
