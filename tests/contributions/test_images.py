import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from diffcredit.contributions import load_contributions
from diffcredit.contributions.images import LARGEST_FILE, UnreadableImage, open_bytes, open_image, square_pixels
from diffcredit.errors import UserError

from .pictures import BLUE, GREEN, RED, WHITE, paint

# EXIF 2.32, tag 0x0112: how the stored pixels become the upright picture, in NumPy's words
UPRIGHT = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: lambda a: np.swapaxes(a, 0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(np.swapaxes(a, 0, 1), 2),
    8: lambda a: np.rot90(a, 1),
}


def pixels(path, resolution=8):
    with open_image(path) as image:
        return square_pixels(image, resolution)


def saved(image, path, **options):
    image.save(path, **options)
    return path


@pytest.mark.parametrize("ending", ["png", "tiff", "webp", "jpg"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied_once(tmp_path, orientation, ending):
    quadrants = np.array([[RED, GREEN], [BLUE, WHITE]], np.uint8).repeat(16, axis=0).repeat(16, axis=1)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"webp": {"lossless": True}, "jpg": {"quality": 100, "subsampling": 0}}.get(ending, {})
    path = saved(Image.fromarray(quadrants), tmp_path / f"a.{ending}", exif=exif, **options)
    expected = UPRIGHT[orientation](quadrants)[8::16, 8::16].astype(int)
    assert np.abs(pixels(path, 32)[8::16, 8::16].astype(int) - expected).max() <= 3


def stripes(width):
    """Red, green and blue stripes side by side, a third of the width each, a third of the width high."""
    return np.array([[RED, GREEN, BLUE]], np.uint8).repeat(width // 3, axis=0).repeat(width // 3, axis=1)


@pytest.mark.parametrize("turned", [False, True])
def test_the_shorter_side_is_resized_and_the_centre_kept(tmp_path, turned):
    image = Image.fromarray(np.swapaxes(stripes(96), 0, 1) if turned else stripes(96))
    small = pixels(saved(image, tmp_path / "a.png"), 16)
    assert (small[2:-2, 2:-2] == GREEN).all()
    whole = image.resize((16, 48) if turned else (48, 16), Image.Resampling.BICUBIC)
    centre = whole.crop((0, 16, 16, 32) if turned else (16, 0, 32, 16))
    assert np.array_equal(small, np.asarray(centre))


@pytest.mark.parametrize("orientation", [1, 6])
def test_the_centre_of_an_oriented_tiff(tmp_path, orientation):
    """Pillow turns a TIFF upright by itself, so its size in the header is not the size of its pixels."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    small = pixels(saved(Image.fromarray(stripes(96)), tmp_path / "a.tiff", exif=exif), 16)
    assert (small[2:-2, 2:-2] == GREEN).all()


def test_downscaling_is_antialiased(tmp_path):
    board = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    small = pixels(saved(Image.fromarray(board), tmp_path / "a.png"), 8)
    assert np.abs(small.astype(int) - 127.5).max() < 4


def test_transparency_becomes_white(tmp_path):
    half_red = saved(Image.new("RGBA", (8, 8), (255, 0, 0, 51)), tmp_path / "rgba.png")
    assert (pixels(half_red) == (255, 204, 204)).all()
    grey = saved(Image.new("LA", (8, 8), (0, 102)), tmp_path / "la.png")
    assert (pixels(grey) == 153).all()
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 255, 255, 0, 0])
    assert (pixels(saved(palette, tmp_path / "p.png")) == RED).all()
    assert (pixels(saved(palette, tmp_path / "p_clear.png", transparency=1)) == 255).all()
    assert (pixels(saved(palette, tmp_path / "p_clear.gif", transparency=1)) == 255).all()
    key = saved(Image.new("RGB", (8, 8), (1, 2, 3)), tmp_path / "key.png", transparency=(1, 2, 3))
    assert (pixels(key) == 255).all()


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (65535, 255), (257 * 100, 100), (257 * 100 + 200, 101)])
def test_sixteen_bit_grey_is_scaled(tmp_path, value, expected):
    image = Image.fromarray(np.full((8, 8), value, np.uint16))
    for ending in ("png", "tiff"):
        assert (pixels(saved(image, tmp_path / f"a.{ending}")) == expected).all()
    path = tmp_path / "a.pgm"
    path.write_bytes(b"P5 8 8 65535\n" + struct.pack(">H", value) * 64)
    assert (pixels(path) == expected).all()


def test_sixteen_bit_transparent_grey_becomes_white(tmp_path):
    key = chunk(b"tRNS", struct.pack(">H", 700))
    rows = zlib.compress((b"\0" + struct.pack(">8H", *[700] * 4, *[0] * 4)) * 8)
    path = tmp_path / "a.png"
    path.write_bytes(png_header(8, 8, depth=16, kind=0) + key + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
    small = pixels(path)
    assert (small[:, :4] == 255).all()
    assert (small[:, 4:] == 0).all()


def test_other_pixel_types(tmp_path):
    cyan = saved(Image.new("CMYK", (8, 8), (255, 0, 0, 0)), tmp_path / "cmyk.tiff")
    assert (pixels(cyan) == (0, 255, 255)).all()
    ink = saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), tmp_path / "cmyk.jpg", quality=100)
    assert np.abs(pixels(ink).astype(int) - RED).max() <= 3
    assert (pixels(saved(Image.new("1", (8, 8), 1), tmp_path / "bit.png")) == 255).all()
    assert (pixels(saved(Image.new("L", (8, 8), 7), tmp_path / "grey.png")) == 7).all()
    for mode in ("F", "I"):
        with pytest.raises(UnreadableImage, match=f"pixel type {mode} has no fixed range"):
            pixels(saved(Image.new(mode, (8, 8)), tmp_path / "a.tiff"))


@pytest.mark.parametrize("ending", ["gif", "png", "webp"])
def test_of_an_animation_the_first_frame_counts(tmp_path, ending):
    first, second = Image.new("RGB", (8, 8), RED), Image.new("RGB", (8, 8), BLUE)
    path = tmp_path / f"a.{ending}"
    first.save(path, save_all=True, append_images=[second], **({"lossless": True} if ending == "webp" else {}))
    with Image.open(path) as image:
        assert image.n_frames == 2
    assert (pixels(path) == RED).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("side", [8_001, 12_000, 60_000])
def test_size_is_checked_before_decoding(tmp_path, side):
    """The file is a header only: had a pixel been asked for, it would be called truncated.

    Pillow warns from 89 megapixels on and fails from 179 on; the images are decoded in threads.
    """
    for name in ("a", "b"):
        paint(tmp_path / name / "0.png")
    (tmp_path / "a/big.png").write_bytes(png_header(side, side) + chunk(b"IDAT", b""))
    with pytest.raises(UserError, match=r"a/big\.png: .*64 megapixels"):
        load_contributions(tmp_path)
    found = load_contributions(tmp_path, unreadable="skip")
    assert (len(found.images), len(found.skipped)) == (2, 1)


def test_a_file_that_is_too_large(tmp_path):
    path = paint(tmp_path / "a.png")
    with path.open("r+b") as file:
        file.truncate(LARGEST_FILE + 1)  # of which the disk keeps next to nothing
    with pytest.raises(UnreadableImage, match="at most 1,073,741,824 are accepted"):
        open_image(path)


def test_a_file_in_memory(tmp_path):
    with open_bytes(paint(tmp_path / "a.png", GREEN).read_bytes()) as image:
        assert (square_pixels(image, 4) == GREEN).all()
    for content, why in ((b"", "empty"), (b"%!PS-Adobe-3.0 EPSF-3.0", "accepted format")):
        with pytest.raises(UnreadableImage, match=why):
            open_bytes(content)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.touch(), "empty"),
        (lambda path: path.write_text("hello"), "accepted format"),
        (lambda path: Image.new("RGB", (8, 8)).save(path, "EPS"), "accepted format"),
        (lambda path: path.mkdir(), "regular file"),
        (os.mkfifo, "regular file"),
    ],
)
def test_what_is_no_image(tmp_path, make, why):
    make(tmp_path / "a.png")
    with pytest.raises(UnreadableImage, match=why):
        open_image(tmp_path / "a.png")


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_header(width, height, depth=8, kind=2):
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0))
