"""Sparsified fine-tuning: prune the base model, let it recover on all images, fine-tune that per coalition."""

from dataclasses import dataclass

from diffcredit.contributions import Contributions
from diffcredit.diffusion.protocol import DiffusionModel
from diffcredit.diffusion.settings import Training
from diffcredit.retraining.fine_tune import FineTune
from diffcredit.retraining.protocol import Ground, Rehearsal
from diffcredit.retraining.pruning import Sparsity


@dataclass
class Sparsified(Sparsity, FineTune):
    """Prunes the base model and lets it recover as :class:`Sparsity` says, then fine-tunes it as
    :class:`FineTune` does."""

    def prepare(self, ground: Ground) -> None:
        self.start_from(self.model(ground), ground)

    def rehearse(self, start: DiffusionModel, training: Training, contributions: Contributions) -> Rehearsal:
        return Rehearsal(self.outline(start), self.recovery(training), self.training(training), together=True)
