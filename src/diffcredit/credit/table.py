"""The checked evaluations that an estimate starts from: one row per coalition."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, comb

from diffcredit.coalitions import encode, size_probabilities
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray, FloatArray

IntArray = NDArray[np.intp]

LEAST_PROBABILITY = 1e-6  # a table is refused if its sizes are less probable under the stated distribution
LEAST_EXPECTED = 5.0


@dataclass(frozen=True, eq=False)
class SizeDistribution:
    """The probabilities (n−1,) that coalitions of size 1, …, n−1 were drawn with, and their name for messages."""

    name: str
    probabilities: FloatArray

    @classmethod
    def of(cls, given: str | ArrayLike, n: int) -> Self:
        """Return the distribution, given a design's name or the probabilities."""
        if isinstance(given, str):
            return cls(repr(given), size_probabilities(given, n))
        p = float_array("size_distribution", given)
        if p.shape != (n - 1,) or not np.isfinite(p).all() or (p < 0).any() or abs(p.sum() - 1) > 1e-6:
            raise UserError(
                f"size_distribution of shape {p.shape}: expected a design's name or the {n - 1} probabilities of the "
                f"sizes 1 to {n - 1}, which sum to 1"
            )
        return cls("as given", p)

    def check(self, counts: FloatArray) -> None:
        """Raise UserError if ``counts`` (n−1,) of independent draws of the sizes contradict the probabilities.

        Pearson's chi-square, with neighbouring sizes merged until 5 evaluations are expected.
        """
        drawn = self.probabilities
        impossible = np.flatnonzero((counts > 0) & (drawn == 0))
        if len(impossible):
            raise UserError(f"size_distribution {self.name}: never draws coalitions of size {impossible[0] + 1}")
        expected = counts.sum() * drawn
        group = np.floor(np.cumsum(expected) / LEAST_EXPECTED - 1e-9).astype(np.intp)
        # The last group joins its neighbour if fewer than 5 are expected.
        group = np.clip(group, 0, max(int(expected.sum() / LEAST_EXPECTED) - 1, 0))
        seen, wanted = np.bincount(group, counts), np.bincount(group, expected)
        seen, wanted = seen[wanted > 0], wanted[wanted > 0]
        statistic = ((seen - wanted) ** 2 / wanted).sum()
        if len(wanted) > 1 and chdtrc(len(wanted) - 1, statistic) < LEAST_PROBABILITY:
            raise UserError(
                f"size_distribution {self.name}: contradicts the coalitions' sizes (chi-square {statistic:.0f} with "
                f"{len(wanted) - 1} degrees of freedom); name the design they were drawn with, or give the "
                "probabilities of their sizes"
            )


@dataclass(frozen=True, eq=False)
class GameTable:
    """Values of m different coalitions, none of them empty or full.

    coalitions (m, n); values (m,), the mean of each coalition's replicates; replicates (m,), their number; scatter
    (m,), their sum of squares about the mean. ``empty`` and ``full`` are the evaluations (r,) of F(∅) and F(N);
    ``known`` says whether each is an exact number.
    """

    coalitions: BoolArray
    values: FloatArray
    replicates: IntArray
    scatter: FloatArray
    empty: FloatArray
    full: FloatArray
    known: tuple[bool, bool]
    sizes_drawn: SizeDistribution
    names: tuple[str, ...]

    @property
    def n(self) -> int:
        return self.coalitions.shape[1]

    @property
    def evaluations(self) -> int:
        """The number of evaluations, replicates included, endpoints excluded."""
        return int(self.replicates.sum())

    @cached_property
    def sizes(self) -> IntArray:
        """(m,): the number of members, 1..n−1."""
        return self.coalitions.sum(axis=1)

    @property  # not cached: it is made fast, and takes most of a table's memory
    def centred(self) -> FloatArray:
        """x̃ = x − s/n, (m, n): membership indicators minus their mean at that size. Rows sum to 0."""
        return self.coalitions - self.sizes[:, None] / self.n

    @cached_property
    def units(self) -> IntArray:
        """(m,): the sampling unit 0, 1, … of each row. A coalition and its complement share one."""
        # Of the two, the one without contributor 0, which comes first in the order of the rows' bits.
        first = self.coalitions ^ self.coalitions[:, :1]
        return np.unique(np.packbits(first, axis=1), axis=0, return_inverse=True)[1].ravel()

    def importance(self, design: str, needs: str, negligible: float = 0.0) -> FloatArray:
        """Return (m,): the probability of a row's size under ``design`` over that under the table's own.

        Raises UserError, which says what ``needs`` them, if the table's design never draws sizes that have more than a
        ``negligible`` probability, or if it contradicts the coalitions.
        """
        target, drawn = size_probabilities(design, self.n), self.sizes_drawn.probabilities
        undrawn = drawn == 0
        if target[undrawn].sum() > negligible:
            size = 1 + int(np.argmax(target * undrawn))
            raise UserError(
                f"size_distribution {self.sizes_drawn.name}: never draws coalitions of size {size}; {needs}"
            )
        self.sizes_drawn.check(np.bincount(self.sizes - 1, self._draws, self.n - 1).astype(np.float64))
        return target[self.sizes - 1] / drawn[self.sizes - 1]

    @property
    def _draws(self) -> FloatArray:
        """(m,): the number of independent draws of a size that each coalition counts for.

        Replicates and complements add less than one. If replicate counts vary more within a size than independent
        draws of its C(n, s) coalitions would, every draw is scaled down by that overdispersion.
        """
        in_pairs = 1 - (self.units.max(initial=-1) + 1) / max(len(self.units), 1)
        part = 1 / comb(self.n, np.arange(1, self.n))
        total, squares = (np.bincount(self.sizes - 1, self.replicates**k, self.n - 1) for k in (1, 2))
        dispersion = float((squares - part * total**2).sum()) / max(float(((1 - part) * total).sum()), 1.0)
        overdispersion = max(dispersion, self.replicates.min(initial=self.evaluations), 1)
        return self.replicates / overdispersion / (1 + 2 * in_pairs)

    @property
    def about_mean(self) -> Self:
        """The table with the values' mean subtracted, which reduces rounding where a constant does not matter."""
        made = replace(self, values=self.values - self.values.sum() / max(len(self.values), 1))
        vars(made).update(sizes=self.sizes, units=self.units)  # finding units takes long
        return made

    @property
    def level(self) -> float:
        """(F(N) − F(∅)) / n, the mean credit."""
        return float(self.full.mean() - self.empty.mean()) / self.n

    def require(self, coalitions: int, reason: str) -> None:
        """Raise UserError if there are fewer different coalitions than ``reason`` needs."""
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
    names: Sequence[str] | None = None,
) -> GameTable:
    """Check the arguments of `estimate` and group the rows by coalition: its rows are replicates."""
    x, y = _matrix(coalitions), float_array("values", values)
    if y.shape != x.shape[:1]:
        raise UserError(f"coalitions of shape {x.shape} and values of shape {y.shape}: expected (m, n) and (m,)")
    if not np.isfinite(y).all():
        row = int(np.argmin(np.isfinite(y)))
        raise UserError(f"values[{row}]: {y[row]} for the coalition {encode(x[row])}; expected finite numbers")
    n, sizes = x.shape[1], x.sum(axis=1)
    inner = (sizes > 0) & (sizes < n)
    unique, which, replicates = np.unique(x[inner], axis=0, return_inverse=True, return_counts=True)
    which = which.ravel()
    means = np.bincount(which, y[inner], len(unique)) / replicates
    return GameTable(
        coalitions=unique,
        values=means,
        replicates=replicates,
        scatter=np.bincount(which, (y[inner] - means[which]) ** 2, len(unique)).astype(np.float64),
        empty=_endpoint("empty", empty, y[sizes == 0]),
        full=_endpoint("full", full, y[sizes == n]),
        known=(np.ndim(empty) == 0, np.ndim(full) == 0),
        sizes_drawn=SizeDistribution.of(size_distribution, n),
        names=_contributor_names(names, n),
    )


def _matrix(coalitions: ArrayLike) -> BoolArray:
    try:
        x = np.asarray(coalitions)
        boolean = not np.ma.is_masked(coalitions) and (x.dtype == np.bool_ or bool(np.isin(x, (0, 1)).all()))
    except (TypeError, ValueError):  # rows of different lengths, or entries that are not even equal to themselves
        raise UserError("coalitions: expected (m, n) booleans, one row per coalition, True for the members") from None
    if x.ndim != 2:
        raise UserError(f"coalitions of shape {x.shape}: expected (m, n), one row per coalition")
    if x.shape[1] < 2:
        raise UserError(f"contributors: {x.shape[1]}; credits are shared between at least 2")
    if not boolean:
        raise UserError("coalitions: expected booleans, True for the members, none missing")
    return x.astype(np.bool_)


def _endpoint(name: str, given: float | Sequence[float], rows: FloatArray) -> FloatArray:
    """Return all evaluations of an endpoint, (r,): those given and those among the table's rows."""
    own = np.atleast_1d(float_array(name, given))
    if own.ndim != 1 or not np.isfinite(own).all():
        raise UserError(f"{name}: {given}; expected a finite number or a sequence of them")
    if np.ndim(given) == 0 and len(rows):
        raise UserError(
            f"{name}: {given} is a plain number, which means that it is known exactly, but coalitions has {len(rows)} "
            f"rows of the {name} coalition; leave these rows out, or pass evaluations as a sequence, to which the rows "
            f"are added ({name}=[] if the rows are all of them)"
        )
    replicates = np.concatenate([own, rows])
    if replicates.size == 0:
        raise UserError(f"{name}: no value of the {name} coalition; at least one is expected")
    return replicates


def float_array(name: str, given: ArrayLike) -> FloatArray:
    """Return ``given`` as floats of any shape, NaN where it is masked. Raise UserError if it holds no real numbers."""
    try:
        if np.iscomplexobj(given):
            raise TypeError("complex numbers")
        if np.ma.isMaskedArray(given):
            return np.ma.asarray(given, dtype=np.float64).filled(np.nan)
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: {error}; expected real numbers") from None


def _contributor_names(names: Sequence[str] | None, n: int) -> tuple[str, ...]:
    """Return ``names`` as n different texts; "0", "1", … when None. Raise UserError if they are not that."""
    if names is None:
        return tuple(map(str, range(n)))
    found = (names,) if isinstance(names, str) else tuple(map(str, names))
    if len(found) != n:
        raise UserError(f"names: {len(found)} given; expected {n}, one per contributor")
    if len(set(found)) < n:
        repeated = next(name for name in found if found.count(name) > 1)
        raise UserError(f"names: {repeated!r} is given {found.count(repeated)} times; each contributor needs its own")
    return found
