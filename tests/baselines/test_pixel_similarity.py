import math

import numpy as np
import pytest

from diffcredit.baselines import pixel_similarity as room
from diffcredit.baselines.pixel_similarity import pixel_similarity
from diffcredit.errors import UserError


def images(count, seed):
    return np.random.default_rng(seed).integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)


def cosine(a, b):
    pairs = [(int(x), int(y)) for x, y in zip(a.ravel(), b.ravel(), strict=True)]
    norms = math.sqrt(sum(x * x for x, _ in pairs)) * math.sqrt(sum(y * y for _, y in pairs))
    return sum(x * y for x, y in pairs) / norms if norms else 0.0


@pytest.mark.parametrize("numbers_a_block", [2**24, 3 * 48, 1])
def test_the_mean_of_all_cosines(numbers_a_block, monkeypatch):
    monkeypatch.setattr(room, "BLOCK_NUMBERS", numbers_a_block)
    training, generated = images(7, 0), images(11, 1)
    expected = [sum(cosine(x, g) for g in generated) / len(generated) for x in training]
    np.testing.assert_allclose(pixel_similarity(training, generated), expected, rtol=1e-12)


def test_black_images_are_similar_to_nothing():
    training, generated = images(3, 0), images(2, 1)
    training[1] = 0
    generated[0] = 0
    scores = pixel_similarity(training, generated)
    assert scores[1] == 0
    assert scores[0] == pytest.approx(cosine(training[0], generated[1]) / 2)


def test_images_are_not_changed():
    training, generated = images(3, 0), images(2, 1)
    before = training.copy(), generated.copy()
    pixel_similarity(training, generated)
    np.testing.assert_array_equal(training, before[0])
    np.testing.assert_array_equal(generated, before[1])


@pytest.mark.parametrize("shape", [(0, 4, 4, 3), (2, 8, 8, 3)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(UserError, match=r"the training images' shape \(4, 4, 3\)"):
        pixel_similarity(images(3, 0), np.ones(shape, dtype=np.uint8))
