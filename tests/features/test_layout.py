import math

import numpy as np
import pytest

from diffcredit.errors import UserError
from diffcredit.features.layout import pixel_features


def naive(image: np.ndarray) -> list[float]:
    """The 48 mean colours and the 64 strengths of edges of one image, pixel by pixel."""
    height, width, _ = image.shape
    pixels = (image / 255).tolist()
    grey = [[sum(pixel) / 3 for pixel in row] for row in pixels]

    def slope(values: list[float], i: int) -> float:
        if i == 0:
            return values[1] - values[0]
        if i == len(values) - 1:
            return values[-1] - values[-2]
        return (values[i + 1] - values[i - 1]) / 2

    layout, edges = [0.0] * 48, [0.0] * 64
    share = 16 / (height * width)
    for i in range(height):
        for j in range(width):
            cell = (i * 4 // height) * 4 + j * 4 // width
            for channel in range(3):
                layout[3 * cell + channel] += pixels[i][j][channel] * share
            down, right = slope([row[j] for row in grey], i), slope(grey[i], j)
            angle = math.degrees(math.atan2(down, right)) % 180
            edges[4 * cell + min(int(angle // 45), 3)] += math.hypot(down, right) * share
    return layout + edges


@pytest.mark.parametrize("shape", [(8, 8), (4, 12), (16, 16)])
def test_are_the_loops_over_pixels(shape):
    images = np.random.default_rng(1).integers(0, 256, (3, *shape, 3), dtype=np.uint8)
    features = pixel_features(images)
    assert features.shape == (3, 112)
    np.testing.assert_allclose(features, [naive(image) for image in images], atol=1e-12)


def test_an_edge_counts_for_its_orientation():
    image = np.zeros((1, 8, 8, 3), dtype=np.uint8)
    image[:, :, 4:] = 255  # grey rises to the right by 1/2 in columns 3 and 4: half a cell of each
    edges = pixel_features(image)[0, 48:].reshape(4, 4, 4)
    np.testing.assert_allclose(edges[:, :, 0], [[0, 0.25, 0.25, 0]] * 4)
    assert not edges[:, :, 1:].any()
    turned = pixel_features(image.transpose(0, 2, 1, 3))[0, 48:].reshape(4, 4, 4)
    np.testing.assert_allclose(turned[:, :, 2], np.array([[0, 0.25, 0.25, 0]] * 4).T)


@pytest.mark.parametrize("shape", [(6, 8), (8, 6), (30, 30)])
def test_a_side_that_does_not_divide_is_refused(shape):
    with pytest.raises(UserError, match=f"resolution: images of {shape[0]} × {shape[1]} px .* multiples of 4"):
        pixel_features(np.zeros((1, *shape, 3), dtype=np.uint8))
