"""`Credits`: one number per contributor with its interval, as `estimate` returns it.

>>> from diffcredit import estimate, make_design
>>> coalitions = make_design("exhaustive").draw(3, 0, 6)
>>> values = coalitions @ [3.0, 1.0, -1.0]
>>> credits = estimate(coalitions, values, empty=0.0, full=3.0, method="exact", names=["Ada", "Ben", "Cy"])
>>> credits
Credits of 3 contributors by exact from 6 evaluations, higher is better
Help is beside the average contributor, more is better, with 95 % intervals
F(all) = 3.0, F(reference) = 0.0, the credits sum to 3.0
contributor  help   low  high  credit
Ada           2.0   2.0   2.0     3.0
Ben           0.0   0.0   0.0     1.0
Cy           -2.0  -2.0  -2.0    -1.0

There are also `help`, `shares`, `rank` and their intervals, `to_frame` (pandas), `to_csv`, `plot`, `save` and `load`.
Credits of properties measured by the same evaluations add up, ``0.7 * a + 0.3 * b`` (`diffcredit.credit.mixing`).

Pitfalls: an interval covers for its own contributor, or on average over the contributors (``shapley``), not for all at
once, and says nothing about the truth (`diffcredit.credit`). Most of a credit may be the level (F(N) − F(∅))/n, which
all have alike: compare contributors by `help`.
"""

from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Self

import numpy as np

from diffcredit.credit import mixing, output
from diffcredit.credit.intervals import half_width, rank_intervals, ratio_intervals
from diffcredit.credit.table import GameTable, IntArray
from diffcredit.util.arrays import BoolArray, FloatArray
from diffcredit.util.artifacts import write_text

ROUNDING = 1e-9  # of the largest number: by how much a sum of credits may miss F(N) − F(∅)
DIGITS = 12  # counted from the largest number: credits that agree in them are equal


@dataclass(frozen=True, eq=False, repr=False)
class Credits:
    """One credit per contributor, in the unit of the property, with its interval.

    ``values``, ``low``, ``high`` and ``standard_error`` are (n,), in the order of ``names``. ``standard_error`` is the
    root mean squared error: sampling variance plus, if the method shrinks, the second moment of its bias.
    ``evaluations`` does not count the endpoints; ``empty`` is F(∅) and ``full`` F(N), each the mean of its replicates.

    ``influence`` (n, u + 2) splits the sampling error by source: what each sampling unit (a coalition and its
    complement) adds to each credit's error, then what F(∅) and F(N) add. influence · influenceᵀ is the errors'
    covariance. If ``residuals``, the units' columns are signed residuals, which show how the errors of two properties
    are correlated; otherwise they are only deviations. ``bias`` (n,) is the root of the bias's second moment,
    ``degrees`` the degrees of freedom of the noise. ``higher_is_better`` says which way the property is better; methods
    that take it use this one by default. ``parts`` are the weighted properties of a mix.
    """

    values: FloatArray
    standard_error: FloatArray
    method: str
    evaluations: int
    confidence: float
    empty: float
    full: float
    diagnostics: dict[str, float]
    influence: FloatArray
    residuals: bool
    bias: FloatArray
    degrees: float
    table: GameTable
    property_name: str = ""
    unit: str = ""
    higher_is_better: bool = True
    parts: "tuple[tuple[float, Credits], ...]" = field(default=())

    __array_ufunc__ = None  # so that np.float64(0.7) * credits is left to Credits

    @classmethod
    def of(
        cls,
        table: GameTable,
        method: str,
        values: FloatArray,
        influence: FloatArray,
        *,
        confidence: float,
        bias: FloatArray | None = None,
        degrees: float | None = np.inf,
        residuals: bool = False,
        diagnostics: dict[str, float],
    ) -> Self:
        """Return credits with the intervals values ± c·√V, where V is the sampling variance.

        c is Student's quantile, or with bias the robust empirical-Bayes critical value cva(bias²/V), which covers on
        average over the contributors. If ``degrees`` is None, the noise is not known and intervals are infinite.
        """
        if degrees is None:
            influence, degrees = np.full_like(influence, np.inf), 1
        bias = np.zeros(len(values)) if bias is None else bias
        variance = row_squares(influence)
        return cls(
            values=values,
            standard_error=np.sqrt(variance + bias**2),
            method=method,
            evaluations=table.evaluations,
            confidence=confidence,
            empty=float(table.empty.mean()),
            full=float(table.full.mean()),
            diagnostics=diagnostics,
            influence=influence,
            residuals=residuals,
            bias=bias,
            degrees=degrees,
            table=table,
        )

    @property
    def names(self) -> tuple[str, ...]:
        return self.table.names

    @property
    def low(self) -> FloatArray:
        return self.values - self._half_width

    @property
    def high(self) -> FloatArray:
        return self.values + self._half_width

    @cached_property
    def _half_width(self) -> FloatArray:
        # Only when asked for, since intervals take longer than the credits themselves.
        return half_width(row_squares(self.influence), self.bias, self.degrees, self.confidence)

    @property
    def average(self) -> float:
        """(F(N) − F(∅)) / n: each contributor's credit if all were equal."""
        return (self.full - self.empty) / len(self.values)

    @property
    def efficient(self) -> bool:
        """Whether the credits sum to F(N) − F(∅), up to rounding. Shapley values and their mixes do."""
        difference = abs(float(self.values.sum()) - (self.full - self.empty))
        return difference <= self.rounding * len(self.values)

    @property
    def rounding(self) -> float:
        """How far numbers may differ by the rounding of F alone."""
        return ROUNDING * self._scale

    @property
    def _scale(self) -> float:
        return max(abs(self.empty), abs(self.full), float(np.abs(self.values).max()))

    @cached_property
    def contrast_half_width(self) -> FloatArray:
        """(n,): half the width of the interval of credit − average, in which errors of F(∅) and F(N) do not count."""
        variance = row_squares(self.influence[:, :-2])
        return half_width(variance, self.bias, self.degrees, self.confidence)

    @cached_property
    def _total_half_width(self) -> float:
        """Half the width of the interval of F(N) − F(∅), of whose error each credit has one nth."""
        variance = len(self.values) ** 2 * (self.influence[:1, -2:] ** 2).sum(axis=1)
        return float(half_width(variance, np.zeros(1), self.degrees, self.confidence)[0])

    @property
    def shared(self) -> bool:
        """Whether there are shares: the credits are `efficient`, and all contributors together `surely_help`."""
        return self.efficient and self.surely_help()

    @property
    def shares(self) -> FloatArray:
        """(n,): credit / (F(N) − F(∅)), which sum to 1 and have the order of `help`. NaN if they are not `shared`."""
        return self.values / (self.full - self.empty) if self.shared else np.full_like(self.values, np.nan)

    def share_intervals(self) -> tuple[FloatArray, FloatArray]:
        """Return (low, high), (n,) each: intervals of the shares at ``confidence``. NaN if they are not `shared`.

        A share is 1/n + (credit − average)/T, T = F(N) − F(∅), with independent errors of the two (Fieller).
        """
        n, total = len(self.values), self.full - self.empty
        if not self.shared:
            return np.full(n, np.nan), np.full(n, np.nan)
        contrasts = self.values - self.average
        low, high = ratio_intervals(contrasts, self.contrast_half_width, total, self._total_half_width)
        return 1 / n + low, 1 / n + high

    def help(self, higher_is_better: bool | None = None) -> FloatArray:
        """Return (n,): how much each contributor helps more than the average one, in the property's unit.

        This is ±(credit − mean credit); more is better, whatever the property. It does not depend on F(∅).
        """
        return self._sign(higher_is_better) * (self.values - self.values.mean())

    def help_intervals(self, higher_is_better: bool | None = None) -> tuple[FloatArray, FloatArray]:
        """Return (low, high), (n,) each: intervals of `help` at ``confidence``, without the level's errors."""
        found = self.help(higher_is_better)
        return found - self.contrast_half_width, found + self.contrast_half_width

    @property
    def distinguishable(self) -> BoolArray:
        """(n,): whether the interval of a contributor's help excludes 0, the average contributor's."""
        return np.abs(self.help()) > self.contrast_half_width + self.rounding

    def surely_help(self, higher_is_better: bool | None = None) -> bool:
        """Return whether all contributors together help: F(N) − F(∅), its whole interval, is on the better side."""
        total = self._sign(higher_is_better) * (self.full - self.empty)
        return bool(total > self._total_half_width + self.rounding)

    def _sign(self, higher_is_better: bool | None) -> int:
        return 1 if (self.higher_is_better if higher_is_better is None else higher_is_better) else -1

    def rank(self, higher_is_better: bool | None = None) -> IntArray:
        """Return (n,): 1 for the most helpful contributor; equal credits share the better rank."""
        worse = -self._sign(higher_is_better) * self.rounded
        return np.searchsorted(np.sort(worse), worse) + 1

    @property
    def rounded(self) -> FloatArray:
        """(n,): the credits, made equal where they differ by no more than F's own rounding."""
        scale = self._scale or 1.0
        return np.round(self.values / scale, DIGITS) * scale

    def rank_intervals(self, higher_is_better: bool | None = None) -> tuple[IntArray, IntArray]:
        """Return (low, high), (n,) each: the best and the worst rank each contributor may have, each for itself."""
        signed = self._sign(higher_is_better) * self.values
        return rank_intervals(
            signed, self.contrast_half_width, self.influence[:, :-2], self.bias, self.degrees, self.confidence
        )

    __repr__ = output.text
    plot = output.plot
    to_frame = output.frame
    to_csv = output.csv_text
    to_shapiq = output.shapiq_game
    to_interaction_values = output.interaction_values

    def save(self, path: Path | str) -> None:
        """Write everything `load` needs as JSON: format version, time, parameters, credits and evaluations."""
        write_text(Path(path), output.to_json(self))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Return the credits that `save` wrote, equal to the last bit. Raise UserError for any other file."""
        return output.read_json(cls, Path(path))

    def __mul__(self, factor: float) -> "Credits":
        return mixing.combine([(float(factor), self)]) if isinstance(factor, Real) else NotImplemented

    __rmul__ = __mul__

    def __neg__(self) -> "Credits":
        return mixing.combine([(-1.0, self)])

    def __add__(self, other: "Credits") -> "Credits":
        return mixing.combine([(1.0, self), (1.0, other)]) if isinstance(other, Credits) else NotImplemented

    def __sub__(self, other: "Credits") -> "Credits":
        return mixing.combine([(1.0, self), (-1.0, other)]) if isinstance(other, Credits) else NotImplemented


def endpoint_influence(table: GameTable, noise: float) -> FloatArray:
    """Return (n, 2): what the errors of F(∅) and F(N) add to each credit, through the level (F(N) − F(∅))/n.

    0 if known exactly. Otherwise one of r replicates has variance (noise + Σ_k (F_k − F̄)²)/r: ``noise``, that of any
    evaluation, counts as one more observation, so that a single replicate needs no special rule.
    """
    variances = [
        0.0 if known else float((noise + ((e - e.mean()) ** 2).sum()) / len(e) ** 2)
        for e, known in zip((table.empty, table.full), table.known, strict=True)
    ]
    return np.tile(np.sqrt(variances) / table.n, (table.n, 1)) * [-1, 1]


def row_squares(matrix: FloatArray) -> FloatArray:
    """Return (n,): the sum of squares of each row of (n, m)."""
    return np.einsum("ij,ij->i", matrix, matrix)


def unit_sums(columns: FloatArray, units: IntArray) -> FloatArray:
    """Return (n, u): the columns (n, m) summed within units 0..u−1."""
    count = int(units.max(initial=-1)) + 1
    if count == columns.shape[1]:
        return columns
    _, first = np.unique(units, return_index=True)
    others = np.setdiff1d(np.arange(columns.shape[1]), first)
    sums = columns.take(first, axis=1)  # faster than by an index
    sums[:, units[others]] += columns.take(others, axis=1)  # a coalition has one complement
    return sums
