"""Structured pruning of a diffusers U-Net by magnitude, with torch-pruning.

Whole channels go, so the smaller network is dense and faster on any hardware. Channels of a GroupNorm go in
multiples of its groups, those of an attention in multiples of its heads, so widths move in steps.
"""

import copy
from typing import Any, cast

import torch
import torch_pruning
from diffusers.models.attention_processor import Attention
from torch import nn

from diffcredit.diffusion.networks import parameter_count, sync_resamplers
from diffcredit.errors import UserError

Example = dict[str, torch.Tensor]
"""Inputs on which the network's structure is traced."""


def prune_to(network: nn.Module, parameters: float, example: Example) -> nn.Module:
    """A copy of ``network`` (a UNet2DModel) with as near as possible the share ``parameters`` of its parameters.

    The channels with the smallest ℓ2 norm go, layer by layer at one ratio; the ratio is found by bisection,
    since the share falls with it. Raises a UserError when the nearest width is over 0.1 away from the target.
    """
    total = parameter_count(network)
    best = copy.deepcopy(network)
    low, high = 0.0, 1.0
    for _ in range(7):  # widths move in steps of a group, so finer ratios change nothing
        ratio = (low + high) / 2
        candidate = prune(network, ratio, example)
        share = parameter_count(candidate) / total
        if abs(share - parameters) < abs(parameter_count(best) / total - parameters):
            best = candidate
        low, high = (ratio, high) if share > parameters else (low, ratio)
    reached = parameter_count(best) / total
    if abs(reached - parameters) > 0.1:
        raise UserError(
            f"retraining.parameters: {parameters:g} cannot be reached; the nearest widths of this architecture "
            f"(multiples of its GroupNorm groups) keep {reached:.2f} of the parameters"
        )
    return best


def prune(network: nn.Module, ratio: float, example: Example) -> nn.Module:
    """A copy of ``network`` with the share ``ratio`` of every layer's channels removed, smallest ℓ2 norm first."""
    pruned = copy.deepcopy(network).cpu()
    pruner = torch_pruning.pruner.MagnitudePruner(
        pruned,
        cast(Any, example),  # named inputs, which its annotation leaves out
        importance=torch_pruning.importance.MagnitudeImportance(p=2),
        pruning_ratio=ratio,
        ignored_layers=[pruned.get_submodule("conv_out")],  # its channels are the image's
        # the library's defaults for these are shared between calls, and it writes to them
        in_channel_groups={},
        out_channel_groups=_heads(pruned),
    )
    pruner.step()
    sync_resamplers(pruned)
    return pruned.eval()


def _heads(network: nn.Module) -> dict[nn.Module, int]:
    """The number of heads that each projection's channels belong to: every head must lose as many."""
    attentions = [module for module in network.modules() if isinstance(module, Attention)]
    return {
        projection: attention.heads
        for attention in attentions
        for projection in (attention.to_q, attention.to_k, attention.to_v)
        if projection is not None
    }
