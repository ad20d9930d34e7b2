"""Floors that every method should beat: the number of images given, and a random ranking."""

from dataclasses import dataclass

import numpy as np

from diffcredit.baselines.base import Crediting, Evidence
from diffcredit.util.arrays import FloatArray
from diffcredit.util.seeds import derive_seed


@dataclass
class ImageCount(Crediting):
    """How many training images each contributor gave."""

    name = "image_count"
    title = "Number of images"
    category = "floor"

    def credits(self, evidence: Evidence) -> FloatArray:
        return evidence.contributions.counts.astype(np.float64)


@dataclass
class RandomRanking(Crediting):
    """The numbers 1 to n in an order derived from the seed."""

    name = "random_ranking"
    title = "Random ranking"
    category = "floor"

    def credits(self, evidence: Evidence) -> FloatArray:
        generator = np.random.Generator(np.random.PCG64(derive_seed("baselines", "random_ranking", evidence.seed)))
        order = np.argsort(generator.random(evidence.contributions.n), kind="stable")
        return (order + 1).astype(np.float64)
