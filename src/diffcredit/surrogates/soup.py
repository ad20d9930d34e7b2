"""The average of the members' own models, weight by weight, in place of the coalition's model."""

from dataclasses import dataclass

import numpy as np

from diffcredit.diffusion.settings import Count
from diffcredit.properties import Images
from diffcredit.surrogates.base import ImageSurrogate, Material, Work
from diffcredit.surrogates.contributor_models import contributor_models
from diffcredit.util.arrays import BoolArray


@dataclass
class Soup(ImageSurrogate):
    """Images of the model Σ_{i∈S} c_i θ_i / Σ_{i∈S} c_i.

    θ_i is contributor i's own fine-tuned model and c_i the number of its images. Coalitions need no training, but
    sampling; hence fewer ``coalitions`` than with other surrogates.
    """

    coalitions: Count = 200

    needs_start = True
    keeps_seeds = True

    def work(self, n: int, coalitions: int) -> Work:
        return Work(fine_tunings=n, samplings=coalitions)

    def prepare(self, material: Material) -> None:
        self._models = contributor_models(material, "soup")
        self._counts, self._sampling = material.contributions.counts, material.sampling

    def images(self, coalition: BoolArray) -> Images:
        from diffcredit.diffusion.generating import generate

        weights = np.where(coalition, self._counts, 0) / self._counts[coalition].sum()
        return generate(self._models.average(weights), self._sampling, often=True)
