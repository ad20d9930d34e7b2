"""Model soup: average the fine-tuned weights of a coalition's members."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.settings import Training
from diffcredit.retraining.base import OneByOne, Rehearsal, RetrainingContext
from diffcredit.retraining.contributor_models import ContributorModels
from diffcredit.retraining.fine_tune import FineTune
from diffcredit.retraining.pruning import Sparsity
from diffcredit.retraining.pruning.sparsity import rehearsal_of, start_of


@dataclass
class Soup(OneByOne, FineTune):
    """Fine-tune the base or the ``sparse`` model as :class:`FineTune` does, once for each contributor i: θ_i.

    A coalition S trains nothing: its weights are Σ_{i∈S} (m_i/m_S) θ_i, with m_i images of contributor i and m_S of all
    in S (Wortsman et al. 2022). To first order in the learning rate this equals fine-tuning on S. Nothing is random:
    the seed of an evaluation changes nothing.
    """

    sparse: Sparsity | None = None

    def prepare(self, context: RetrainingContext) -> None:
        self.start, self.ground = start_of(context, self.sparse), context
        self.settings = self.training(context.training)
        self.contributor_models = ContributorModels.prepare(context, self.start, self.settings)
        self.weights = self.contributor_models.fingerprint

    def rehearse(self, start: DiffusionModel, training: Training, contributions: Contributions) -> Rehearsal:
        steps = contributions.n * self.steps
        return rehearsal_of(start, self.training(training), self.sparse, coalition=None, prepared_steps=steps)

    def model_for(self, coalition: NDArray[np.bool_], seed: int) -> DiffusionModel:
        images = coalition * self.ground.contributions.counts
        return self.contributor_models.average(images / images.sum())
