"""The sets of channels that must be removed together, and widths of them that leave a given number of parameters.

torch-pruning traces the network once. Widths, balanced over the network, are then searched by counting alone, since the
number of a layer's parameters is a product of its widths.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import numpy as np
import torch_pruning
from diffusers.models.attention_processor import Attention
from numpy.typing import NDArray
from torch import Tensor, nn

from diffcredit.diffusion.networks import parameter_count
from diffcredit.errors import UserError

Example = dict[str, Tensor]  # inputs with which the network's structure is traced
Integers = NDArray[np.int64]

LAYERS = (nn.Conv2d, nn.Linear, nn.GroupNorm, nn.LayerNorm, nn.Embedding)
TOLERANCE = 0.02  # relative error of the number of parameters that is accepted
NEAR = 0.01  # the same, for the sake of even widths
BALANCE = 0.25  # largest difference between the shares of linear and of convolutions' channels that are kept


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
    if isinstance(layer, nn.Embedding):
        return layer.embedding_dim, layer.num_embeddings, 1, 0
    weight, bias = cast(Tensor, layer.weight), int(layer.bias is not None)
    if weight.ndim == 1:
        return len(weight), 1, 1, bias
    return weight.shape[0], weight.shape[1], math.prod(weight.shape[2:]), bias


def target_count(parameters: float, total: int) -> int:
    """Return the number that ``parameters`` means: a share of ``total`` in (0, 1), or a count up to it."""
    if parameters <= 0 or 1 <= parameters < 2 or parameters > total:
        raise UserError(
            f"parameters: {parameters:,} is not accepted; a share between 0 and 1, or a count up to "
            f"the model's {total:,} parameters, is"
        )
    return round(parameters * total) if parameters < 1 else round(parameters)


def check_reached(target: int, total: int, counts: Iterable[int], hint: str = "") -> None:
    """Raise a UserError, which ends with ``hint``, unless one of the possible ``counts`` is near enough to
    ``target``."""
    below = max((count for count in counts if count <= target), default=None)
    above = min((count for count in counts if count >= target), default=None)
    near = [count for count in (below, above) if count is not None]
    if any(abs(count - target) <= TOLERANCE * target for count in near):
        return
    said = " and ".join(f"{count:,} ({count / total:.3f})" for count in near)
    why = "would leave a layer empty" if below is None else f"cannot be reached within {TOLERANCE:.0%}"
    raise UserError(
        f"parameters: {target:,} parameters ({target / total:.3f} of the model's) {why}; "
        f"the nearest that this architecture allows: {said}{hint}"
    )


@dataclass(frozen=True)
class _Choice:
    """Widths (n,), the parameters they leave, and the difference of the shares of linear and other channels kept."""

    widths: Integers
    count: int
    imbalance: float


def widths_for(structure: Structure, target: int, multiple: int) -> Integers:
    """Return the width of each set of coupled channels, (n,), for about ``target`` parameters.

    First, all convolutions take one ratio: each keeps the smallest allowed width of at least that share, so that layers
    of one width stay of one width. With 32 norm groups these steps are coarse; the linear channels, those of the time
    embedding and the attentions, fill the gap in small steps. If their share would differ by more than ``BALANCE`` from
    the convolutions', some convolutions take the next ratio's widths, the widest first. Raises a UserError if the
    target is missed by over 2 %.
    """
    path = _linear_path(structure, multiple)
    ratios = _ratios(structure, multiple)
    regular = [_filled(structure, widths, path, target) for widths in ratios]
    if chosen := _balanced(regular, target):
        return chosen.widths
    between = _between(structure, ratios, path, target)
    mixed = [_filled(structure, widths, path, target) for widths in between]
    if chosen := _balanced(mixed, target):
        return chosen.widths
    possible = [structure.count(_rows(structure, widths, path)) for widths in (*ratios, *between)]
    check_reached(target, int(structure.count(structure.full[None])[0]), np.concatenate(possible).tolist())
    return min([*regular, *mixed], key=lambda choice: abs(choice.count - target)).widths


def _ratios(structure: Structure, multiple: int) -> list[Integers]:
    """Return widths (n,) for every ratio at which a convolution changes, from 1 down, with all linear channels."""
    levels = {
        index: channels.levels(multiple) for index, channels in enumerate(structure.coupled) if not channels.linear
    }
    # fractions, since 3/7 of 448 channels are exactly 192
    ratios = {Fraction(level, possible[-1]) for possible in levels.values() for level in possible}
    plans = []
    for ratio in sorted(ratios, reverse=True):
        widths = structure.full
        for index, possible in levels.items():
            widths[index] = next(level for level in possible if level >= ratio * possible[-1])
        plans.append(widths)
    return plans


def _linear_path(structure: Structure, multiple: int) -> Integers:
    """Return widths (k, n) from the fewest linear channels to all, one step of one set per row, least share first."""
    levels = {index: channels.levels(multiple) for index, channels in enumerate(structure.coupled) if channels.linear}
    start = structure.full
    for index, possible in levels.items():
        start[index] = possible[0]
    steps = sorted(
        (low / possible[-1], index, high)
        for index, possible in levels.items()
        for low, high in itertools.pairwise(possible)
    )
    rows = [start]
    for _, index, high in steps:
        rows.append(rows[-1].copy())
        rows[-1][index] = high
    return np.array(rows)


def _between(structure: Structure, ratios: Sequence[Integers], path: Integers, target: int) -> list[Integers]:
    """Return widths from the last ratio that leaves at least ``target`` parameters to the next, one set at a time."""
    even = [_filled(structure, widths, path, None).count for widths in ratios]
    after = next((index for index, count in enumerate(even) if count < target), len(ratios))
    if after in (0, len(ratios)):
        return []
    widths, goal = ratios[after - 1], ratios[after]
    steps = []
    for index in np.argsort(-structure.full, kind="stable"):
        if widths[index] != goal[index]:
            widths = widths.copy()
            widths[index] = goal[index]
            steps.append(widths)
    return steps


def _filled(structure: Structure, widths: Integers, path: Integers, target: int | None) -> _Choice:
    """Combine the convolutions' ``widths`` with the row of ``path`` nearest to ``target``; None: nearest to balance."""
    linear, rows = structure.linear, _rows(structure, widths, path)
    counts = structure.count(rows)
    kept = rows / structure.full
    imbalance = np.abs(kept[:, linear].mean(axis=1) - kept[:, ~linear].mean(axis=1)) if linear.any() else np.zeros(1)
    best = int((imbalance if target is None else np.abs(counts - target)).argmin())
    return _Choice(rows[best], int(counts[best]), float(imbalance[best]))


def _rows(structure: Structure, widths: Integers, path: Integers) -> Integers:
    """Return the convolutions' ``widths`` with every row of ``path``, (k, n)."""
    return np.where(structure.linear, path, widths)


def _balanced(choices: Sequence[_Choice], target: int) -> _Choice | None:
    """Return the best balanced choice that is near enough to ``target``."""
    near = [c for c in choices if abs(c.count - target) <= NEAR * target and c.imbalance <= BALANCE]
    return min(near, key=lambda choice: choice.imbalance, default=None)
