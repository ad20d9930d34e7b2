"""Weights and images that follow from names alone, so that a test and the program that ran the reference
implementations have the same ones."""

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

SIZES = {"two of 32 px": (2, 32), "one of 64 px": (1, 64), "one of 299 px": (1, 299)}
RESIZES = {
    "5 × 7 to 8": (5, 7, 8),
    "32 to 299": (32, 32, 299),
    "64 to 299": (64, 64, 299),
    "340 × 400 to 299": (340, 400, 299),
}


def uniform(name: str, shape: Sequence[int]) -> NDArray[np.float32]:
    """Uniform in [0, 1), from the name."""
    return np.random.Generator(np.random.PCG64(zlib.crc32(name.encode()))).random(shape, dtype=np.float32)


def images(name: str, count: int, height: int, width: int) -> NDArray[np.uint8]:
    """(count, height, width, 3): noise on a ramp, so that corners differ."""
    ramp = np.linspace(0, 1, height)[:, None, None] * np.linspace(1, 0, width)[None, :, None] * [1.0, 0.5, 0.1]
    return (127 * uniform(name, (count, height, width, 3)) + 128 * ramp).astype(np.uint8)


def seeded_state(shapes: Mapping[str, Sequence[int]]) -> dict[str, NDArray[np.generic]]:
    """A tensor for each name of a state dict, such that activations keep their size through the layers (He et al.,
    2015: weights of variance 2 / inputs) and every statistic of batch normalisation matters."""
    return {name: _tensor(name, shape) for name, shape in shapes.items()}


def _tensor(name: str, shape: Sequence[int]) -> NDArray[np.generic]:
    if name.endswith("num_batches_tracked"):
        return np.array(0)
    centred = 2 * uniform(name, shape) - 1
    match name.split(".")[-2:]:
        case [_, "running_var"]:
            return 1 + np.float32(0.5) * centred
        case ["bn", "weight"]:
            return 1 + np.float32(0.3) * centred
        case [_, "running_mean" | "bias"]:
            return np.float32(0.3) * centred
        case _:
            return np.float32((6 / np.prod(shape[1:])) ** 0.5) * centred


def summary(array: NDArray[np.floating], entries: int = 24) -> dict[str, object]:
    """Shape, mean, standard deviation, and entries evenly spread over the array: some of every branch."""
    flat = np.asarray(array, np.float64).ravel()
    chosen = flat[np.linspace(0, flat.size - 1, min(entries, flat.size)).astype(int)]
    return {
        "shape": list(array.shape),
        "mean": float(f"{flat.mean():.8g}"),
        "std": float(f"{flat.std():.8g}"),
        "entries": [float(f"{value:.8g}") for value in chosen],
    }
