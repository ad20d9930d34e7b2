"""Transformers of which heads, MLP units or blocks were removed: removing them, and checking what a file has."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from diffusers.models.transformers.transformer_flux import FluxSingleTransformerBlock
from diffusers.models.transformers.transformer_flux2 import Flux2ParallelSelfAttention
from torch import Tensor, nn

from diffcredit.diffusion.transformer_sites import (
    ATTENTIONS,
    TRANSFORMERS,
    Site,
    flux_2_widths,
    head_size,
    sites,
    stacks,
)
from diffcredit.errors import UserError


def cut(network: nn.Module, kept: Mapping[Site, Sequence[int]]) -> None:
    """Keep the heads or units ``kept`` of each site, in place, with their weights."""
    for (name, outputs), places in _places(network, kept).items():
        _select(network.get_submodule(name), 0 if outputs else 1, places)
    sync_layers(network)
    sync_heads(network)


def _places(network: nn.Module, kept: Mapping[Site, Sequence[int]]) -> dict[tuple[str, bool], Tensor]:
    """Return which outputs or inputs of each layer stay: a fused layer has several sites, and loses theirs at once."""
    stay: dict[tuple[str, bool], Tensor] = {}
    for site, places in kept.items():
        here = torch.zeros(site.count, dtype=torch.bool)
        here[list(places)] = True
        for span in site.spans:
            key = span.layer, span.outputs
            if key not in stay:
                weight = network.get_submodule(span.layer).get_parameter("weight")
                stay[key] = torch.ones(weight.shape[0 if span.outputs else 1], dtype=torch.bool)
            stay[key][span.start : span.start + site.count * site.size] = here.repeat_interleave(site.size)
    return stay


def _select(layer: nn.Module, dim: int, stay: Tensor) -> None:
    """Keep the outputs (``dim`` 0) or inputs (1) of a linear layer or convolution where ``stay`` is true."""
    for name, parameter in layer.named_parameters(recurse=False):
        if name == "weight" or dim == 0:
            index = stay.nonzero().flatten().to(parameter.device)
            smaller = parameter.detach().index_select(dim, index)
            layer._parameters[name] = nn.Parameter(smaller, requires_grad=parameter.requires_grad)


def drop_blocks(network: Any, kept: Mapping[str, Sequence[int]]) -> None:
    """Keep the blocks ``kept`` of the stack at each path, in place, and say so in the network's config."""
    keys = {stack.path: stack.key for stack in stacks(network) if stack.key is not None}
    for path, places in kept.items():
        blocks = getattr(network, path)
        setattr(network, path, nn.ModuleList([blocks[place] for place in places]))
        settings: dict[str, Any] = {keys[path]: len(places)}
        if (dual := network.config.get("dual_attention_layers")) is not None:
            settings["dual_attention_layers"] = tuple(new for new, old in enumerate(places) if old in dual)
        network.register_to_config(**settings)


def sync_layers(network: nn.Module) -> None:
    """Update the widths that layers state from the shapes of their weights."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            depthwise = 1 < module.groups == module.out_channels
            module.groups = module.weight.shape[0] if depthwise else module.groups
            module.out_channels, module.in_channels = module.weight.shape[0], module.weight.shape[1] * module.groups
        elif isinstance(module, nn.Linear):
            module.out_features, module.in_features = module.weight.shape
        elif isinstance(module, nn.GroupNorm):
            module.num_channels = module.weight.shape[0]
        elif isinstance(module, nn.Embedding):
            module.num_embeddings, module.embedding_dim = module.weight.shape


def sync_heads(network: nn.Module) -> None:
    """Update what attentions state of their heads from the widths of their layers; a head keeps its own width."""
    for module in network.modules():
        if isinstance(module, FluxSingleTransformerBlock):
            module.mlp_hidden_dim = module.proj_mlp.out_features
        if not isinstance(module, ATTENTIONS):
            continue
        attention: Any = module
        size = head_size(attention)
        if isinstance(attention, Flux2ParallelSelfAttention):
            attention.inner_dim, attention.mlp_hidden_dim = flux_2_widths(attention)
        else:
            attention.inner_dim = attention.to_q.out_features
        attention.heads = attention.inner_dim // size
        if hasattr(attention, "inner_kv_dim"):
            attention.inner_kv_dim = attention.to_k.out_features
            attention.sliceable_head_dim = attention.heads


# What a file has


def stored_config(kind: str, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return ``config`` with the number of blocks that the stored tensors' ``names`` show: blocks may be missing."""
    found = dict(config)
    for stack in TRANSFORMERS[kind]:
        own = [name for name in names if name.startswith(f"{stack.path}.")]
        count = len({name.removeprefix(f"{stack.path}.").partition(".")[0] for name in own})
        if stack.key is None or not 0 < count < found.get(stack.key, math.inf):
            continue
        found[stack.key] = count
        if found.get("dual_attention_layers"):
            dual = [place for place in range(count) if f"{stack.path}.{place}.attn2.to_q.weight" in names]
            found["dual_attention_layers"] = tuple(dual)
    return found


def check_widths(network: nn.Module, whole: Sequence[Site], full: Mapping[str, Tensor], origin: str) -> None:
    """Raise a UserError unless the layers of each attention and MLP agree in their heads and units, all attentions and
    MLPs agree that were alike, and all other widths are those of the unpruned network with the sites ``whole`` and the
    state ``full``."""
    expected = {name: list(tensor.shape) for name, tensor in full.items()}
    widths: dict[tuple[str, bool], int] = {}
    counts: dict[tuple[str, int], int] = {}
    for site, before in zip(sites(network), whole, strict=True):
        # the layers of FLUX.2's single blocks agree in some numbers of heads and units, whatever their shapes
        if not 0 < site.count <= before.count or counts.setdefault((site.kind, before.count), site.count) != site.count:
            what = f"{site.name!r} has {site.count} {site.kind}, which do not fit the other layers"
            raise UserError(f"{origin}: not the weights of this architecture; {what}")
        for span in site.spans:
            key = span.layer, span.outputs
            widths[key] = widths.get(key, 0) + site.count * site.size
    for (layer, outputs), width in widths.items():
        expected[f"{layer}.weight"][0 if outputs else 1] = width
        if outputs and f"{layer}.bias" in expected:
            expected[f"{layer}.bias"][0] = width
    for name, tensor in network.state_dict().items():
        if list(tensor.shape) != expected[name]:
            what = f"{name!r} has the shape {tuple(tensor.shape)}, where {tuple(expected[name])} fits the other layers"
            raise UserError(f"{origin}: not the weights of this architecture; {what}")
