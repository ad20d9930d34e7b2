"""The importance of each channel, and the gradient of the denoising loss that it may be estimated from."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch_pruning.pruner.importance import GroupMagnitudeImportance, GroupTaylorImportance

from diffcredit.diffusion.model import Batch, DiffusionModel
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

IMAGES = 128
"""Contributed images that the loss is computed on, drawn by seed; all, if there are fewer."""

TIME_STEPS = 100
"""Number of evenly spaced time steps."""

MICRO_BATCH = 32
"""Images in memory at once."""


def scores_for(importance: Importance, seed: int) -> Scores:
    """Return the scores of ``importance``; gradient-based ones read the parameters' ``grad``."""

    def drawn(channels: Coupled) -> Tensor:
        # torch-pruning's own draws from torch's one global generator
        generator = torch.Generator().manual_seed(derive_seed(seed, channels.name))
        return torch.rand(channels.width, generator=generator)

    if importance == "random":
        return drawn
    measure = GroupTaylorImportance() if importance in GRADIENT_THRESHOLD else GroupMagnitudeImportance(p=2)
    return lambda channels: measure(channels.group)


def collect_gradients(model: DiffusionModel, data: Batch, *, seed: int, threshold: float) -> None:
    """Set the trainable parameters' ``grad`` to the gradient of the loss on ``IMAGES`` images of ``data`` at
    ``TIME_STEPS`` time steps; see :func:`accumulate`. Each image has one noise, the same at every time step."""
    generator = torch.Generator().manual_seed(seed)
    batch = data.select(torch.randperm(len(data), generator=generator)[:IMAGES])
    noise = torch.randn(batch.x.shape, generator=generator).to(batch.x.device)
    times = torch.linspace(0, model.time_steps - 1, min(TIME_STEPS, model.time_steps)).round().long()
    accumulate(model, batch, noise, times.tolist(), threshold)


def accumulate(model: DiffusionModel, batch: Batch, noise: Tensor, times: list[int], threshold: float) -> None:
    """Set the trainable parameters' ``grad`` to the gradient of L = mean_t L_t over ``times``, ascending. L_t is the
    mean loss of ``batch`` at time step t with ``noise`` (m, c, h, w). From the first t on at which L_t is under
    ``threshold`` times the largest so far, time steps are left out (Fang et al. 2023: there the image is nearly all
    noise, which is easy to predict, and the gradient carries little information)."""
    model.network.eval()
    parameters = [parameter for parameter in model.network.parameters() if parameter.requires_grad]
    total, largest, taken = [torch.zeros_like(parameter) for parameter in parameters], 0.0, 0
    for time in times:
        loss, gradients = _at(model, batch, noise, time, parameters)
        largest = max(largest, loss)
        if loss < threshold * largest:
            break
        torch._foreach_add_(total, gradients)
        taken += 1
    for parameter, gradient in zip(parameters, total, strict=True):
        parameter.grad = gradient / taken


def _at(
    model: DiffusionModel, batch: Batch, noise: Tensor, time: int, parameters: list[nn.Parameter]
) -> tuple[float, list[Tensor]]:
    """Return the mean loss at one time step and its gradient."""
    mean, gradients = 0.0, [torch.zeros_like(parameter) for parameter in parameters]
    for index in torch.arange(len(batch)).split(MICRO_BATCH):
        t = torch.full((len(index),), time, device=noise.device)
        loss = model.loss(batch.select(index), t, noise[index.to(noise.device)]).sum() / len(batch)
        torch._foreach_add_(gradients, torch.autograd.grad(loss, parameters))
        mean += loss.item()
    return mean, gradients
