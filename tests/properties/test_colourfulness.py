import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffcredit.properties.colourfulness import Colourfulness, colourfulness


def solid(*colour: int) -> np.ndarray:
    return np.full((1, 4, 4, 3), colour, dtype=np.uint8)


def checkerboard(one: tuple[int, ...], other: tuple[int, ...]) -> np.ndarray:
    return np.where(np.indices((4, 4)).sum(axis=0)[None, :, :, None] % 2, one, other).astype(np.uint8)


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
        (solid(77, 77, 77), 0),
        (checkerboard((0, 0, 0), (255, 255, 255)), 0),
        # rg = 255, yb = 127.5
        (solid(255, 0, 0), 0.3 * 255 * math.sqrt(1.25)),
        # rg = 0, yb = ∓255
        (solid(0, 0, 255), 0.3 * 255),
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


@pytest.mark.parametrize("percentile", [None, 90])
def test_the_standard_error_is_the_spread_over_other_images(percentile):
    """Blue images of random brightness, so that colourfulness is normal: the spread of the property over many sets."""
    rng = np.random.default_rng(0)
    prop = Colourfulness(percentile)

    def pictures():
        blue = np.clip(rng.normal(120, 30, size=256), 0, 255).astype(np.uint8)
        images = np.zeros((256, 2, 2, 3), dtype=np.uint8)
        images[..., 2] = blue[:, None, None]
        return images

    sets = [pictures() for _ in range(150)]
    spread = np.std([prop.measure(images) for images in sets])
    errors = [prop.standard_error(images) for images in sets[:20]]
    assert np.mean(errors) == pytest.approx(spread, rel=0.2)
    assert prop.standard_error(sets[0]) == errors[0]  # the same every time
    assert prop.standard_error(np.repeat(solid(10, 200, 30), 8, axis=0)) == pytest.approx(0, abs=1e-9)
