"""The sets of channels that must be removed together, and the number of parameters that any choice of widths leaves.

torch-pruning traces the network once. Widths are then searched by counting alone, since the number of a layer's
parameters is a product of its widths.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch_pruning
from diffusers.models.attention_processor import Attention
from numpy.typing import NDArray
from torch import Tensor, nn

from diffcredit.diffusion.networks import parameter_count

Example = dict[str, Tensor]
"""Inputs with which the network's structure is traced."""

Integers = NDArray[np.int64]

LAYERS = (nn.Conv2d, nn.Linear, nn.GroupNorm, nn.LayerNorm)


@dataclass(frozen=True)
class Coupled:
    """Channels that several layers share: some layers produce them, others add, normalise or read them.

    There are ``width`` of them, in ``parts`` equal parts (the groups of a GroupNorm, the heads of an attention) that
    must stay equally wide; the width stays a multiple of ``grain``. ``linear``: no convolution has them, so they belong
    to the time embedding or an attention. ``name`` is that of a layer that produces them.
    """

    name: str
    width: int
    parts: int
    grain: int
    linear: bool
    group: torch_pruning.Group

    def levels(self, multiple: int) -> list[int]:
        """Return the possible widths, ascending: multiples of the grain and of ``multiple``, and the full width. Where
        no smaller width is a multiple of both (8 channels, 4 groups, multiples of 16), multiples of the grain."""
        step = math.lcm(self.grain, multiple)
        step = step if step < self.width else self.grain
        return [*range(step, self.width, step), self.width]


@dataclass(frozen=True)
class Structure:
    """A network's n sets of coupled channels, and their places in its L layers.

    ``outputs`` and ``inputs`` (L, n): how often each set occurs in a layer's outputs and inputs. ``shape`` (L, 4): the
    layer's outputs, inputs, kernel size and number of biases per output; a norm has one input. ``others``: the number
    of parameters of other layers, which are kept.
    """

    coupled: tuple[Coupled, ...]
    outputs: Integers
    inputs: Integers
    shape: Integers
    others: int

    @property
    def full(self) -> Integers:
        """(n,) the widths before pruning."""
        return np.array([channels.width for channels in self.coupled])

    @property
    def linear(self) -> NDArray[np.bool_]:
        """(n,) which sets no convolution has."""
        return np.array([channels.linear for channels in self.coupled])

    def count(self, widths: Integers) -> Integers:
        """Count the parameters that each row of ``widths`` (k, n) leaves, (k,): Σ out · (in · kernel + biases)."""
        gone = self.full - widths
        out, into, kernel, biases = self.shape.T
        return ((out - gone @ self.outputs.T) * ((into - gone @ self.inputs.T) * kernel + biases)).sum(1) + self.others


def trace(network: nn.Module, example: Example) -> tuple[torch_pruning.DependencyGraph, Structure]:
    """Return torch-pruning's graph and the structure of ``network``, a U-Net of diffusers on any device, meta included.
    The outputs of ``conv_out`` are the image's channels and are kept."""
    device = next(network.parameters()).device
    inputs = {name: tensor.to(device) for name, tensor in example.items()}
    graph = torch_pruning.DependencyGraph().build_dependency(network, cast(Any, inputs))  # its type hint omits dicts
    names: dict[nn.Module, str] = {
        module: name for name, module in network.named_modules() if isinstance(module, LAYERS)
    }
    groups = graph.get_all_groups(ignored_layers=[network.get_submodule("conv_out")])
    heads, norms = _heads(network), _common([*network.modules()])
    coupled = tuple(sorted((_coupled(graph, group, names, heads, norms) for group in groups), key=lambda c: c.name))
    place = {module: row for row, module in enumerate(names)}
    outputs, inwards = np.zeros((2, len(place), len(coupled)), dtype=np.int64)
    for column, channels in enumerate(coupled):
        for item in channels.group:
            if (row := place.get(item.dep.target.module)) is not None:
                side = outputs if graph.is_out_channel_pruning_fn(item.dep.handler) else inwards
                side[row, column] += len(item.idxs) // channels.width
    counted = sum(parameter.numel() for layer in names for parameter in layer.parameters(recurse=False))
    shape = np.array([_shape(layer) for layer in names])
    return graph, Structure(coupled, outputs, inwards, shape, parameter_count(network) - counted)


def _coupled(
    graph: torch_pruning.DependencyGraph,
    group: torch_pruning.Group,
    names: dict[nn.Module, str],
    heads: dict[nn.Module, int],
    norms: int,
) -> Coupled:
    items = [item.dep for item in group if item.dep.target.module in names]
    members = [dep.target.module for dep in items]
    makers = [dep.target.module for dep in items if graph.is_out_channel_pruning_fn(dep.handler)]
    width, linear = len(group[0].idxs), not any(isinstance(member, nn.Conv2d) for member in members)
    parts = math.lcm(_common(members), *(heads.get(maker, 1) for maker in makers))
    # convolutions without a norm take the norms' steps too, so that one ratio gives one width per resolution
    grain = parts if linear or width % norms else math.lcm(parts, norms)
    return Coupled(min(names[maker] for maker in makers), width, parts, grain, linear, group)


def _common(modules: Sequence[nn.Module]) -> int:
    """Return the least common multiple of the numbers of groups of all GroupNorms."""
    return math.lcm(*(module.num_groups for module in modules if isinstance(module, nn.GroupNorm)))


def _heads(network: nn.Module) -> dict[nn.Module, int]:
    """Return the number of heads of each projection: every head must lose equally many channels."""
    return {
        projection: attention.heads
        for attention in network.modules()
        if isinstance(attention, Attention)
        for projection in (attention.to_q, attention.to_k, attention.to_v)
        if projection is not None
    }


def _shape(layer: nn.Module) -> tuple[int, int, int, int]:
    weight, bias = cast(Tensor, layer.weight), int(layer.bias is not None)
    if weight.ndim == 1:
        return len(weight), 1, 1, bias
    return weight.shape[0], weight.shape[1], math.prod(weight.shape[2:]), bias
