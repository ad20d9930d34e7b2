"""Prunable parts of diffusers' transformers: attention heads, MLP units and whole blocks.

The residual stream keeps its width, so each removal concerns the few layers of one attention or one MLP. They are named
here by the class of diffusers' modules. A general tracer (torch-pruning) groups some of them wrongly: FLUX's single
blocks and FLUX.2 fuse projections, whose outputs are queries, keys, values and MLP units one after the other.

Heads are removed whole. Rotary embeddings turn pairs of a head's channels, and norms of queries and keys are over a
head, so a narrower head would be another function.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from diffusers.models.attention import FeedForward
from diffusers.models.attention_processor import Attention
from diffusers.models.embeddings import TimestepEmbedding
from diffusers.models.transformers.sana_transformer import GLUMBConv
from diffusers.models.transformers.transformer_flux import FluxAttention, FluxSingleTransformerBlock
from diffusers.models.transformers.transformer_flux2 import (
    Flux2Attention,
    Flux2FeedForward,
    Flux2ParallelSelfAttention,
)
from diffusers.models.transformers.transformer_z_image import FeedForward as ZImageFeedForward
from torch import nn

Kind = Literal["heads", "units"]


@dataclass(frozen=True)
class Stack:
    """A list of blocks at ``path``, one after the other. ``key`` is the setting that says how many there are; None:
    they are never dropped. The block ``fixed`` is never dropped."""

    path: str
    key: str | None = None
    fixed: int | None = None


TRANSFORMERS: Mapping[str, tuple[Stack, ...]] = {
    # the last layer takes its modulation from the first block's embedding of time and label
    "DiTTransformer2DModel": (Stack("transformer_blocks", "num_layers", fixed=0),),
    # the last block has no outputs for the text
    "SD3Transformer2DModel": (Stack("transformer_blocks", "num_layers", fixed=-1),),
    "PixArtTransformer2DModel": (Stack("transformer_blocks", "num_layers"),),
    "SanaTransformer2DModel": (Stack("transformer_blocks", "num_layers"),),
    "FluxTransformer2DModel": (
        Stack("transformer_blocks", "num_layers"),
        Stack("single_transformer_blocks", "num_single_layers"),
    ),
    "Flux2Transformer2DModel": (
        Stack("transformer_blocks", "num_layers"),
        Stack("single_transformer_blocks", "num_single_layers"),
    ),
    "QwenImageTransformer2DModel": (Stack("transformer_blocks", "num_layers"),),
    # two refiners of one or two blocks, under one setting, prepare the image and the text
    "ZImageTransformer2DModel": (Stack("layers", "n_layers"), Stack("noise_refiner"), Stack("context_refiner")),
}
"""The stacks of each class of transformers."""


def stacks(network: nn.Module) -> tuple[Stack, ...]:
    """Return the stacks of ``network``; none where its class is unknown."""
    return TRANSFORMERS.get(type(network).__name__, ())


@dataclass(frozen=True)
class Span:
    """Where a site's channels are in a linear layer or convolution: from output or input ``start`` on."""

    layer: str
    outputs: bool
    start: int = 0


@dataclass(frozen=True)
class Site:
    """The ``count`` heads or units of one attention or MLP, each ``size`` channels wide in every one of its spans."""

    name: str
    kind: Kind
    count: int
    size: int
    spans: tuple[Span, ...]


def sites(network: nn.Module) -> list[Site]:
    """Return all sites of a transformer, pruned or not; none where its class is unknown."""
    found = []
    for stack in stacks(network):
        for name, module in network.get_submodule(stack.path).named_modules(prefix=stack.path):
            if (finder := _FINDERS.get(type(module))) is not None:
                found += finder(name, module)
    return found


Places = Sequence[tuple[str, int]]  # layers of a module, and where a site's channels start in each


def _site(name: str, kind: Kind, count: int, size: int, outputs: Places, inputs: Places) -> Site:
    spans = [
        Span(f"{name}.{layer}", side, start)
        for side, places in ((True, outputs), (False, inputs))
        for layer, start in places
    ]
    return Site(name, kind, count, size, tuple(spans))


def _attention(name: str, attention: Any) -> Iterator[Site]:
    """Heads of separate projections; in joint attention those of the text have the same heads."""
    if getattr(attention, "pre_only", False) or _norm_over_heads(attention):
        return  # the block projects the output; or without one head the others would be scaled differently
    makers = ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj")
    outputs = [(layer, 0) for layer in makers if getattr(attention, layer, None) is not None]
    inputs = [("to_out.0", 0)]
    if getattr(attention, "to_add_out", None) is not None:
        inputs.append(("to_add_out", 0))
    size = head_size(attention)
    yield _site(name, "heads", attention.to_q.out_features // size, size, outputs, inputs)


def _flux_single(name: str, block: Any) -> Iterator[Site]:
    """The attention's and the MLP's outputs are concatenated, and one layer projects both."""
    width, size = block.attn.to_q.out_features, head_size(block.attn)
    outputs = [("attn.to_q", 0), ("attn.to_k", 0), ("attn.to_v", 0)]
    yield _site(name, "heads", width // size, size, outputs, [("proj_out", 0)])
    yield _site(name, "units", block.proj_mlp.out_features, 1, [("proj_mlp", 0)], [("proj_out", width)])


def _flux_2_single(name: str, attention: Any) -> Iterator[Site]:
    """One layer makes queries, keys, values, the gates of the MLP and its units; another one projects the outputs of
    the attention and of the MLP."""
    (width, units), size = flux_2_widths(attention), head_size(attention)
    first, last = "to_qkv_mlp_proj", "to_out"
    outputs = [(first, 0), (first, width), (first, 2 * width)]
    yield _site(name, "heads", width // size, size, outputs, [(last, 0)])
    outputs = [(first, 3 * width), (first, 3 * width + units)]
    yield _site(name, "units", units, 1, outputs, [(last, width)])


def _feed_forward(name: str, mlp: Any) -> Iterator[Site]:
    """GELU, or GEGLU and SwiGLU, whose first layer makes the units and then their gates."""
    units, first = mlp.net[2].in_features, "net.0.proj"
    gates = [(first, units)] if mlp.net[0].proj.out_features == 2 * units else []
    yield _site(name, "units", units, 1, [(first, 0), *gates], [("net.2", 0)])


def _flux_2_feed_forward(name: str, mlp: Any) -> Iterator[Site]:
    units = mlp.linear_out.in_features
    yield _site(name, "units", units, 1, [("linear_in", 0), ("linear_in", units)], [("linear_out", 0)])


def _z_image_feed_forward(name: str, mlp: Any) -> Iterator[Site]:
    yield _site(name, "units", mlp.w2.in_features, 1, [("w1", 0), ("w3", 0)], [("w2", 0)])


def _time_embedding(name: str, mlp: Any) -> Iterator[Site]:
    """Each block of DiT has its own, with a tenth of the block's parameters."""
    yield _site(name, "units", mlp.linear_1.out_features, 1, [("linear_1", 0)], [("linear_2", 0)])


def _sana_feed_forward(name: str, mlp: Any) -> Iterator[Site]:
    """Units and their gates go through two convolutions, one after the other, before they meet."""
    units = mlp.conv_point.in_channels
    outputs = [(layer, start) for layer in ("conv_inverted", "conv_depth") for start in (0, units)]
    yield _site(name, "units", units, 1, outputs, [("conv_point", 0)])


_FINDERS: Mapping[type, Callable[[str, Any], Iterator[Site]]] = {
    Attention: _attention,
    FluxAttention: _attention,
    Flux2Attention: _attention,
    FluxSingleTransformerBlock: _flux_single,
    Flux2ParallelSelfAttention: _flux_2_single,
    FeedForward: _feed_forward,
    Flux2FeedForward: _flux_2_feed_forward,
    ZImageFeedForward: _z_image_feed_forward,
    GLUMBConv: _sana_feed_forward,
    TimestepEmbedding: _time_embedding,
}
ATTENTIONS = (Attention, FluxAttention, Flux2Attention, Flux2ParallelSelfAttention)


def head_size(attention: Any) -> int:
    """Return the width of a head, which pruning keeps."""
    return attention.inner_dim // attention.heads


def flux_2_widths(attention: Any) -> tuple[int, int]:
    """Return the widths a and m of a FLUX.2 single block's attention and MLP, from its layers: the first one has
    3a + 2m outputs, the last one a + m inputs."""
    outputs, inputs = attention.to_qkv_mlp_proj.out_features, attention.to_out.in_features
    return outputs - 2 * inputs, 3 * inputs - outputs


def _norm_over_heads(attention: Any) -> bool:
    """Whether queries or keys are normalised over all heads at once, as in Sana 1.5."""
    norms = (getattr(attention, "norm_q", None), getattr(attention, "norm_k", None))
    weights = [getattr(norm, "weight", None) for norm in norms]
    return any(weight is not None and len(weight) != head_size(attention) for weight in weights)
