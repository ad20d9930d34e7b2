import numpy as np
import pytest

from diffcredit.features.colours import Colours, colour_shares


def naive(image: np.ndarray, bins: int) -> list[float]:
    """Pixel by pixel."""
    shares = [0.0] * bins**3
    height, width, _ = image.shape
    for row in image.tolist():
        for red, green, blue in row:
            cell = [min(int(level / 256 * bins), bins - 1) for level in (red, green, blue)]
            shares[cell[0] * bins * bins + cell[1] * bins + cell[2]] += 1 / (height * width)
    return shares


@pytest.mark.parametrize("bins", [2, 3, 4, 16])
@pytest.mark.parametrize("shape", [(8, 8), (1, 1), (5, 7)])
def test_are_the_loops_over_pixels(bins, shape):
    images = np.random.default_rng(0).integers(0, 256, (3, *shape, 3), dtype=np.uint8)
    images[0, 0, 0] = 255
    np.testing.assert_allclose(colour_shares(images, bins), [naive(image, bins) for image in images], atol=1e-12)


def test_places_do_not_matter():
    images = np.random.default_rng(0).integers(0, 256, (1, 6, 6, 3), dtype=np.uint8)
    mixed = np.random.default_rng(1).permutation(images.reshape(36, 3)).reshape(1, 6, 6, 3)
    np.testing.assert_array_equal(Colours().extract(images).vectors, Colours().extract(mixed).vectors)


def test_a_red_image_is_red():
    red = np.zeros((1, 2, 2, 3), np.uint8)
    red[..., 0] = 255
    extractor = Colours(bins=2)
    found = extractor.extract(red).vectors
    assert found.dtype == np.float32
    assert found.tolist() == [[0, 0, 0, 0, 1, 0, 0, 0]]
    assert extractor.dimensions == 8
