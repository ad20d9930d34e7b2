"""Files to pixels: any accepted image becomes an RGB square, any other is refused with the reason.

Files come from strangers. The size is read from the header and checked before a pixel is decoded, and only
formats that Pillow decodes by itself, without outside programs, are opened.
"""

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

MAX_PIXELS = 64_000_000
LARGEST_FILE = 2**30  # bytes, more than MAX_PIXELS need in any format; reading a header may read the whole file
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")

_ACCEPTED = {".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif", ".bmp", ".webp", ".tif", ".tiff"}
_ACCEPTED |= {".ppm", ".pgm", ".pbm", ".pnm"}
# images that cannot be read: they are reported instead of being ignored
_REFUSED = {".avif", ".heic", ".heif", ".jp2", ".jxl", ".tga"}
ENDINGS = frozenset(_ACCEPTED | _REFUSED)

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N")


class UnreadableImage(Exception):
    """An image could not be read. The message gives the reason, without the image's name."""


@contextmanager
def without_pillows_warnings() -> Generator[None]:
    """Silence Pillow's warnings of large or odd images: this module refuses those that cannot be used.

    Warning filters belong to the whole process: enter before threads start and leave when they have ended.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def open_image(path: Path) -> Image.Image:
    """Open an image and read only its header."""
    if not path.is_file():
        raise UnreadableImage("not a regular file")
    size = path.stat().st_size
    if size == 0:
        raise UnreadableImage("the file is empty (0 bytes)")
    if size > LARGEST_FILE:
        raise UnreadableImage(f"the file has {size:,} bytes; at most {LARGEST_FILE:,} are accepted")
    return _opened(path)


def open_bytes(content: bytes) -> Image.Image:
    """Open an image from a file's content and read only its header."""
    if not content:
        raise UnreadableImage("the image is empty (0 bytes)")
    return _opened(BytesIO(content))


def _opened(file: Path | BytesIO) -> Image.Image:
    try:
        return Image.open(file, formats=FORMATS)
    except Image.DecompressionBombError:
        raise UnreadableImage(f"far over {MAX_PIXELS // 10**6} megapixels, the most that are accepted") from None
    except UnidentifiedImageError:
        raise UnreadableImage(f"not an image in an accepted format ({', '.join(FORMATS)})") from None


def square_pixels(image: Image.Image, resolution: int) -> NDArray[np.uint8]:
    """Return the central square of ``image`` as (resolution, resolution, 3) uint8 RGB, resized with antialiasing.

    EXIF orientation is applied, transparency becomes white, CMYK is converted without its colour profile, and only the
    first frame of an animation is used.
    """
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise UnreadableImage(f"{width} x {height} pixels; at most {MAX_PIXELS // 10**6} megapixels are accepted")
    if width * height == 0:
        raise UnreadableImage("the image has no pixels")
    # Pillow applies the orientation of a TIFF while loading it: size and orientation are right only after this
    image.load()
    width, height = image.size
    orientation = image.getexif().get(ExifTags.Base.Orientation)
    side = min(width, height)
    left, upper = (width - side) / 2, (height - side) / 2
    fitted = _rgb(image).resize(
        (resolution, resolution), Image.Resampling.BICUBIC, box=(left, upper, left + side, upper + side)
    )
    if orientation in _UPRIGHT:
        fitted = fitted.transpose(_UPRIGHT[orientation])
    return np.asarray(fitted)


def cut_off(image: Image.Image) -> float:
    """Return the part of a loaded image's area that is outside its central square."""
    shorter, longer = sorted(image.size)
    return 1 - shorter / longer


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode in _SIXTEEN_BIT or (image.mode == "I" and image.format == "PPM"):
        # Pillow's own conversion clips 16-bit grey at 255 instead of scaling it
        grey = np.array(image).astype(np.uint32)
        if "transparency" in image.info:
            grey[grey == image.info["transparency"]] = 65535
        return Image.fromarray(((grey + 128) // 257).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F", "LAB", "HSV"):
        raise UnreadableImage(f"pixel type {image.mode} has no fixed range; 8- and 16-bit images are accepted")
    if image.has_transparency_data:
        colours = image.convert("RGBA")
        white = Image.new("RGBA", colours.size, "white")
        return Image.alpha_composite(white, colours).convert("RGB")
    return image.convert("RGB")
