"""Structured pruning: whole channels go, so the smaller network is dense and faster on any hardware."""

import copy
import math

import torch
from diffusers.models.attention_processor import Attention, AttnProcessor2_0
from torch import Tensor, nn

from diffcredit.diffusion.networks import parameter_count, sync_resamplers
from diffcredit.retraining.pruning.importance import Scores, scores_for
from diffcredit.retraining.pruning.structure import Coupled, Example, trace
from diffcredit.retraining.pruning.target import target_count
from diffcredit.retraining.pruning.widths import widths_for


def prune(
    network: nn.Module,
    parameters: float,
    example: Example,
    *,
    scores: Scores | None = None,
    multiple: int = 8,
) -> nn.Module:
    """A copy on the CPU of ``network``, a U-Net of diffusers, with ``parameters`` (a share or a count) of its own.

    What is kept are slices of the weights, those with the highest ``scores`` (by default the largest ℓ2 norms) in
    each set of coupled channels; only queries are scaled, since narrower heads have another scale. Channels of a
    GroupNorm go in multiples of its groups, those of an attention in multiples of its heads, at the same places of
    every group or head; where these allow it, widths are multiples of ``multiple``. Scores by gradient read the
    ``grad`` of the parameters of ``network``.
    """
    pruned = copy.deepcopy(network).cpu().requires_grad_()
    for parameter, original in zip(pruned.parameters(), network.parameters(), strict=True):
        parameter.grad = None if original.grad is None else original.grad.cpu()
    graph, structure = trace(pruned, example)
    widths = widths_for(structure, target_count(parameters, parameter_count(network)), multiple)
    measure = scores or scores_for("magnitude", 0)
    # all scores before the first channel goes, since sets share layers
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
    """The channels to remove until ``width`` are left: the lowest mean score over the parts, in every part."""
    per_part = scores.view(channels.parts, -1).mean(dim=0)
    places = per_part.argsort(stable=True)[: (channels.width - width) // channels.parts]
    offsets = torch.arange(channels.parts)[:, None] * len(per_part)
    return sorted((offsets + places).flatten().tolist())


def _head_widths(network: nn.Module) -> dict[Attention, int]:
    """The outputs of each attention's query projection, where the scale of its products follows from them."""
    attentions = [module for module in network.modules() if isinstance(module, Attention)]
    return {a: a.to_q.out_features for a in attentions if isinstance(a.processor, AttnProcessor2_0)}


@torch.no_grad()
def _keep_attention_scale(before: dict[Attention, int]) -> None:
    """Narrower heads of width d divide their products by a smaller √d; the queries make up for it, so that
    removing channels that are zero changes nothing."""
    for attention, width in before.items():
        for parameter in attention.to_q.parameters():
            parameter.mul_(math.sqrt(attention.to_q.out_features / width))
