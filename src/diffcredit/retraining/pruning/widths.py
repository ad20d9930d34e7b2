"""Widths that leave a wanted number of parameters, balanced over the network."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from diffcredit.retraining.pruning.structure import Integers, Structure
from diffcredit.retraining.pruning.target import check_reached

NEAR = 0.01
"""How far, in relation to it, a target may be missed for the sake of even widths."""

BALANCE = 0.25
"""How far the share of the linear channels that is kept may be from that of the convolutions'."""


@dataclass(frozen=True)
class _Choice:
    """Widths (n,), the parameters they leave, and by how much linear channels and convolutions keep other shares."""

    widths: Integers
    count: int
    imbalance: float


def widths_for(structure: Structure, target: int, multiple: int) -> Integers:
    """(n,): the channels that each set of coupled channels keeps, for as near as possible ``target`` parameters.

    One ratio for all convolutions comes first: each keeps the smallest allowed width of at least that share, so
    that layers of one width stay of one width. With 32 norm groups these steps are coarse; the linear channels,
    the time embedding's and the attentions', fill the gap in small steps. Where these would have to keep a share
    that differs by more than ``BALANCE`` from the convolutions', some convolutions move on to the next ratio's
    widths, the widest first. Raises a UserError when the target is missed by over 2 %.
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
    """Widths (n,) for every ratio at which one of the convolutions changes, from 1 down; linear channels are full."""
    levels = {
        index: channels.levels(multiple) for index, channels in enumerate(structure.coupled) if not channels.linear
    }
    # fractions, since 3/7 of 448 channels are 192 and not a rounding error more
    ratios = {Fraction(level, possible[-1]) for possible in levels.values() for level in possible}
    plans = []
    for ratio in sorted(ratios, reverse=True):
        widths = structure.full
        for index, possible in levels.items():
            widths[index] = next(level for level in possible if level >= ratio * possible[-1])
        plans.append(widths)
    return plans


def _linear_path(structure: Structure, multiple: int) -> Integers:
    """(k, n): from the least of the linear channels to all, one step of one set a row, the smallest share first."""
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
    """Widths from the last ratio that leaves at least ``target`` parameters to the next, one set after the other."""
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
    """The convolutions' ``widths`` with the row of ``path`` that comes nearest to ``target``; None: to balance."""
    linear, rows = structure.linear, _rows(structure, widths, path)
    counts = structure.count(rows)
    kept = rows / structure.full
    imbalance = np.abs(kept[:, linear].mean(axis=1) - kept[:, ~linear].mean(axis=1)) if linear.any() else np.zeros(1)
    best = int((imbalance if target is None else np.abs(counts - target)).argmin())
    return _Choice(rows[best], int(counts[best]), float(imbalance[best]))


def _rows(structure: Structure, widths: Integers, path: Integers) -> Integers:
    """(k, n): the convolutions' ``widths`` with every row of ``path``."""
    return np.where(structure.linear, path, widths)


def _balanced(choices: Sequence[_Choice], target: int) -> _Choice | None:
    """The best balanced of those that come near enough to ``target``."""
    near = [c for c in choices if abs(c.count - target) <= NEAR * target and c.imbalance <= BALANCE]
    return min(near, key=lambda choice: choice.imbalance, default=None)
