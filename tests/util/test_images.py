import io

import numpy as np
import pytest
from PIL import Image

from diffcredit.errors import UserError
from diffcredit.util.images import image_grid, image_rows


def pixels_of(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))


def test_grid_places_every_pixel():
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 3, 3), dtype=np.uint8)
    png = image_grid(images, columns=3, scale=2)
    # 2 rows of 8 and 3 columns of 6 pixels, gaps of 2 between
    pixels = pixels_of(png)
    assert pixels.shape == (18, 22, 4)
    for i, image in enumerate(images):
        top, left = i // 3 * 10, i % 3 * 8
        tile = pixels[top : top + 8, left : left + 6]
        assert (tile[..., 3] == 255).all()
        for offset in (0, 1):
            assert (tile[offset::2, offset::2, :3] == image).all()
    assert (pixels[..., 3] == 255).sum() == 5 * 8 * 6


def test_rows_may_differ_in_length():
    one, three = np.full((1, 4, 4, 3), 10, np.uint8), np.full((3, 4, 4, 3), 20, np.uint8)
    pixels = pixels_of(image_rows([one, three]))
    assert pixels.shape == (10, 16, 4)
    assert (pixels[:4, :4, :3] == 10).all()
    assert (pixels[:4, 4:, 3] == 0).all()
    assert (pixels[6:, 12:] == [20, 20, 20, 255]).all()


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([], "0 sizes"),
        ([np.zeros((1, 4, 4, 3), np.uint8), np.zeros((1, 5, 4, 3), np.uint8)], "2 sizes"),
        ([np.zeros((0, 4, 4, 3), np.uint8)], "expected uint8"),
        ([np.zeros((1, 4, 4, 3), np.float32)], "expected uint8"),
        ([np.zeros((4, 4, 3), np.uint8)], "expected uint8"),
    ],
)
def test_rows_that_make_no_picture_are_refused(rows, what):
    with pytest.raises(UserError, match=what):
        image_rows(rows)
