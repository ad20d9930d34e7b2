"""Images of several models, in one row each."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.errors import UserError
from diffcredit.util.images import image_rows
from diffcredit.validation.presentation.sections import Photograph

COLUMNS = 10
TILE = 64  # pixels; smaller images are magnified to about this size
PERCENTILE = 90

Images = NDArray[np.uint8]


def same_noises(name: str, title: str, models: Mapping[str, Images]) -> Photograph:
    """Show the first ten images (m, h, w, 3) of each model in a row, named by the key; a column shows one noise."""
    rows = [images[:COLUMNS] for images in models.values()]
    return Photograph(name, title, f"{_rows(models)} One column, one initial noise.", framed(rows))


def above_and_below(
    name: str, title: str, models: Mapping[str, Images], scores: Mapping[str, ArrayLike]
) -> tuple[Photograph, Photograph]:
    """Show images above, and at or below, the 90th percentile of their own model's ``scores`` (m,), in two photographs
    with one row of at most ten for each model: the highest score first, and in the order of the noises."""
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
    """Return a PNG of rows of images, small ones magnified by a whole number."""
    return image_rows(rows, scale=max(1, TILE // max((row.shape[1] for row in rows), default=TILE)))


def _rows(models: Mapping[str, Images]) -> str:
    return f"Rows from top to bottom: {'; '.join(models)}."
