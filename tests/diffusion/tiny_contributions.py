"""Contributions of three people, two images each."""

from collections.abc import Sequence

import numpy as np

from diffcredit.contributions import Contributions

from .tiny_pipelines import SIDE, pictures


def contributions(side: int = SIDE, captions: Sequence[str] | None = None, seed: int = 0) -> Contributions:
    return Contributions(
        images=pictures(6, seed, side),
        owner=np.array([0, 0, 1, 1, 2, 2]),
        contributors=("ann", "bob", "cem"),
        names=tuple("123456"),
        heldout=pictures(0, side=side),
        captions=None if captions is None else tuple(captions),
    )
