"""How much a property would change with other generated images: the bootstrap, the jackknife and halves."""

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 200  # a standard error is then known to 5 %
GROUPS = 20
SPLITS = 32  # in halves: a standard error is then known to 13 %


def resamples(images: int) -> NDArray[np.int64]:
    """(200, images): which images each resample holds, drawn with replacement; the same on every machine."""
    uniform = np.random.Generator(np.random.PCG64(0)).random((RESAMPLES, images))
    return (uniform * images).astype(np.int64)


def mean_error(values: NDArray[np.float64]) -> float:
    """The standard error of a mean of m values, (m,), by the bootstrap, which is σ/√m in closed form."""
    return float(values.std() / np.sqrt(len(values)))


def groups(images: int) -> NDArray[np.int64]:
    """(images,): the group of each image for the jackknife, 20 groups, of fewer than 40 images groups of 2 or 3.

    Neighbours in the order of seeds lie in different groups, so that prompts that come in turn are spread over all.
    """
    return np.arange(images) % max(2, min(GROUPS, images // 2))


def jackknife_error(left_out: NDArray[np.float64]) -> float:
    """The standard error √((g − 1)/g Σ (θ_(j) − θ̄)²) from the values (g,) without each of g equal groups of images
    (or without each image), as in Efron and Stein (1981)."""
    return float(np.sqrt((len(left_out) - 1) * left_out.var()))


def halves(images: int) -> NDArray[np.bool_]:
    """(32, images): splits of the images at random into two halves, which may differ by one image; the same on every
    machine."""
    uniform = np.random.Generator(np.random.PCG64(0)).random((SPLITS, images))
    return uniform.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable") < images // 2


def halves_error(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """The standard error of the share of n reference images that are covered, from which are in each half of some
    splits, (s, n) each.

    Two halves are independent sets, so that the mean of (share − share')²/2 is the variance V of half as many images.
    It is the sum of a part D = Σ p (1 − p)/n² of each reference image by itself, estimated likewise, which no number of
    images takes away, and of covariances, which fall as one over that number: D + (V − D)/2.
    """
    variance = np.square(one.mean(axis=1) - other.mean(axis=1)).mean() / 2
    own = (one != other).mean() / 2 / one.shape[1]
    return float(np.sqrt((variance + own) / 2))
