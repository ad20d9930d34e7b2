"""What an estimate returns."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from diffcredit.credit import interop
from diffcredit.credit.critical_value import robust_critical_value
from diffcredit.credit.ranks import rank_intervals
from diffcredit.credit.shares import ratio_intervals
from diffcredit.credit.table import Table
from diffcredit.util.arrays import FloatArray
from diffcredit.util.artifacts import write_text

if TYPE_CHECKING:
    import pandas
    import shapiq

IntArray = NDArray[np.intp]

# Relative to the largest number involved: credits whose sum is this near to F(N) − F(∅) share it out.
ROUNDING = 1e-9
# Of the largest number involved: credits that differ by less are equal.
DIGITS = 12


@dataclass(frozen=True, eq=False)
class Credits:
    """One credit a contributor, in the units of the property, with its interval.

    ``values``, ``low``, ``high`` and ``standard_error`` are (n,). ``standard_error`` is the root of the expected
    squared error: sampling variance plus, where the method shrinks, the second moment of its bias.
    ``evaluations`` counts those of coalitions, endpoints apart; ``empty`` and ``full`` are F(∅) and F(N).
    A low standard error says that more coalitions would change little, for this base model, this retraining
    and these initial noises; it says nothing about others.

    ``influence`` (n, u + 2) tells where the sampling error comes from: its first u columns are what each unit
    (a coalition, with its complement) adds to each credit's error, the last two what F(∅) and F(N) add, so that
    influence · influenceᵀ is the covariance of the errors. Where ``residuals``, the units' columns are signed
    residuals, and another property's beside them tell how the errors of the two go together; else they are only
    deviations. ``bias`` (n,) is the root of the bias's second moment, and ``degrees`` the degrees of freedom of the
    noise.
    """

    values: FloatArray
    standard_error: FloatArray
    method: str
    evaluations: int
    confidence: float
    empty: float
    full: float
    diagnostics: dict[str, float]
    influence: FloatArray = field(repr=False)
    residuals: bool = field(repr=False)
    bias: FloatArray = field(repr=False)
    degrees: float = field(repr=False)
    table: Table = field(repr=False)

    @classmethod
    def of(
        cls,
        table: Table,
        method: str,
        values: FloatArray,
        influence: FloatArray,
        *,
        confidence: float,
        bias: FloatArray | None = None,
        degrees: float = np.inf,
        residuals: bool = False,
        diagnostics: dict[str, float],
    ) -> Self:
        """Credits with intervals: values ± c·√N, N the sampling variance.

        c is Student's quantile for unbiased methods; with bias it is the robust empirical-Bayes critical value
        cva(m₂), m₂ = bias²/N, which covers at the stated rate on average over the contributors.
        """
        bias = np.zeros(len(values)) if bias is None else bias
        variance = (influence**2).sum(axis=1)
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
    def low(self) -> FloatArray:
        """(n,): where the interval of each credit begins."""
        return self.values - self._half_width

    @property
    def high(self) -> FloatArray:
        """(n,): where it ends."""
        return self.values + self._half_width

    @cached_property
    def _half_width(self) -> FloatArray:
        """(n,): computed when it is asked for; who asks for many credits may want no intervals, which take long."""
        return half_width((self.influence**2).sum(axis=1), self.bias, self.degrees, self.confidence)

    @property
    def average(self) -> float:
        """(F(N) − F(∅)) / n: what each would get if all were equal."""
        return (self.full - self.empty) / len(self.values)

    @property
    def efficient(self) -> bool:
        """Whether the credits sum to F(N) − F(∅), up to rounding: true of Shapley values and of their mixes."""
        scale = max(abs(self.empty), abs(self.full), float(np.abs(self.values).max()))
        return abs(float(self.values.sum()) - (self.full - self.empty)) <= ROUNDING * scale * len(self.values)

    @cached_property
    def contrast_half_width(self) -> FloatArray:
        """(n,): half the width of the interval of credit − average. F(∅) and F(N) move all credits alike, and so
        their errors have no part in it."""
        variance = (self.influence[:, :-2] ** 2).sum(axis=1)
        return half_width(variance, self.bias, self.degrees, self.confidence)

    @property
    def shares(self) -> FloatArray:
        """(n,): credits as parts of F(N) − F(∅); they sum to 1.

        NaN where there is nothing to share, and where the credits are not `efficient`: these are no parts of
        F(N) − F(∅), and their own sum measures nothing.
        """
        total = self.full - self.empty
        return self.values / total if total != 0 and self.efficient else np.full_like(self.values, np.nan)

    def share_intervals(self) -> tuple[FloatArray, FloatArray]:
        """(low, high), (n,) each: intervals of the shares at ``confidence``.

        A share is 1/n + (credit − average)/T, T = F(N) − F(∅); the two errors are independent (Fieller's interval).
        −inf, inf where T's own interval holds 0: without a total that is surely there, a share can be anything. NaN
        where the credits are not `efficient`.
        """
        n, total = len(self.values), self.full - self.empty
        if not self.efficient:
            return np.full(n, np.nan), np.full(n, np.nan)
        # Each credit holds one nth of T's error.
        variance = n**2 * (self.influence[:1, -2:] ** 2).sum(axis=1)
        total_half_width = half_width(variance, np.zeros(1), self.degrees, self.confidence)[0]
        contrasts = self.values - self.average
        low, high = ratio_intervals(contrasts, self.contrast_half_width, total, float(total_half_width))
        return 1 / n + low, 1 / n + high

    def rank(self, higher_is_better: bool = True) -> IntArray:
        """(n,): 1 for the most helpful contributor; equal credits share the better rank."""
        worse = -self.rounded if higher_is_better else self.rounded
        return np.searchsorted(np.sort(worse), worse) + 1

    @property
    def rounded(self) -> FloatArray:
        """(n,): the credits, where what differs by no more than the rounding of F's own numbers is equal."""
        scale = max(abs(self.empty), abs(self.full), float(np.abs(self.values).max())) or 1.0
        return np.round(self.values / scale, DIGITS) * scale

    def rank_intervals(self, higher_is_better: bool = True) -> tuple[IntArray, IntArray]:
        """(low, high), (n,) each: the best and the worst rank that each contributor may have, at ``confidence``.

        Each covers for its own contributor, as the credits' intervals do; see `ranks.rank_intervals`.
        """
        signed = self.values if higher_is_better else -self.values
        return rank_intervals(
            signed, self.contrast_half_width, self.influence[:, :-2], self.bias, self.degrees, self.confidence
        )

    def to_frame(self, names: Sequence[str] | None = None, higher_is_better: bool = True) -> "pandas.DataFrame":
        """One row a contributor, in the order of the coalitions' columns: contributor, credit, low, high,
        standard_error, rank, rank_low, rank_high, share, share_low, share_high. Needs pandas.

        names: (n,), the contributors'; their numbers 0..n−1 when None.
        """
        return interop.frame(self, names, higher_is_better)

    def to_csv(
        self, path: Path | str | None = None, names: Sequence[str] | None = None, higher_is_better: bool = True
    ) -> str | None:
        """The table of `to_frame` as CSV: written to ``path``, or returned when that is None.

        Numbers that are not finite are left empty; names that a spreadsheet would run as formulae are kept from it.
        """
        text = interop.csv_text(self, names, higher_is_better)
        if path is None:
            return text
        write_text(Path(path), text)
        return None

    def to_shapiq(self) -> "shapiq.Game":
        """The evaluated game: F(∅), F(N) and the values of the table's coalitions, replicates averaged, not
        normalised. Asked for any other coalition it raises a UserError. Needs shapiq."""
        return interop.shapiq_game(self)

    def to_interaction_values(self) -> "shapiq.InteractionValues":
        """The credits as shapiq's Shapley values ("SV", order 1) above the baseline F(∅), for its plots.

        The budget counts evaluations as ``evaluations`` does. Raises a UserError where the credits are not
        `efficient`. Needs shapiq.
        """
        return interop.interaction_values(self)


def half_width(variance: FloatArray, bias: FloatArray, degrees: float, confidence: float) -> FloatArray:
    """(n,): half of an interval around an estimate with this sampling variance and root mean square bias."""
    # Student's t for the normal distribution: the noise's variance is itself estimated, the bias's is a bound.
    level = (1 + confidence) / 2
    spread = np.sqrt(variance) * stdtrit(degrees, level) / stdtrit(np.inf, level)
    m2 = np.divide(bias**2, spread**2, out=np.zeros_like(variance), where=variance > 0)
    # Of a bias alone no more than its second moment is known: Chebyshev, which is also cva's limit.
    return np.where(variance > 0, robust_critical_value(m2, confidence) * spread, bias / np.sqrt(1 - confidence))


def endpoint_influence(table: Table, noise: float) -> FloatArray:
    """(n, 2): what the errors of F(∅) and F(N) add to each credit, through the level (F(N) − F(∅))/n."""
    empty, full = table.endpoint_variances(noise)
    return np.tile(np.sqrt([empty, full]) / table.n, (table.n, 1)) * [-1, 1]


def unit_sums(columns: FloatArray, units: NDArray[np.intp]) -> FloatArray:
    """(n, u): the columns (n, m) added up within units 0..u−1."""
    count = int(units.max(initial=-1)) + 1
    if count == columns.shape[1]:
        return columns
    order = np.argsort(units, kind="stable")
    starts = np.searchsorted(units[order], np.arange(count))
    return np.add.reduceat(columns[:, order], starts, axis=1)
