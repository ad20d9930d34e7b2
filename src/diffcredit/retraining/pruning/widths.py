"""The number of parameters that a pruned network is to have, and widths that leave it, balanced over the network."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from diffcredit.errors import UserError
from diffcredit.retraining.pruning.structure import Integers, Structure

TOLERANCE = 0.02  # relative error of the number of parameters that is accepted
NEAR = 0.01  # the same, for the sake of even widths
BALANCE = 0.25  # largest difference between the shares of linear and of convolutions' channels that are kept


def target_count(parameters: float, total: int) -> int:
    """Return the number that ``parameters`` means: a share of ``total`` in (0, 1), or a count up to it."""
    if parameters <= 0 or 1 <= parameters < 2 or parameters > total:
        raise UserError(
            f"parameters: {parameters:,} is not accepted; a share between 0 and 1, or a count up to "
            f"the model's {total:,} parameters, is"
        )
    return round(parameters * total) if parameters < 1 else round(parameters)


def check_reached(target: int, total: int, counts: Iterable[int]) -> None:
    """Raise a UserError unless one of the possible ``counts`` is near enough to ``target``."""
    below = max((count for count in counts if count <= target), default=None)
    above = min((count for count in counts if count >= target), default=None)
    near = [count for count in (below, above) if count is not None]
    if any(abs(count - target) <= TOLERANCE * target for count in near):
        return
    said = " and ".join(f"{count:,} ({count / total:.3f})" for count in near)
    why = "would leave a layer empty" if below is None else f"cannot be reached within {TOLERANCE:.0%}"
    raise UserError(
        f"parameters: {target:,} parameters ({target / total:.3f} of the model's) {why}; "
        f"the nearest that this architecture allows: {said}"
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
