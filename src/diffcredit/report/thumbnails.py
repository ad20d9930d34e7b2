"""Some of each contributor's images as they were given, small."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diffcredit.study.identity import thumbnails_identity
from diffcredit.util.artifacts import read_arrays, write_arrays

if TYPE_CHECKING:
    from diffcredit.study.study import Study

PIXELS = 96  # a side
MOST_EACH, MOST = 4, 400  # of one contributor, and of all; everybody has one


def thumbnails(study: "Study") -> dict[str, tuple[bytes, ...]]:
    """Return some of each contributor's images as they were given, as small WebP files; where an original is gone, what
    the model was trained on."""
    contributions = study.contributions
    each = max(1, min(MOST_EACH, MOST // contributions.n))
    rows = {name: np.flatnonzero(contributions.owner == i)[:each] for i, name in enumerate(contributions.contributors)}

    def decode_originals(file: Path) -> None:
        chosen = np.concatenate(list(rows.values())).tolist()
        found = study.original_images([contributions.names[row] for row in chosen], PIXELS)
        images = [found.get(contributions.names[row], enlarged(contributions.images[row])) for row in chosen]
        write_arrays(file, {"rows": np.array(chosen), "images": np.array(images)})

    key = thumbnails_identity(contributions.fingerprint, each, PIXELS)
    arrays = study.cache.get("thumbnails", key, decode_originals, read_arrays, suffix=".safetensors")
    encoded = {row: webp(image) for row, image in zip(arrays["rows"].tolist(), arrays["images"], strict=True)}
    return {name: tuple(encoded[row] for row in own.tolist()) for name, own in rows.items()}


def enlarged(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a training image in a thumbnail's size, with its pixels to be seen."""
    return np.asarray(Image.fromarray(image).resize((PIXELS, PIXELS), Image.Resampling.NEAREST))


def webp(image: NDArray[np.uint8]) -> bytes:
    """Return an image as a small WebP file."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "WEBP", quality=80)
    return file.getvalue()
