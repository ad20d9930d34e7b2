"""A contributor's own files, compared with the hashes on a statement."""

import hashlib
from collections.abc import Collection
from pathlib import Path

from diffcredit.contributions.images import (
    ENDINGS,
    open_image,
    square_pixels,
    without_pillows_warnings,
)
from diffcredit.errors import UserError

LARGEST_SIDE = 1024  # pixels, as when contributions are loaded


def files_by_hash(folder: Path, resolution: int, wanted: Collection[str]) -> dict[str, Path]:
    """Return the image file below ``folder`` for each of the ``wanted`` hashes that one has: the SHA-256 of the square
    of ``resolution`` pixels a side that a model sees. Files that cannot be read have none."""
    if not 0 < resolution <= LARGEST_SIDE:
        raise UserError(f"resolution: {resolution} pixels; 1 to {LARGEST_SIDE:,} are accepted")
    found: dict[str, Path] = {}
    with without_pillows_warnings():
        for file in sorted(folder.rglob("*")):
            if file.suffix.lower() in ENDINGS:
                digest = _hash(file, resolution)
                if digest in wanted:
                    found.setdefault(digest, file)
    return found


def _hash(file: Path, resolution: int) -> str:
    try:
        return hashlib.sha256(square_pixels(open_image(file), resolution).tobytes()).hexdigest()
    except Exception:  # Pillow raises anything on a damaged file
        return ""
