"""Small image files for the tests."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

RED, GREEN, BLUE, WHITE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)


def paint(path: Path, colour: tuple[int, int, int] = RED, size: tuple[int, int] = (8, 8)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


def paint_many(root: Path, names: Iterable[str]) -> None:
    """Files whose colours follow from their names, so that every image is told from every other."""
    for name in names:
        paint(root / name, colour_of(name))


def colour_of(name: str) -> tuple[int, int, int]:
    red, green, blue = hashlib.sha256(name.encode()).digest()[:3]
    return red, green, blue


def jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def flat(images: NDArray[np.uint8]) -> list[tuple[int, ...]]:
    """The colour of each one-coloured image."""
    for image in images:
        assert (image == image[0, 0]).all()
    return [tuple(int(value) for value in image[0, 0]) for image in images]
