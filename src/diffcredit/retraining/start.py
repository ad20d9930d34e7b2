"""Where coalitions start, dense or sparse, and what that costs to prepare."""

import dataclasses

from diffcredit.diffusion.protocol import DiffusionModel
from diffcredit.diffusion.settings import Training
from diffcredit.retraining.protocol import Ground, Rehearsal
from diffcredit.retraining.pruning import Sparsity


def start_of(ground: Ground, sparse: Sparsity | None) -> DiffusionModel:
    """The model that coalitions start from: the base model, or the sparse one where the study says how."""
    return ground.base if sparse is None else sparse.model(ground)


def rehearsal_of(
    start: DiffusionModel,
    training: Training,
    sparse: Sparsity | None,
    *,
    coalition: Training | None,
    prepared_steps: int = 0,
) -> Rehearsal:
    """The rehearsal of a retraining that prepares the start and then ``prepared_steps`` batches of its own."""
    if sparse is not None:
        start, prepared_steps = sparse.outline(start), prepared_steps + sparse.recover_steps
    preparation = dataclasses.replace(training, steps=prepared_steps, warmup_steps=0) if prepared_steps else None
    return Rehearsal(start, preparation, coalition)
