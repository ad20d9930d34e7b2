"""Sparsified fine-tuning: prune the base model, let it recover on all images, fine-tune that per coalition."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt

from diffcredit.artifacts import fingerprint
from diffcredit.diffusion.kept import kept_model
from diffcredit.diffusion.protocol import DiffusionModel
from diffcredit.diffusion.settings import Fraction, PositiveInt, Training
from diffcredit.retraining.fine_tune import FineTune
from diffcredit.retraining.protocol import Ground, Rehearsal
from diffcredit.retraining.pruning import prune_to
from diffcredit.seeds import derive_seed


@dataclass
class Sparsified(FineTune):
    """Keeps the share ``parameters`` of the base model's parameters, recovers for ``recover_steps`` on all
    contributions at ``recover_learning_rate`` (the base model's unless given), then fine-tunes as
    :class:`FineTune` does."""

    parameters: Fraction = 0.55
    recover_steps: PositiveInt = 10_000
    recover_learning_rate: Annotated[float, Gt(0)] | None = None

    def prepare(self, ground: Ground) -> None:
        recovery = self.recovery(ground.training)
        identity = fingerprint([ground.base.fingerprint, self.parameters, dataclasses.asdict(recovery), ground.seed])
        sparse = kept_model(
            ground.folder / f"sparse-{identity[:12]}",
            type(ground.base).load,
            lambda: pruned(ground.base, self.parameters),
            ground.contributions,
            recovery,
            seed=derive_seed(ground.seed, "recover"),
            on_step=lambda done, total: ground.progress("recovering the pruned model", done, total),
            device=ground.base.device,
        )
        self.start_from(sparse, ground)

    def recovery(self, base: Training) -> Training:
        """The base model's training settings with the recovery's in their place."""
        rate = self.recover_learning_rate or base.learning_rate
        return dataclasses.replace(base, steps=self.recover_steps, learning_rate=rate)

    def rehearse(self, untrained: DiffusionModel, training: Training) -> Rehearsal:
        return Rehearsal(pruned(untrained, self.parameters), self.recovery(training), self.training(training))


def pruned(base: DiffusionModel, parameters: float) -> DiffusionModel:
    """A copy of ``base`` with the share ``parameters`` of its parameters."""
    model = base.clone()
    model.network = prune_to(base.network, parameters, base.example()).to(base.device)
    return model
