"""How much training images look like generated ones, pixel by pixel."""

from collections.abc import Iterator

import numpy as np

from diffcredit.baselines.protocol import FloatArray
from diffcredit.errors import UserError
from diffcredit.properties import Images

BLOCK_NUMBERS = 2**24  # pixels held as floats at a time: 128 MiB


def pixel_similarity(training: Images, generated: Images) -> FloatArray:
    """(m,): the mean over generated images of the cosine between their pixels and a training image's.

    For unit vectors u_j of training and v_k of generated images, pixels on the scale 0 to 255:
    (1/g) Σ_k u_j·v_k = u_j·v̄, so that no m × g table is needed. A black image has no direction; its cosine
    counts as 0.
    """
    if len(generated) == 0 or training.shape[1:] != generated.shape[1:]:
        raise UserError(
            f"generated images of shape {generated.shape}: at least one, of the training images' shape "
            f"{training.shape[1:]}, is accepted"
        )
    mean = np.sum([block.sum(axis=0) for block in _unit_vectors(generated)], axis=0) / len(generated)
    return np.concatenate([block @ mean for block in _unit_vectors(training)])


def _unit_vectors(images: Images) -> Iterator[FloatArray]:
    """The images as rows of length 1, a block at a time."""
    rows = max(1, BLOCK_NUMBERS // images[0].size)
    for start in range(0, len(images), rows):
        block = images[start : start + rows].reshape(-1, images[0].size).astype(np.float64)
        norms = np.linalg.norm(block, axis=1, keepdims=True)
        yield np.divide(block, norms, out=np.zeros_like(block), where=norms > 0)
