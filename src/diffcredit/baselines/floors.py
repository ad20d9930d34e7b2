"""The floors: what knows nothing but how much was given, and what knows nothing."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from diffcredit.baselines.protocol import Category, Evidence
from diffcredit.util.arrays import FloatArray
from diffcredit.util.seeds import derive_seed


@dataclass
class ImageCount:
    """How many training images each contributor gave."""

    name: ClassVar[str] = "image_count"
    title: ClassVar[str] = "Number of images"
    category: ClassVar[Category] = "floor"

    def credits(self, evidence: Evidence) -> FloatArray:
        return evidence.contributions.counts.astype(np.float64)


@dataclass
class RandomRanking:
    """The numbers 1 to n in an order that follows from the seed alone."""

    name: ClassVar[str] = "random_ranking"
    title: ClassVar[str] = "Random ranking"
    category: ClassVar[Category] = "floor"

    def credits(self, evidence: Evidence) -> FloatArray:
        generator = np.random.Generator(np.random.PCG64(derive_seed("baselines", "random_ranking", evidence.seed)))
        order = np.argsort(generator.random(evidence.contributions.n), kind="stable")
        return (order + 1).astype(np.float64)
