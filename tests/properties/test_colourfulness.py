import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffcredit.properties.colourfulness import Colourfulness, colourfulness


def solid(*colour: int) -> np.ndarray:
    return np.full((1, 4, 4, 3), colour, dtype=np.uint8)


def checkerboard(one: tuple[int, ...], other: tuple[int, ...], side: int = 4) -> np.ndarray:
    image = np.empty((1, side, side, 3), dtype=np.uint8)
    for i in range(side):
        for j in range(side):
            image[0, i, j] = one if (i + j) % 2 else other
    return image


def naive(image: np.ndarray) -> float:
    rg, yb = [], []
    for row in image:
        for red, green, blue in row.tolist():
            rg.append(red - green)
            yb.append((red + green) / 2 - blue)
    spread = math.hypot(statistics.pstdev(rg), statistics.pstdev(yb))
    return spread + 0.3 * math.hypot(statistics.fmean(rg), statistics.fmean(yb))


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (solid(0, 0, 0), 0),
        (solid(255, 255, 255), 0),
        (solid(77, 77, 77), 0),
        (checkerboard((0, 0, 0), (255, 255, 255)), 0),
        # rg = 255, yb = 127.5
        (solid(255, 0, 0), 0.3 * 255 * math.sqrt(1.25)),
        # rg = 0, yb = ∓255
        (solid(0, 0, 255), 0.3 * 255),
        (solid(255, 255, 0), 0.3 * 255),
        # rg = ±255, yb = 127.5
        (checkerboard((255, 0, 0), (0, 255, 0)), 255 + 0.3 * 127.5),
        # rg = 0, yb = ±255
        (checkerboard((255, 255, 0), (0, 0, 255)), 255),
    ],
)
def test_closed_forms(image, expected):
    assert colourfulness(image) == pytest.approx([expected], abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 6), st.integers(1, 6))
def test_is_the_loop_over_pixels(seed, count, height, width):
    images = np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), dtype=np.uint8)
    assert colourfulness(images) == pytest.approx([naive(image) for image in images])


def test_a_models_colourfulness_is_the_mean_or_a_percentile():
    images = np.concatenate([solid(0, 0, value) for value in (0, 10, 20, 30, 200)])
    assert Colourfulness().measure(images) == pytest.approx(0.3 * 52)
    assert Colourfulness(percentile=50).measure(images) == pytest.approx(0.3 * 20)
    assert Colourfulness(percentile=100).measure(images) == pytest.approx(0.3 * 200)
    assert isinstance(Colourfulness().measure(images), float)
