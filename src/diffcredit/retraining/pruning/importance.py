"""How much each channel matters: the least important go."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch_pruning.pruner.importance import GroupMagnitudeImportance, GroupTaylorImportance

from diffcredit.retraining.pruning.structure import Coupled
from diffcredit.util.seeds import derive_seed

Importance = Literal["magnitude", "taylor", "diff-pruning", "random", "reinitialised"]
"""``magnitude``: the ℓ2 norm of the weights. ``taylor``: Σ|w · ∂L/∂w|, the first-order change of the denoising
loss L averaged over time steps (Molchanov et al. 2019). ``diff-pruning``: the same without the late time steps, whose
loss is small (Fang et al. 2023). ``random``: no choice at all. ``reinitialised``: as ``magnitude``, and what is left
gets fresh weights, so that the structure alone is kept."""

GRADIENT_THRESHOLD: dict[Importance, float] = {"taylor": 0.0, "diff-pruning": 0.05}
"""The importances that need the loss's gradient, and the L_t / L_max under which its time steps are left out."""

Scores = Callable[[Coupled], Tensor]
"""From a set of coupled channels to how much each of them matters, (width,)."""


def scores_for(importance: Importance, seed: int) -> Scores:
    """The scores of ``importance``; those by gradient read the parameters' ``grad``."""
    if importance == "random":
        return lambda channels: _random(channels, seed)
    measure = GroupTaylorImportance() if importance in GRADIENT_THRESHOLD else GroupMagnitudeImportance(p=2)
    return lambda channels: measure(channels.group)


def _random(channels: Coupled, seed: int) -> Tensor:
    # torch-pruning's own draws from torch's one global generator
    generator = torch.Generator().manual_seed(derive_seed(seed, channels.name))
    return torch.rand(channels.width, generator=generator)
