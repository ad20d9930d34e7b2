"""The members' own models, averaged weight by weight, stand in for the coalition's."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from diffcredit.diffusion.settings import Count
from diffcredit.properties import Images
from diffcredit.surrogates.base import Material, Work
from diffcredit.surrogates.contributor_models import contributor_models
from diffcredit.util.arrays import BoolArray


@dataclass
class Soup:
    """Images of Σ_{i∈S} c_i θ_i / Σ_{i∈S} c_i, θ_i contributor i's own fine-tuned model and c_i the number of its
    images. No training per coalition, but sampling, hence fewer ``coalitions`` than with other surrogates."""

    coalitions: Count = 200

    needs_start: ClassVar[bool] = True
    keeps_seeds: ClassVar[bool] = True

    def work(self, n: int, coalitions: int) -> Work:
        return Work(fine_tunings=n, samplings=coalitions)

    def prepare(self, material: Material) -> None:
        self._models = contributor_models(material, "soup")
        self._counts, self._sampling = material.contributions.counts, material.sampling

    def images(self, coalition: BoolArray) -> Images:
        from diffcredit.diffusion.generating import generate

        weights = np.where(coalition, self._counts, 0) / self._counts[coalition].sum()
        return generate(self._models.average(weights), self._sampling, often=True)
