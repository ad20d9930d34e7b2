import io

import numpy as np
import pytest
from PIL import Image

from diffcredit.errors import UserError
from diffcredit.report import image_grid
from diffcredit.report.pictures import png_size


def test_grid_places_every_pixel():
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 3, 3), dtype=np.uint8)
    png = image_grid(images, columns=3, scale=2)
    # 2 rows of 8 and 3 columns of 6 pixels, gaps of 2 between
    assert png_size(png, "grid") == (22, 18)
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))
    for i, image in enumerate(images):
        top, left = i // 3 * 10, i % 3 * 8
        tile = pixels[top : top + 8, left : left + 6]
        assert (tile[..., 3] == 255).all()
        for offset in (0, 1):
            assert (tile[offset::2, offset::2, :3] == image).all()
    assert (pixels[..., 3] == 255).sum() == 5 * 8 * 6


def test_a_single_row_is_no_wider_than_its_images():
    assert png_size(image_grid(np.zeros((2, 4, 4, 3), np.uint8), columns=9), "grid") == (10, 4)


@pytest.mark.parametrize(
    ("images", "columns"),
    [
        (np.zeros((0, 4, 4, 3), np.uint8), 1),
        (np.zeros((1, 4, 4, 3), np.float32), 1),
        (np.zeros((4, 4, 3), np.uint8), 1),
        (np.zeros((1, 4, 4, 3), np.uint8), 0),
    ],
)
def test_what_is_no_grid_is_refused(images, columns):
    with pytest.raises(UserError, match="image grid"):
        image_grid(images, columns)


def test_what_is_no_png_is_refused_by_name():
    with pytest.raises(UserError, match="thumbnail of 'A': not a PNG"):
        png_size(b"GIF89a", "thumbnail of 'A'")
