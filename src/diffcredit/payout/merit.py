"""From credits to what a policy pays for: each player's merit, and each contributor's part of the fixed rule.

A *player* of the game is a contributor or, where contributors are cut into lots, one of their lots. Merit is counted by
player and summed by contributor. So an account that is split along its lots has the same merit as before.

Pitfall: with ``merit: help`` the level (F(all) − F(reference))/n that all credits share counts too. Where the reference
is far from all contributors, everybody has nearly the same merit. ``least`` does not depend on the reference, and the
least helpful contributor gets nothing of what follows merit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from diffcredit.credit import Credits
from diffcredit.credit.credits import DIGITS, ROUNDING
from diffcredit.credit.intervals import half_width, rank_intervals
from diffcredit.study.policy import PolicySection
from diffcredit.util.arrays import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class Contributors:
    """The n contributors who are paid, by name, with their ``images`` (n,) and whole ``lots`` (n,), and ``owner`` (p,):
    the contributor of each player of the game."""

    names: tuple[str, ...]
    owner: tuple[int, ...]
    images: tuple[int, ...]
    lots: tuple[int, ...] | None = None

    @classmethod
    def of(cls, images: Mapping[str, int], whose: Mapping[str, str], lot: int | None = None) -> "Contributors":
        """Return the contributors of players with so many ``images``; ``whose`` names the contributor of each lot, of
        ``lot`` images if it is whole. Without lots every player is a contributor."""
        givers = [whose.get(player, player) for player in images]
        names = tuple(sorted(set(givers)))
        owner = tuple(names.index(giver) for giver in givers)
        given, lots = [0] * len(names), [0] * len(names)
        for place, count in zip(owner, images.values(), strict=True):
            given[place] += count
            lots[place] += lot is not None and count >= lot
        return cls(names, owner, tuple(given), None if lot is None else tuple(lots))

    @cached_property
    def sums(self) -> FloatArray:
        """(n, p): sums players' numbers by contributor."""
        return (np.arange(len(self.names))[:, None] == np.array(self.owner)).astype(np.float64)

    def fixed_weights(self, rule: str) -> tuple[int, ...]:
        """Return (n,): each contributor's weight in the fixed part by a policy's ``fixed``."""
        if rule == "equal":
            return (1,) * len(self.names)
        return self.images if rule == "images" or self.lots is None else self.lots


@dataclass(frozen=True, eq=False)
class Standing:
    """The credits of contributors as a payer compares them, (n,) each: ``help`` beside the average contributor with its
    interval, ``rank`` (1 helps most) with its interval, and help ``above`` the reference with its interval."""

    help: FloatArray
    low: FloatArray
    high: FloatArray
    rank: np.ndarray
    rank_low: np.ndarray
    rank_high: np.ndarray
    above: FloatArray
    above_low: FloatArray
    above_high: FloatArray


def standing(credits: Credits, contributors: Contributors, sign: int) -> Standing:
    """Return the contributors' standing; ``sign`` is −1 where a lower value is paid for."""
    sums, n = contributors.sums, len(contributors.names)
    worth = sign * (sums @ credits.values)
    beside = sums - sums.mean(axis=0)  # the average contributor's lots are subtracted
    influence, bias = beside @ credits.influence, np.sqrt(sums @ credits.bias**2)
    half = half_width((influence**2).sum(axis=1), bias, credits.degrees, credits.confidence)
    level = half_width(((sums @ credits.influence) ** 2).sum(axis=1), bias, credits.degrees, credits.confidence)
    help_ = worth - worth.mean()
    rounded = np.round(help_ / (max(credits.rounding / ROUNDING, np.abs(help_).max()) or 1.0), DIGITS)
    rank = np.searchsorted(np.sort(-rounded), -rounded) + 1
    low, high = (
        rank_intervals(worth, half, influence, bias, credits.degrees, credits.confidence)
        if n > 1
        else (np.ones(1, dtype=np.intp),) * 2
    )
    return Standing(help_, help_ - half, help_ + half, rank, low, high, worth, worth - level, worth + level)


def merit(values: FloatArray, policy: PolicySection, sign: int, rounding: float = 0.0) -> FloatArray:
    """Return the merit (…, p) of players with the credits ``values`` (…, p), each at least 0.

    Merits up to ``rounding`` are 0: where all contributors are equal, only the credits' last digits differ, and by
    these no money is divided.
    """
    worth = sign * values
    found = worth - worth.min(axis=-1, keepdims=True) if policy.merit == "least" else worth
    return np.where(found > rounding, found, 0.0)


def merits_of(credits: Credits, contributors: Contributors, policy: PolicySection, sign: int) -> FloatArray:
    """Return the merit (n,) of contributors: their players' together."""
    return contributors.sums @ merit(credits.values, policy, sign, credits.rounding)


def cut_off(found: Standing, policy: PolicySection) -> BoolArray:
    """Return (n,): who is cut off from all payment, because they surely make the model worse than the reference."""
    return found.above_high < 0 if policy.negatives == "cut" else np.zeros(len(found.above), dtype=np.bool_)


def amounts(
    merits: FloatArray, fixed: FloatArray | Sequence[float], r: float, pool: float, floor: float, cap: float | None
) -> FloatArray:
    """Return (d, n): what contributors with these ``merits`` (d, n) earn in d draws, without rounding to coins.

    This is :func:`diffcredit.payout.dividing` in floating point for many draws at once. ``fixed`` (n,) are the weights
    of the fixed part; where nobody has merit, all of the pool is fixed.
    """
    parts = np.asarray(fixed, dtype=np.float64)
    parts = parts / parts.sum()
    total = merits.sum(axis=1, keepdims=True)
    by_merit = np.divide(merits, total, out=np.tile(parts, (len(merits), 1)), where=total > 0)
    wanted = pool * ((1 - r) * parts + r * by_merit)
    if (floor <= 0 or (wanted >= floor).all()) and (cap is None or (wanted <= cap).all()):
        return wanted
    return _bounded(wanted, floor, pool if cap is None else cap, pool)


def _bounded(wanted: FloatArray, floor: float, cap: float, pool: float) -> FloatArray:
    """Return clip(λ·wanted, floor, cap), with λ by draw so that each draw sums to ``pool``; λ is found by bisection. A
    tiny amount is wanted by all, so that what the caps leave goes to those who wanted nothing."""
    wanted = wanted + 1e-12 * pool
    low, high = np.zeros((len(wanted), 1)), np.full((len(wanted), 1), cap / wanted.min(axis=1, keepdims=True))
    for _ in range(100):
        middle = (low + high) / 2
        short = np.clip(middle * wanted, floor, cap).sum(axis=1, keepdims=True) < pool
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.clip(high * wanted, floor, cap)
