"""Sparsified fine-tuning: prune the base model, let it recover on all images, then fine-tune it for each coalition."""

from dataclasses import dataclass

from diffcredit.contributions import Contributions
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.settings import Training
from diffcredit.retraining.base import Rehearsal, RetrainingContext
from diffcredit.retraining.fine_tune import FineTune
from diffcredit.retraining.pruning import Sparsity


@dataclass
class Sparsified(Sparsity, FineTune):
    """Prune the base model and let it recover as in :class:`Sparsity`, then fine-tune it as in :class:`FineTune`."""

    def prepare(self, context: RetrainingContext) -> None:
        self.start_from(self.model(context), context)

    def rehearse(self, start: DiffusionModel, training: Training, contributions: Contributions) -> Rehearsal:
        return Rehearsal(self.outline(start), self.recovery(training), self.training(training), together=True)
