"""PNG images in HTML."""

import base64
import io

from PIL import Image, UnidentifiedImageError

from diffcredit.errors import UserError


def png_size(png: bytes, name: str) -> tuple[int, int]:
    """Return width and height in pixels; ``name`` is what the error calls the picture."""
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            return image.size
    except UnidentifiedImageError:
        raise UserError(f"{name}: not a PNG") from None


def data_uri(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
