import io

import numpy as np
import pytest
from PIL import Image

from diffcredit.errors import UserError
from diffcredit.validation.presentation.photographs import above_and_below, same_noises


def flat(*levels):
    """An image of one grey level each, (m, 64, 64, 3): not magnified."""
    return np.repeat(np.array(levels, np.uint8), 64 * 64 * 3).reshape(-1, 64, 64, 3)


def levels(photograph):
    """The grey level of each place of a grid of 64-pixel images, None where there is none."""
    pixels = np.asarray(Image.open(io.BytesIO(photograph.png)).convert("RGBA"))
    return [[int(p[0]) if p[3] else None for p in row[32::66]] for row in pixels[32::66]]


def test_one_row_a_model_and_one_column_a_noise():
    found = same_noises("x", "Before and after", {"all": flat(*range(12)), "without A": flat(*range(100, 112))})
    assert levels(found) == [list(range(10)), list(range(100, 110))]
    assert "all; without A" in found.caption
    small = same_noises("x", "t", {"a": np.zeros((2, 16, 16, 3), np.uint8)})
    assert Image.open(io.BytesIO(small.png)).size == (2 * 64 + 2, 64)  # magnified


def test_images_above_and_below_the_90th_percentile_of_their_own_model():
    # Of 20 scores 0 to 19 the 90th percentile is 17.1: two are above.
    scores = np.random.default_rng(0).permutation(20)
    above, below = above_and_below(
        "aesthetic", "Aesthetic", {"a": flat(*scores), "b": flat(*(scores + 100))}, {"a": scores, "b": scores - 50.0}
    )
    assert levels(above) == [[19, 18], [119, 118]]
    first = [int(s) for s in scores if s <= 17][:10]
    assert levels(below) == [first, [s + 100 for s in first]]
    assert (above.name, below.name) == ("aesthetic-above", "aesthetic-below")


def test_equal_scores_and_single_images_make_pictures_too():
    above, below = above_and_below("x", "t", {"a": flat(1, 2, 3), "b": flat(7)}, {"a": np.ones(3), "b": np.ones(1)})
    assert levels(above) == [[1, 2, 3], [7, None, None]]
    assert levels(below) == [[1, 2, 3], [7, None, None]]


def test_scores_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match=r"scores of a are \(2,\)"):
        above_and_below("x", "t", {"a": flat(1, 2, 3)}, {"a": np.ones(2)})
