"""The evaluations an estimate starts from, checked: one row a coalition."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import comb

from diffcredit.coalitions import encode
from diffcredit.credit.numbers import read_numbers
from diffcredit.credit.sizes import SizeDistribution
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray, FloatArray

IntArray = NDArray[np.intp]

# Values of one coalition and one seed that differ by more than this part of all values' deviation contradict.
SAME = 1e-6


@dataclass(frozen=True, eq=False)
class Table:
    """m different coalitions, none empty or full, with what was evaluated there.

    coalitions (m, n); values (m,), the mean of each coalition's replicates; replicates (m,), their number;
    scatter (m,), their sum of squares about the mean; ``empty`` and ``full``, the evaluations of F(∅) (r,) and
    F(N) (r,); ``known`` says of the two whether it is an exact number and not a noisy evaluation.
    """

    coalitions: BoolArray
    values: FloatArray
    replicates: IntArray
    scatter: FloatArray
    empty: FloatArray
    full: FloatArray
    known: tuple[bool, bool]
    sizes_drawn: SizeDistribution

    @property
    def n(self) -> int:
        return self.coalitions.shape[1]

    @property
    def evaluations(self) -> int:
        """How many evaluations there are, replicates counted, endpoints apart."""
        return int(self.replicates.sum())

    @cached_property
    def sizes(self) -> IntArray:
        """(m,): the number of members, 1..n−1."""
        return self.coalitions.sum(axis=1)

    @cached_property
    def centred(self) -> FloatArray:
        """x̃ = x − s/n, (m, n): indicators less their mean within the size. Rows sum to 0."""
        return self.coalitions - self.sizes[:, None] / self.n

    @cached_property
    def units(self) -> IntArray:
        """(m,): numbers 0, 1, … of the units of sampling. A coalition and its complement are one unit, since
        paired designs draw them together."""
        rows = np.packbits(self.coalitions, axis=1)
        complements = np.packbits(~self.coalitions, axis=1)
        smaller = _lexicographically_smaller(rows, complements)
        return np.unique(np.where(smaller[:, None], rows, complements), axis=0, return_inverse=True)[1].ravel()

    @property
    def draws(self) -> FloatArray:
        """(m,): how many independent draws of a size each coalition stands for.

        A number of replicates that all coalitions have came with their sizes, and a complement with its pair. Nor do
        a few coalitions' many replicates tell of sizes: where the numbers r of replicates vary more within the sizes
        than independent draws of the C(n, s) coalitions would, each counts for so much less.
        """
        in_pairs = 1 - (self.units.max(initial=-1) + 1) / max(len(self.units), 1)
        part = 1 / comb(self.n, np.arange(1, self.n))
        total, squares = (np.bincount(self.sizes - 1, self.replicates**k, self.n - 1) for k in (1, 2))
        dispersion = float((squares - part * total**2).sum()) / max(float(((1 - part) * total).sum()), 1.0)
        alike = max(dispersion, self.replicates.min(initial=self.evaluations), 1)
        return self.replicates / alike / (1 + 2 * in_pairs)

    @property
    def about_mean(self) -> Self:
        """The same with the values' mean taken off: for rounding's sake, where a constant has no part."""
        return replace(self, values=self.values - self.values.sum() / max(len(self.values), 1))

    @property
    def level(self) -> float:
        """(F(N) − F(∅)) / n, the mean credit."""
        return float(self.full.mean() - self.empty.mean()) / self.n

    def endpoint_variances(self, noise: float) -> tuple[float, float]:
        """The variances of the means of F(∅) and of F(N), where one evaluation has variance ``noise``.

        0 where the endpoint is known. Else (noise + Σ_k (F_k − F̄)²) / r estimates the endpoint's own variance:
        the evaluations' noise counts as one observation beside the replicates' r − 1, so that one replicate
        needs no special rule and many speak for themselves.
        """
        empty, full = (
            0.0 if known else float((noise + ((e - e.mean()) ** 2).sum()) / len(e) ** 2)
            for e, known in zip((self.empty, self.full), self.known, strict=True)
        )
        return empty, full

    def require(self, coalitions: int, reason: str) -> None:
        """Raises when there are fewer different coalitions than ``reason`` needs."""
        missing = coalitions - len(self.values)
        if missing > 0:
            raise UserError(
                f"{self.evaluations} evaluations of {self.n} contributors: {reason} needs {coalitions} different "
                f"coalitions, {missing} more"
            )


def read_table(
    coalitions: ArrayLike,
    values: ArrayLike,
    empty: float | Sequence[float],
    full: float | Sequence[float],
    size_distribution: str | ArrayLike,
    seeds: ArrayLike | None = None,
) -> Table:
    """The checked table. Rows of the empty and of the full coalition join the endpoints' replicates; rows of one
    coalition are its replicates, but those of the same seed are one evaluation told twice."""
    x, y = _matrix(coalitions), read_numbers("values", values)
    if y.shape != x.shape[:1]:
        raise UserError(f"coalitions of shape {x.shape} and values of shape {y.shape}: expected (m, n) and (m,)")
    if not np.isfinite(y).all():
        row = int(np.argmin(np.isfinite(y)))
        raise UserError(f"values[{row}]: {y[row]} for the coalition {encode(x[row])}; expected finite numbers")
    if seeds is not None:
        x, y = _told_once(x, y, np.asarray(seeds))
    n, sizes = x.shape[1], x.sum(axis=1)
    inner = (sizes > 0) & (sizes < n)
    unique, which, replicates = np.unique(x[inner], axis=0, return_inverse=True, return_counts=True)
    which = which.ravel()
    means = np.bincount(which, y[inner], len(unique)) / replicates
    return Table(
        coalitions=unique,
        values=means,
        replicates=replicates,
        scatter=np.bincount(which, (y[inner] - means[which]) ** 2, len(unique)).astype(np.float64),
        empty=_endpoint("empty", empty, y[sizes == 0]),
        full=_endpoint("full", full, y[sizes == n]),
        known=(np.ndim(empty) == 0 and (sizes > 0).all(), np.ndim(full) == 0 and (sizes < n).all()),
        sizes_drawn=SizeDistribution.of(size_distribution, n),
    )


def _matrix(coalitions: ArrayLike) -> BoolArray:
    try:
        x = np.asarray(coalitions)
        boolean = not np.ma.is_masked(coalitions) and (x.dtype == np.bool_ or bool(np.isin(x, (0, 1)).all()))
    except (TypeError, ValueError):  # rows of different lengths, or entries that are not even equal to themselves
        raise UserError("coalitions: expected (m, n) booleans, one row a coalition, True for the members") from None
    if x.ndim != 2:
        raise UserError(f"coalitions of shape {x.shape}: expected (m, n), one row a coalition")
    if x.shape[1] < 2:
        raise UserError(f"contributors: {x.shape[1]}; credits are shared between at least 2")
    if not boolean:
        raise UserError("coalitions: expected booleans, True for the members, none missing")
    return x.astype(np.bool_)


def _told_once(x: BoolArray, y: FloatArray, seeds: NDArray) -> tuple[BoolArray, FloatArray]:
    """One row for each coalition and seed; rows that agree in both and differ in value are refused."""
    if seeds.shape != y.shape:
        raise UserError(f"seeds of shape {seeds.shape}: expected {y.shape}, one for each value")
    try:
        labels = np.unique(seeds, return_inverse=True)[1].reshape(-1, 1).astype(np.int64)
    except TypeError:
        raise UserError("seeds: some are missing or of different kinds; expected all numbers or all texts") from None
    keys = np.concatenate([np.packbits(x, axis=1), labels.view(np.uint8).reshape(len(y), -1)], axis=1)
    _, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    apart = np.abs(y - y[first[which.ravel()]]) > SAME * y.std()
    if apart.any():
        row = int(np.argmax(apart))
        other = int(first[which.ravel()[row]])
        raise UserError(
            f"values[{other}] and values[{row}]: {y[other]} and {y[row]} for the coalition {encode(x[row])} with the "
            f"same seed {seeds[row]}; the same evaluation has one value"
        )
    kept = np.sort(first)
    return x[kept], y[kept]


def _endpoint(name: str, given: float | Sequence[float], from_table: FloatArray) -> FloatArray:
    own = np.atleast_1d(read_numbers(name, given))
    if own.ndim != 1 or not np.isfinite(own).all():
        raise UserError(f"{name}: {given}; expected a finite number or a sequence of them")
    replicates = np.concatenate([own, from_table])
    if replicates.size == 0:
        raise UserError(f"{name}: no value of the {name} coalition; at least one is expected")
    return replicates


def _lexicographically_smaller(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> BoolArray:
    """(m,): whether row a_j comes before row b_j, which differs from it."""
    first = (a != b).argmax(axis=1)
    rows = np.arange(len(a))
    return a[rows, first] < b[rows, first]
