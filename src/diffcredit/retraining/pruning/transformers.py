"""Pruning of whole diffusion transformers: blocks first, then attention heads and MLP units.

Every attention keeps the same number of heads and every MLP the same number of units, so that all blocks stay alike and
the search for a number of parameters is one over a few widths. The residual stream stays as wide as it was, so the
parameters left are linear in these widths.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from diffcredit.diffusion.networks import parameter_count
from diffcredit.diffusion.pruned_transformers import cut, drop_blocks
from diffcredit.diffusion.transformer_sites import Kind, Site, sites, stacks
from diffcredit.retraining.pruning.channels import GRADIENT_THRESHOLD, Importance
from diffcredit.retraining.pruning.structure import NEAR, check_reached, target_count
from diffcredit.util.seeds import derive_seed


def is_transformer(network: nn.Module) -> bool:
    """Return whether ``network`` is a transformer whose heads, units and blocks are known."""
    return bool(stacks(network))


def prune_transformer(
    network: nn.Module,
    parameters: float,
    importance: Importance = "magnitude",
    seed: int = 0,
    *,
    multiple: int = 8,
    depth: float | None = None,
) -> nn.Module:
    """Return a copy of ``network`` on the CPU with a share or count ``parameters`` of its own.

    Of each stack of blocks the share ``depth`` is kept, by default all; then the heads of each attention and the units
    of each MLP with the highest scores, with their weights. The score of a head or unit is, for ``magnitude``, the ℓ2
    norm of its weights in all layers that it is part of; for ``taylor`` and ``diff-pruning`` Σ|w · ∂L/∂w| over them,
    from the parameters' ``grad``; for ``random`` a random number; ``reinitialised`` chooses by magnitude. A block
    counts as all its heads and units together: by the same measure as within a block, without images to try it on, and
    for ``taylor`` an estimate of how the loss would change without it. Its modulation and its embedding of labels do
    not count; they are as large in a block that does nothing.

    MLPs get multiples of ``multiple`` units. Raises a UserError if the target is missed by over 2 %.
    """
    total = parameter_count(network)
    target = target_count(parameters, total)
    found = sites(network)
    scores = {site: _scores(network, site, importance, seed) for site in found}
    blocks = {} if depth is None else _blocks(network, scores, importance, seed, depth)
    remaining = [site for site in found if _remains(site, blocks)]
    full = total - sum(
        parameter_count(block)
        for path, places in blocks.items()
        for place, block in enumerate(cast(nn.ModuleList, network.get_submodule(path)))
        if place not in places
    )
    widths = _widths(network, remaining, full, target, total, multiple)
    pruned = copy.deepcopy(network).cpu()
    cut(pruned, {site: _most(scores[site], widths[site.kind, site.count]) for site in remaining})
    drop_blocks(pruned, blocks)
    pruned.zero_grad(set_to_none=True)
    return pruned.eval()


# What stays


def _scores(network: nn.Module, site: Site, importance: Importance, seed: int) -> Tensor:
    """Return the score of each head or unit, (count,), on the CPU."""
    if importance == "random":
        generator = torch.Generator().manual_seed(derive_seed(seed, f"{site.name} {site.kind}"))
        return torch.rand(site.count, generator=generator)
    total = torch.zeros(site.count, dtype=torch.float64)
    for span in site.spans:
        parameter = network.get_submodule(span.layer).get_parameter("weight")
        weight = parameter.detach().float()
        value = (weight * cast(Tensor, parameter.grad)).abs() if importance in GRADIENT_THRESHOLD else weight.square()
        own = (value if span.outputs else value.transpose(0, 1))[span.start :][: site.count * site.size]
        total += own.reshape(site.count, -1).sum(dim=1, dtype=torch.float64).cpu()
    return total if importance in GRADIENT_THRESHOLD else total.sqrt()


def _most(scores: Tensor, count: int) -> list[int]:
    """Return the places of the ``count`` highest scores, ascending; among equal ones the first."""
    return sorted(scores.argsort(descending=True, stable=True)[:count].tolist())


def _blocks(
    network: nn.Module, scores: dict[Site, Tensor], importance: Importance, seed: int, depth: float
) -> dict[str, list[int]]:
    """Return the places of the blocks to keep in each stack that may lose blocks."""
    kept = {}
    for stack in stacks(network):
        count = len(cast(nn.ModuleList, network.get_submodule(stack.path)))
        if stack.key is None or count == 0:
            continue
        own = [_of_block(scores, f"{stack.path}.{place}", importance) for place in range(count)]
        if importance == "random":
            generator = torch.Generator().manual_seed(derive_seed(seed, f"{stack.path} depth"))
            own = torch.rand(count, generator=generator).tolist()
        if stack.fixed is not None:
            own[stack.fixed] = math.inf
        kept[stack.path] = _most(torch.tensor(own, dtype=torch.float64), max(1, round(depth * count)))
    return kept


def _of_block(scores: dict[Site, Tensor], block: str, importance: Importance) -> float:
    own = torch.cat([value for site, value in scores.items() if _within(site, block)])
    return float(own.sum() if importance in GRADIENT_THRESHOLD else own.norm())


def _within(site: Site, path: str) -> bool:
    return f"{site.name}.".startswith(f"{path}.")


def _remains(site: Site, blocks: dict[str, list[int]]) -> bool:
    return all(
        not _within(site, path) or any(_within(site, f"{path}.{place}") for place in places)
        for path, places in blocks.items()
    )


# How many stay


@dataclass(frozen=True)
class _Width:
    """The number of heads or units that all sites of one ``kind`` and ``count`` have, of which each takes ``cost``
    parameters in all of them together. ``levels`` are the numbers that may be left, ascending."""

    kind: Kind
    count: int
    cost: int
    levels: list[int]


def _widths(
    network: nn.Module, found: Sequence[Site], full: int, target: int, total: int, multiple: int
) -> dict[tuple[Kind, int], int]:
    """Return how many heads or units sites of each kind and count keep, for about ``target`` parameters of the ``full``
    ones that all would have.

    The heads take one share, and units, whose steps are small, fill what is left of the target. Of all shares of the
    heads that allow this, the one is taken that is nearest to the units'.
    """
    kinds = _kinds(network, found, multiple)
    heads, units = [w for w in kinds if w.kind == "heads"], [w for w in kinds if w.kind == "units"]
    rows = [(*some, *more) for some in _ratios(heads) for more in _path(units)]
    order = [*heads, *units]
    left = np.array(rows, dtype=np.int64)
    sizes = np.array([width.count for width in order])
    counts = full - (sizes - left) @ np.array([width.cost for width in order])
    off = np.abs(counts - target)
    if (near := off <= NEAR * target).any():
        share = left / sizes
        some, more = share[:, : len(heads)], share[:, len(heads) :]
        apart = np.abs(some.mean(axis=1) - more.mean(axis=1)) if heads and units else np.zeros(len(left))
        best = np.lexsort((off, np.where(near, apart, np.inf)))[0]
    else:
        hint = "; depth leaves no more" if counts.max() < target else ""
        hint = "; depth removes whole blocks" if counts.min() > target else hint
        check_reached(target, total, counts.tolist(), hint)
        best = off.argmin()
    return {(width.kind, width.count): int(count) for width, count in zip(order, left[best], strict=True)}


def _kinds(network: nn.Module, found: Sequence[Site], multiple: int) -> list[_Width]:
    costs: dict[tuple[Kind, int], int] = {}
    for site in found:
        for span in site.spans:
            layer = network.get_submodule(span.layer)
            weight, bias = layer.get_parameter("weight"), layer._parameters.get("bias")
            channels = weight.shape[0 if span.outputs else 1]
            one = weight.numel() // channels + (span.outputs and bias is not None)
            costs[site.kind, site.count] = costs.get((site.kind, site.count), 0) + one * site.size
    return [_Width(kind, count, cost, _levels(kind, count, multiple)) for (kind, count), cost in costs.items()]


def _levels(kind: Kind, count: int, multiple: int) -> list[int]:
    step = 1 if kind == "heads" or multiple >= count else multiple
    return [*range(step, count, step), count]


def _ratios(widths: Sequence[_Width]) -> list[tuple[int, ...]]:
    """Return the smallest numbers of at least each share at which one of them changes, from all down."""
    # fractions, since 3/7 of 448 are exactly 192
    ratios = {Fraction(level, width.count) for width in widths for level in width.levels}
    plans = [
        tuple(next(level for level in width.levels if level >= ratio * width.count) for width in widths)
        for ratio in sorted(ratios, reverse=True)
    ]
    return plans or [()]


def _path(widths: Sequence[_Width]) -> list[tuple[int, ...]]:
    """Return numbers from all down to the fewest, one step of one of them at a time, the largest share first."""
    now = [len(width.levels) - 1 for width in widths]
    path = [tuple(width.levels[place] for width, place in zip(widths, now, strict=True))]
    while any(now):
        shares = [w.levels[place] / w.count if place else -1.0 for w, place in zip(widths, now, strict=True)]
        now[shares.index(max(shares))] -= 1
        path.append(tuple(width.levels[place] for width, place in zip(widths, now, strict=True)))
    return path
