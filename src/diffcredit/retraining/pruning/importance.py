"""The importance of each channel; the least important are removed."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch_pruning.pruner.importance import GroupMagnitudeImportance, GroupTaylorImportance

from diffcredit.retraining.pruning.structure import Coupled
from diffcredit.util.seeds import derive_seed

Importance = Literal["magnitude", "taylor", "diff-pruning", "random", "reinitialised"]
"""``magnitude``: the ℓ2 norm of the weights. ``taylor``: Σ|w · ∂L/∂w|, the first-order change of the denoising loss L
averaged over time steps (Molchanov et al. 2019). ``diff-pruning``: the same without the late time steps, whose loss is
small (Fang et al. 2023). ``random``: by chance. ``reinitialised``: as ``magnitude``, but the pruned network gets fresh
weights, so that only its structure is kept."""

GRADIENT_THRESHOLD: dict[Importance, float] = {"taylor": 0.0, "diff-pruning": 0.05}
"""The importances that need the gradient of the loss, and the L_t / L_max below which time steps are left out."""

Scores = Callable[[Coupled], Tensor]
"""From a set of coupled channels to the importance of each, (width,)."""


def scores_for(importance: Importance, seed: int) -> Scores:
    """Return the scores of ``importance``; gradient-based ones read the parameters' ``grad``."""
    if importance == "random":
        return lambda channels: _random(channels, seed)
    measure = GroupTaylorImportance() if importance in GRADIENT_THRESHOLD else GroupMagnitudeImportance(p=2)
    return lambda channels: measure(channels.group)


def _random(channels: Coupled, seed: int) -> Tensor:
    # torch-pruning's own draws from torch's one global generator
    generator = torch.Generator().manual_seed(derive_seed(seed, channels.name))
    return torch.rand(channels.width, generator=generator)
