"""Structured pruning: the least important channels are removed whole, so the network is dense, and fast everywhere."""

import copy
import math
from collections.abc import Callable
from typing import Literal

import torch
from diffusers.models.attention_processor import Attention, AttnProcessor2_0
from torch import Tensor, nn
from torch_pruning.pruner.importance import GroupMagnitudeImportance, GroupTaylorImportance

from diffcredit.diffusion.model import Batch, DiffusionModel
from diffcredit.diffusion.networks import parameter_count, sync_resamplers
from diffcredit.retraining.pruning.structure import Coupled, Example, target_count, trace, widths_for
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

IMAGES = 128  # contributed images that the loss is computed on, drawn by seed; all, if there are fewer
TIME_STEPS = 100  # evenly spaced
MICRO_BATCH = 32  # images in memory at once


def prune(
    network: nn.Module, parameters: float, example: Example, *, scores: Scores | None = None, multiple: int = 8
) -> nn.Module:
    """Return a copy of ``network``, a U-Net of diffusers, on the CPU, with a share or count ``parameters`` of its own.

    In each set of coupled channels, those with the highest ``scores`` are kept (by default the largest ℓ2 norms), with
    their weights; queries are scaled because narrower heads have another scale. Channels of a GroupNorm are removed in
    multiples of its groups, those of an attention in multiples of its heads, at the same positions of every group or
    head. Where this allows it, widths are multiples of ``multiple``. Some scores read the parameters' ``grad``.
    """
    pruned = copy.deepcopy(network).cpu().requires_grad_()
    for parameter, original in zip(pruned.parameters(), network.parameters(), strict=True):
        parameter.grad = None if original.grad is None else original.grad.cpu()
    graph, structure = trace(pruned, example)
    widths = widths_for(structure, target_count(parameters, parameter_count(network)), multiple)
    measure = scores or scores_for("magnitude", 0)
    # all scores before the first removal, since sets share layers
    going = [
        (channels, _least(channels, measure(channels), int(width)))
        for channels, width in zip(structure.coupled, widths, strict=True)
        if width < channels.width
    ]
    head_widths = _head_widths(pruned)
    for channels, places in going:
        root = channels.group[0].dep
        graph.get_pruning_group(root.target.module, root.handler, places).prune()
    _keep_attention_scale(head_widths)
    sync_resamplers(pruned)
    pruned.zero_grad(set_to_none=True)
    return pruned.eval()


def _least(channels: Coupled, scores: Tensor, width: int) -> list[int]:
    """Return the channels to remove until ``width`` are left: in every part those with the lowest mean score."""
    per_part = scores.view(channels.parts, -1).mean(dim=0)
    places = per_part.argsort(stable=True)[: (channels.width - width) // channels.parts]
    offsets = torch.arange(channels.parts)[:, None] * len(per_part)
    return sorted((offsets + places).flatten().tolist())


def _head_widths(network: nn.Module) -> dict[Attention, int]:
    """Return the width of each attention's query projection, where the attention's scale follows from it."""
    attentions = [module for module in network.modules() if isinstance(module, Attention)]
    return {a: a.to_q.out_features for a in attentions if isinstance(a.processor, AttnProcessor2_0)}


@torch.no_grad()
def _keep_attention_scale(before: dict[Attention, int]) -> None:
    """Scale the queries, since narrower heads of width d divide their products by a smaller √d: removing channels that
    are zero then changes nothing."""
    for attention, width in before.items():
        for parameter in attention.to_q.parameters():
            parameter.mul_(math.sqrt(attention.to_q.out_features / width))


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
    mean, gradients = 0.0, [torch.zeros_like(parameter) for parameter in parameters]
    for index in torch.arange(len(batch)).split(MICRO_BATCH):
        t = torch.full((len(index),), time, device=noise.device)
        loss = model.loss(batch.select(index), t, noise[index.to(noise.device)]).sum() / len(batch)
        # the last blocks of some transformers have layers that the loss does not see
        torch._foreach_add_(gradients, torch.autograd.grad(loss, parameters, materialize_grads=True))
        mean += loss.item()
    return mean, gradients
