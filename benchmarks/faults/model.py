"""The smallest thing that is trained, sampled and measured: a linear denoiser of tiny pictures, in numpy.

All of it follows from (coalition, replicate), bit for bit, so that a value that a fault has spoilt is told from the
right one.
"""

import numpy as np
from numpy.typing import NDArray

from diffcredit.coalitions import decode
from diffcredit.errors import DiffcreditError
from diffcredit.util.seeds import derive_seed

CONTRIBUTORS = tuple(f"c{index}" for index in range(10))
SIDE = 6  # pixels
EACH = 12  # pictures of a contributor
SIZE = 3 * SIDE * SIDE
STEPS, RATE, NOISE = 80, 0.002, 0.5
GENERATED, DENOISING = 24, 6


class Diverged(DiffcreditError):
    """The loss is no number any more."""


def images_of(coalition: str, replicate: int, rate: float = RATE) -> NDArray[np.uint8]:
    """(m, h, w, 3): what a model generates that was trained at a learning ``rate`` on a coalition's pictures."""
    members = decode(coalition)
    weights = np.random.default_rng(derive_seed("untrained")).normal(0, 0.05, (SIZE, SIZE))
    if members.any():
        pictures = np.concatenate([_pictures(index) for index in np.flatnonzero(members)])
        weights = _trained(weights, pictures, derive_seed(coalition, replicate), rate)
    x = np.random.default_rng(derive_seed("noises")).normal(0, 1, (GENERATED, SIZE))  # common to all coalitions
    for _ in range(DENOISING):
        x = 0.5 * x + 0.5 * x @ weights
    pixels = np.clip(128 + 64 * x, 0, 255).astype(np.uint8)
    return pixels.reshape(GENERATED, SIDE, SIDE, 3)


def _pictures(contributor: int) -> NDArray[np.float64]:
    chance = np.random.default_rng(derive_seed("pictures", contributor))
    return chance.normal(0, 1, SIZE) + 0.3 * chance.normal(0, 1, (EACH, SIZE))


def _trained(
    weights: NDArray[np.float64], pictures: NDArray[np.float64], seed: int, rate: float
) -> NDArray[np.float64]:
    """By stochastic gradient descent on |(x + noise) W − x|²."""
    chance = np.random.default_rng(seed)
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(STEPS):
            x = pictures[chance.integers(0, len(pictures), 16)]
            noisy = x + NOISE * chance.normal(0, 1, x.shape)
            residual = noisy @ weights - x
            loss = float((residual**2).mean())
            if not np.isfinite(loss):
                raise Diverged(f"the training loss became {loss} at step {step}")
            weights = weights - rate * noisy.T @ residual
    return weights
