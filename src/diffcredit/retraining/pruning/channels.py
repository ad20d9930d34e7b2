"""Structured pruning: whole channels are removed, so the smaller network is dense and faster on any hardware."""

import copy
import math

import torch
from diffusers.models.attention_processor import Attention, AttnProcessor2_0
from torch import Tensor, nn

from diffcredit.diffusion.networks import parameter_count, sync_resamplers
from diffcredit.retraining.pruning.importance import Scores, scores_for
from diffcredit.retraining.pruning.structure import Coupled, Example, trace
from diffcredit.retraining.pruning.widths import target_count, widths_for


def prune(
    network: nn.Module, parameters: float, example: Example, *, scores: Scores | None = None, multiple: int = 8
) -> nn.Module:
    """Return a copy on the CPU of ``network``, a U-Net of diffusers, with ``parameters`` (a share or a count) of its
    own.

    In each set of coupled channels, those with the highest ``scores`` are kept (by default the largest ℓ2 norms), with
    their weights; queries are scaled because narrower heads have another scale. Channels of a GroupNorm are removed in
    multiples of its groups, those of an attention in multiples of its heads, at the same positions of every group or
    head. Where this allows it, widths are multiples of ``multiple``. Gradient-based scores read the parameters'
    ``grad``.
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
