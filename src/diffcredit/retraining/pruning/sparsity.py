"""What a study may say about the sparse model, and the sparse model itself."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Gt

from diffcredit.diffusion import networks
from diffcredit.diffusion.kept import kept_model
from diffcredit.diffusion.protocol import DiffusionModel
from diffcredit.diffusion.settings import Fraction, PositiveInt, Training
from diffcredit.retraining.protocol import Ground
from diffcredit.retraining.pruning.channels import prune
from diffcredit.retraining.pruning.gradients import collect_gradients
from diffcredit.retraining.pruning.importance import GRADIENT_THRESHOLD, Importance, scores_for
from diffcredit.retraining.pruning.ranks import has_adapters, prune_ranks
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.seeds import derive_seed


@dataclass
class Sparsity:
    """How the base model is pruned, and how it recovers.

    ``parameters`` is the share of the base model's parameters to keep, in (0, 1), or their number; of a model with
    LoRA adapters, the adapters' parameters. ``importance`` tells which channels (or rank pairs) stay. Widths are
    multiples of ``multiple``, which tensor cores like, where the architecture allows. The pruned model recovers for
    ``recover_steps`` on all contributions, at ``recover_learning_rate`` (the base model's unless given).
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    parameters: Fraction | Annotated[int, Gt(1)] = 0.55
    importance: Importance = "magnitude"
    multiple: PositiveInt = 8
    recover_steps: PositiveInt = 10_000
    recover_learning_rate: Annotated[float, Gt(0)] | None = None

    def model(self, ground: Ground) -> DiffusionModel:
        """The base model, pruned and recovered: kept in ``ground.folder`` and found again."""
        recovery = self.recovery(ground.training)
        settings = [self.parameters, self.importance, self.multiple, dataclasses.asdict(recovery)]
        identity = fingerprint([ground.base.fingerprint, settings, ground.seed])
        return kept_model(
            ground.folder / f"sparse-{identity[:12]}",
            ground.load,
            lambda: self.pruned(ground),
            ground.contributions,
            recovery,
            seed=derive_seed(ground.seed, "recover"),
            what="recovering the pruned model",
            progress=ground.progress,
            device=ground.base.device,
        )

    def recovery(self, base: Training) -> Training:
        """The base model's training settings with the recovery's in their place."""
        return dataclasses.replace(
            base,
            steps=self.recover_steps,
            learning_rate=self.recover_learning_rate or base.learning_rate,
            warmup_steps=min(base.warmup_steps, self.recover_steps - 1),
        )

    def pruned(self, ground: Ground) -> DiffusionModel:
        """A pruned copy of the base model, before its recovery."""
        model, seed = ground.base.clone(), derive_seed(ground.seed, "prune")
        if (threshold := GRADIENT_THRESHOLD.get(self.importance)) is not None:
            collect_gradients(model, ground.data(), seed=seed, threshold=threshold)
        return self._without_the_least(model, self.importance, seed)

    def outline(self, start: DiffusionModel) -> DiffusionModel:
        """A copy of ``start`` as large as the sparse model will be, for foreseeing costs."""
        return self._without_the_least(start.clone(), "magnitude", seed=0)

    def _without_the_least(self, model: DiffusionModel, importance: Importance, seed: int) -> DiffusionModel:
        if has_adapters(model.network):
            prune_ranks(model.network, self.parameters, importance=importance, seed=seed)
            return model
        device, scores = model.device, scores_for(importance, seed)
        network = prune(model.network, self.parameters, model.example(), scores=scores, multiple=self.multiple)
        if importance == "reinitialised":
            networks.reinitialise(network, derive_seed(seed, "weights"))
        model.network = network.to(device)
        return model
