"""Which training images each method finds behind one picture: a sheet to look at."""

import io
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

TILE, GAP, LABEL, MARGIN = 96, 8, 16, 190
INK, PAPER = (30, 30, 30), (255, 255, 255)


def contact_sheet(
    picture: NDArray[np.uint8],
    found: Mapping[str, Sequence[int]],
    images: NDArray[np.uint8],
    labels: Sequence[str],
) -> bytes:
    """A PNG: the ``picture`` (h, w, 3) above, then a row a method with the training ``images`` that it ``found``, best
    first, each with its label beneath."""
    columns = max(len(rows) for rows in found.values())
    width = MARGIN + columns * (TILE + GAP) + GAP
    height = GAP + (1 + len(found)) * (TILE + LABEL + GAP)
    sheet = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(sheet)
    _row(sheet, draw, 0, "this picture", [(picture, "")])
    for place, (method, rows) in enumerate(found.items(), start=1):
        _row(sheet, draw, place, method, [(images[row], labels[row]) for row in rows])
    file = io.BytesIO()
    sheet.save(file, "PNG", optimize=True)
    return file.getvalue()


def _row(
    sheet: Image.Image,
    draw: ImageDraw.ImageDraw,
    place: int,
    title: str,
    tiles: Sequence[tuple[NDArray[np.uint8], str]],
) -> None:
    font = ImageFont.load_default(size=12)
    top = GAP + place * (TILE + LABEL + GAP)
    draw.text((GAP, top + TILE // 2 - 8), _fitting(draw, title, font, MARGIN - 2 * GAP), INK, font)
    for column, (image, label) in enumerate(tiles):
        left = MARGIN + column * (TILE + GAP)
        sheet.paste(Image.fromarray(image).resize((TILE, TILE), Image.Resampling.NEAREST), (left, top))
        draw.text((left, top + TILE + 1), _fitting(draw, label, font, TILE), INK, font)


def _fitting(
    draw: ImageDraw.ImageDraw, text: str, font: "ImageFont.FreeTypeFont | ImageFont.ImageFont", room: int
) -> str:
    """As much of ``text`` as fits into so many pixels."""
    text = " ".join(text.split())
    if draw.textlength(text, font) <= room:
        return text
    while text and draw.textlength(f"{text}…", font) > room:
        text = text[:-1]
    return f"{text}…"
