"""The evaluations an estimate starts from, checked."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import chi2

from diffcredit.coalitions import BoolArray, encode, size_probabilities
from diffcredit.errors import UserError

FloatArray = NDArray[np.float64]

# A table is refused when its sizes would be this improbable under the stated distribution.
LEAST_PROBABILITY = 1e-6
LEAST_EXPECTED = 5.0


@dataclass(frozen=True, eq=False)
class Table:
    """coalitions (m, n) without empty and full ones, values (m,), replicates of F(∅) (r,) and F(N) (r,).

    ``known`` says of F(∅) and of F(N) whether it is an exact number and not a noisy evaluation.
    """

    coalitions: BoolArray
    values: FloatArray
    empty: FloatArray
    full: FloatArray
    known: tuple[bool, bool]
    size_distribution: str

    @property
    def n(self) -> int:
        return self.coalitions.shape[1]

    @property
    def sizes(self) -> NDArray[np.intp]:
        """(m,): the number of members, 1..n−1."""
        return self.coalitions.sum(axis=1)

    @property
    def centred(self) -> FloatArray:
        """x̃ = x − s/n, (m, n): indicators less their mean within the size. Rows sum to 0."""
        return self.coalitions - self.sizes[:, None] / self.n

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

    def require(self, evaluations: int, reason: str) -> None:
        missing = evaluations - len(self.values)
        if missing > 0:
            raise UserError(
                f"{len(self.values)} evaluations of {self.n} contributors: {reason} needs {evaluations}, {missing} more"
            )


def read_table(
    coalitions: ArrayLike,
    values: ArrayLike,
    empty: float | Sequence[float],
    full: float | Sequence[float],
    size_distribution: str,
) -> Table:
    """The checked table; rows of the empty and of the full coalition join the endpoints' replicates."""
    x = np.asarray(coalitions)
    y = np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise UserError(f"coalitions of shape {x.shape} and values of shape {y.shape}: expected (m, n) and (m,)")
    if x.shape[1] < 2:
        raise UserError(f"contributors: {x.shape[1]}; credits are shared between at least 2")
    if not np.isin(x, (0, 1)).all():
        raise UserError("coalitions: expected booleans, True for the members")
    x = x.astype(np.bool_)
    if not np.isfinite(y).all():
        row = int(np.argmin(np.isfinite(y)))
        raise UserError(f"values[{row}]: {y[row]} for the coalition {encode(x[row])}; expected finite numbers")
    sizes = x.sum(axis=1)
    inner = (sizes > 0) & (sizes < x.shape[1])
    return Table(
        x[inner],
        y[inner],
        _endpoint("empty", empty, y[sizes == 0]),
        _endpoint("full", full, y[sizes == x.shape[1]]),
        (np.ndim(empty) == 0 and (sizes > 0).all(), np.ndim(full) == 0 and (sizes < x.shape[1]).all()),
        size_distribution,
    )


def importance_weights(table: Table) -> FloatArray:
    """(m,): Shapley kernel over the probability a size was drawn with, mean 1 over the design.

    Raises when the table's sizes contradict its ``size_distribution``.
    """
    drawn = size_probabilities(table.size_distribution, table.n)
    counts = np.bincount(table.sizes - 1, minlength=table.n - 1)
    _check_sizes(counts, drawn, table.size_distribution)
    return size_probabilities("kernel", table.n)[table.sizes - 1] / drawn[table.sizes - 1]


def _endpoint(name: str, given: float | Sequence[float], from_table: FloatArray) -> FloatArray:
    replicates = np.concatenate([np.atleast_1d(np.asarray(given, dtype=np.float64)), from_table])
    if replicates.size == 0:
        raise UserError(f"{name}: no value of the {name} coalition; at least one is expected")
    if replicates.ndim != 1 or not np.isfinite(replicates).all():
        raise UserError(f"{name}: {given}; expected a finite number or a sequence of them")
    return replicates


def _check_sizes(counts: NDArray[np.intp], drawn: FloatArray, name: str) -> None:
    """Pearson's chi-square over neighbouring sizes, merged until each group expects 5 evaluations."""
    impossible = np.flatnonzero((counts > 0) & (drawn == 0))
    if len(impossible):
        raise UserError(f"size_distribution {name!r}: never draws coalitions of size {impossible[0] + 1}")
    expected = counts.sum() * drawn
    group = np.floor(np.cumsum(expected) / LEAST_EXPECTED - 1e-9).astype(np.intp)
    # The last group may expect fewer than 5: it joins its neighbour.
    group = np.minimum(group, max(int(expected.sum() / LEAST_EXPECTED) - 1, 0))
    seen, wanted = np.bincount(group, counts), np.bincount(group, expected)
    seen, wanted = seen[wanted > 0], wanted[wanted > 0]
    statistic = ((seen - wanted) ** 2 / wanted).sum()
    if len(wanted) > 1 and chi2.sf(statistic, len(wanted) - 1) < LEAST_PROBABILITY:
        raise UserError(
            f"size_distribution {name!r}: contradicts the coalitions' sizes (chi-square {statistic:.0f} with "
            f"{len(wanted) - 1} degrees of freedom); name the design they were drawn with"
        )
