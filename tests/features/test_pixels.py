import numpy as np
import pytest

from diffcredit.features.pixels import Pixels


def test_are_the_pixels_in_the_order_of_rows_columns_and_channels():
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)
    extractor = Pixels(size=4)
    found = extractor.extract(images).vectors
    assert found.dtype == np.float32
    assert found.shape == (3, extractor.dimensions) == (3, 48)
    for i in range(4):
        for j in range(4):
            for channel in range(3):
                expected = images[:, i, j, channel] / 255
                np.testing.assert_allclose(found[:, (i * 4 + j) * 3 + channel], expected, atol=1e-7)


@pytest.mark.parametrize("factor", [2, 4])
def test_are_the_triangle_filters_means_where_images_shrink(factor):
    """Antialiased bilinear: weights fall linearly from an output pixel's centre to 0 at twice its half width."""
    size = 4
    images = np.random.default_rng(0).integers(0, 256, (2, size * factor, size * factor, 3), dtype=np.uint8)
    places = np.arange(size * factor) + 0.5
    weights = np.array([np.maximum(0, 1 - abs(places / factor - (k + 0.5))) for k in range(size)])
    weights /= weights.sum(axis=1, keepdims=True)
    expected = np.einsum("ai,mijc,bj->mabc", weights, images / 255, weights).reshape(2, -1)
    np.testing.assert_allclose(
        Pixels(size=size).extract(images).vectors, expected, atol=1.01 / 255
    )  # Pillow rounds twice


def test_images_that_are_not_square_become_so():
    image = np.full((1, 3, 9, 3), 51, np.uint8)
    np.testing.assert_allclose(Pixels(size=4).extract(image).vectors, np.full((1, 48), 0.2), atol=1e-6)


def test_size_is_part_of_the_identity():
    assert Pixels(8).identity() != Pixels(16).identity()
