"""The settings of the sparse model, and the sparse model itself."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Gt

from diffcredit.diffusion import networks
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.settings import Fraction, PositiveInt, Training
from diffcredit.diffusion.training import kept_model
from diffcredit.errors import UserError
from diffcredit.retraining.base import Rehearsal, RetrainingContext
from diffcredit.retraining.pruning.channels import GRADIENT_THRESHOLD, Importance, collect_gradients, prune, scores_for
from diffcredit.retraining.pruning.ranks import has_adapters, prune_ranks
from diffcredit.retraining.pruning.transformers import is_transformer, prune_transformer
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.plugins import NEWER
from diffcredit.util.seeds import derive_seed


@dataclass
class Sparsity:
    """Settings of pruning the base model and of its recovery.

    ``parameters`` is the share of the base model's parameters to keep, in (0, 1), or their number; for a model with
    LoRA adapters, of the adapters' parameters. ``importance`` decides what is kept: channels of a U-Net, heads and MLP
    units of a transformer, rank pairs of adapters. Where the architecture allows it, widths are multiples of
    ``multiple``, which suits tensor cores. Of a transformer's blocks the share ``depth`` is kept, by default all. The
    pruned model is trained for ``recover_steps`` on all contributions at ``recover_learning_rate`` (by default the base
    model's).
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    parameters: Fraction | Annotated[int, Gt(1)] = 0.55
    importance: Importance = "magnitude"
    multiple: PositiveInt = 8
    recover_steps: PositiveInt = 10_000
    recover_learning_rate: Annotated[float, Gt(0)] | None = None
    depth: Fraction | None = dataclasses.field(default=None, metadata=NEWER)

    def model(self, context: RetrainingContext) -> DiffusionModel:
        """Return the base model, pruned and recovered; it is cached in ``context.folder``."""
        recovery = self.recovery(context.training)
        settings = [self.parameters, self.importance, self.multiple, dataclasses.asdict(recovery)]
        settings += [] if self.depth is None else [self.depth]
        identity = fingerprint([context.base.fingerprint, settings, context.seed])
        return kept_model(
            context.folder / f"sparse-{identity[:12]}",
            context.load,
            lambda: self.pruned(context),
            context.contributions,
            recovery,
            seed=derive_seed(context.seed, "recover"),
            what="recovering the pruned model",
            progress=context.progress,
            device=context.base.device,
        )

    def recovery(self, base: Training) -> Training:
        """Return the training settings of the base model, ``base``, changed to those of the recovery."""
        return dataclasses.replace(
            base,
            steps=self.recover_steps,
            learning_rate=self.recover_learning_rate or base.learning_rate,
            warmup_steps=min(base.warmup_steps, self.recover_steps - 1),
        )

    def pruned(self, context: RetrainingContext) -> DiffusionModel:
        """Return a pruned copy of the base model, before its recovery."""
        model, seed = context.base.clone(), derive_seed(context.seed, "prune")
        self._check(model)
        if (threshold := GRADIENT_THRESHOLD.get(self.importance)) is not None:
            collect_gradients(model, context.data(), seed=seed, threshold=threshold)
        return self._without_the_least(model, self.importance, seed)

    def outline(self, start: DiffusionModel) -> DiffusionModel:
        """Return a copy of ``start`` of the sparse model's size, from which costs are estimated."""
        self._check(start)
        return self._without_the_least(start.clone(), "magnitude", seed=0)

    def _check(self, model: DiffusionModel) -> None:
        adapters = has_adapters(model.network)
        if self.depth is not None and (adapters or not is_transformer(model.network)):
            what = "a model with LoRA adapters" if adapters else type(model.network).__name__
            raise UserError(f"depth: {self.depth} is for transformers that are trained whole, not for {what}")
        if self.importance == "diff-pruning" and model.objective.prediction == "flow":
            raise UserError(
                "importance: 'diff-pruning' leaves out time steps of much noise, which is easy to predict there; this "
                "model is trained by flow matching, whose velocity is not; accepted: taylor, magnitude, random, "
                "reinitialised"
            )

    def _without_the_least(self, model: DiffusionModel, importance: Importance, seed: int) -> DiffusionModel:
        if has_adapters(model.network):
            prune_ranks(model.network, self.parameters, importance=importance, seed=seed)
            return model
        device = model.device
        if is_transformer(model.network):
            network = prune_transformer(
                model.network, self.parameters, importance, seed, multiple=self.multiple, depth=self.depth
            )
        else:
            scores = scores_for(importance, seed)
            network = prune(model.network, self.parameters, model.example(), scores=scores, multiple=self.multiple)
        if importance == "reinitialised":
            networks.reinitialise(network, derive_seed(seed, "weights"))
        model.network = network.to(device)
        return model


def start_of(context: RetrainingContext, sparse: Sparsity | None) -> DiffusionModel:
    """Return the base model, or the sparse one where ``sparse`` is given."""
    return context.base if sparse is None else sparse.model(context)


def rehearsal_of(
    start: DiffusionModel,
    training: Training,
    sparse: Sparsity | None,
    *,
    coalition: Training | None,
    prepared_steps: int = 0,
) -> Rehearsal:
    """Return the rehearsal of a retraining that prepares the start and then computes ``prepared_steps`` batches."""
    if sparse is not None:
        start, prepared_steps = sparse.outline(start), prepared_steps + sparse.recover_steps
    preparation = dataclasses.replace(training, steps=prepared_steps, warmup_steps=0) if prepared_steps else None
    return Rehearsal(start, preparation, coalition)
