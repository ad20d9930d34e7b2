"""How a contributor's effect changes with the size of the coalition.

A model fine-tuned on a coalition follows the *average* of its members' images, so one contributor among s
moves it by about 1/s: the slopes of F on membership fall with the size. A regression with one slope for all
sizes calls that noise. Here slopes are β_i m(s), where m has mean 1 over the sizes 1..n−1, so that β_i is still
the mean of the within-size slopes: the contrast of the Shapley value.
"""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

EXPONENTS = np.arange(-0.5, 1.51, 0.25)


def modulation(sizes: NDArray[np.intp], n: int, exponent: float) -> FloatArray:
    """(m,): m(s) = s^−γ / mean over s' = 1..n−1 of s'^−γ, γ the ``exponent``; 1 where γ = 0."""
    return sizes ** float(-exponent) / np.mean(np.arange(1, n) ** float(-exponent))


def exponent_penalty(exponent: float) -> float:
    """γ², −2 log of a normal prior of deviation 1: values that say nothing of γ leave slopes equal."""
    return exponent**2
