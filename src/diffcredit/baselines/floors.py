"""The floors: what knows nothing but how much was given, and what knows nothing."""

import numpy as np

from diffcredit.baselines.protocol import Evidence, FloatArray
from diffcredit.seeds import derive_seed


def image_count(evidence: Evidence) -> FloatArray:
    """How many training images each contributor gave."""
    return evidence.contributions.counts.astype(np.float64)


def random_ranking(evidence: Evidence) -> FloatArray:
    """The numbers 1 to n in an order that follows from the seed alone."""
    generator = np.random.Generator(np.random.PCG64(derive_seed("baselines", "random_ranking", evidence.seed)))
    order = np.argsort(generator.random(evidence.contributions.n), kind="stable")
    return (order + 1).astype(np.float64)
