"""The model that coalitions start from, dense or sparse, and the cost of preparing it."""

import dataclasses

from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.settings import Training
from diffcredit.retraining.base import Rehearsal, RetrainingContext
from diffcredit.retraining.pruning import Sparsity


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
