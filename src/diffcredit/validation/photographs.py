"""Images of several models below each other."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.errors import UserError
from diffcredit.util.images import image_rows
from diffcredit.validation.sections import Photograph

COLUMNS = 10
TILE = 64  # pixels that a small image is magnified to
PERCENTILE = 90

Images = NDArray[np.uint8]


def same_noises(name: str, title: str, models: Mapping[str, Images]) -> Photograph:
    """One row a model, the first ten of its images (m, h, w, 3); row j of every model's images is from noise j, so
    that a column shows one noise. The keys of ``models`` say what a row is, from top to bottom."""
    rows = [images[:COLUMNS] for images in models.values()]
    return Photograph(name, title, f"{_rows(models)} One column, one initial noise.", framed(rows))


def above_and_below(
    name: str, title: str, models: Mapping[str, Images], scores: Mapping[str, ArrayLike]
) -> tuple[Photograph, Photograph]:
    """Of a property that is made of a score per image, ``scores`` (m,) of each model's images: per model one row of
    the images above the 90th percentile of its own scores, highest first, and in the second photograph one of those
    at or below it, in the order of the noises. At most ten a row."""
    above, below = [], []
    for model, images in models.items():
        score = np.asarray(scores[model], np.float64)
        if score.shape != (len(images),) or not np.isfinite(score).all() or len(images) == 0:
            raise UserError(
                f"{title}: scores of {model} are {score.shape}; expected a finite one for each of its images"
            )
        high = score > np.percentile(score, PERCENTILE)
        if not high.any():  # ties at the top
            high = score == score.max()
        order = np.argsort(-score, kind="stable")
        above.append(images[order[high[order]]][:COLUMNS])
        below.append((images[~high] if not high.all() else images)[:COLUMNS])
    kinds = ((above, "above", "highest first"), (below, "at or below", "in the order of their noises"))
    first, second = (
        Photograph(
            f"{name}-{words.split()[-1]}",
            f"{title}: {words} the 90th percentile",
            f"{_rows(models)} Images whose score is {words} the 90th percentile of their own model's, {order_words}.",
            framed(rows),
        )
        for rows, words, order_words in kinds
    )
    return first, second


def framed(rows: list[Images]) -> bytes:
    """A PNG of rows of images, small ones magnified by a whole number."""
    return image_rows(rows, scale=max(1, TILE // max((row.shape[1] for row in rows), default=TILE)))


def _rows(models: Mapping[str, Images]) -> str:
    return f"Rows from top to bottom: {'; '.join(models)}."
