"""Stopping rules on how well the credits are known: their correlation, their intervals, or who is at the top.

>>> import numpy as np
>>> from diffcredit import estimate, make_design
>>> from diffcredit.credit import Correlation, Look, TopK, Width
>>> coalitions = make_design("uniform").draw(10, 0, 80)
>>> values = coalitions @ np.arange(10.0) + np.random.default_rng(0).normal(size=80)
>>> looks = []
>>> for count in (40, 80):
...     credits = {"sharpness": estimate(coalitions[:count], values[:count], empty=0.0, full=45.0)}
...     looks.append(Look(count, 0.0, 0.0, credits, {"sharpness": True}))
>>> Correlation(0.9).reached(looks), TopK(k=3, overlap=0.9).reached(looks)
(True, True)
>>> rule = Width(0.5)  # as wide as the widest interval may be, in the property's unit
>>> rule.reached(looks), rule.status(looks).evaluations > 80
(False, True)

Pitfalls: all rules rest on the estimator's model of its own errors and look again and again; they are not anytime-valid
tests (how often targets were met: ``benchmarks/estimators``). Being precise is not being right (`diffcredit.credit`).
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from diffcredit.credit.credits import Credits
from diffcredit.credit.stopping import Look, Rule, RuleStatus, require_positive
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray

DRAWS = 2000  # of the true credits: the expected overlap is then known to about 0.01
FARTHEST = 1e6  # times the evaluations so far; more counts as never


@dataclass(frozen=True)
class CreditRule(Rule):
    """A rule on the credits of one ``property``, or of every one if it is None. It must hold at the last
    ``consecutive`` looks with credits: one lucky look fools it less easily."""

    property: str | None = field(default=None, kw_only=True)
    consecutive: ClassVar[int] = 1
    smaller_is_better: ClassVar[bool] = False

    @abstractmethod
    def quality(self, credits: Credits, higher_is_better: bool) -> float | None:
        """Return the number that is compared with the target; None if it is not known."""

    @abstractmethod
    def enough(self, quality: float) -> bool:
        """Return whether ``quality`` meets the target."""

    @abstractmethod
    def needed(self, credits: Credits, higher_is_better: bool, evaluations: int) -> float | None:
        """Return about how many evaluations meet the target, given the credits of ``evaluations``."""

    def bounded(self) -> bool:
        return False

    def reached(self, looks: Sequence[Look]) -> bool:
        last = [look for look in looks if look.credits is not None][-self.consecutive :]
        return len(last) == self.consecutive and all(self._holds(look) for look in last)

    def status(self, looks: Sequence[Look]) -> RuleStatus:
        seen, reached = [look for look in looks if look.credits is not None], self.reached(looks)
        if not seen:
            return RuleStatus(str(self), "no look yet", reached, None)
        look = seen[-1]
        evaluations: int | None = look.evaluations
        if not reached:
            spacing = look.evaluations - (seen[-2].evaluations if len(seen) > 1 else 0)
            holds = self._holds(look)
            expected = look.evaluations if holds else self._expected_evaluations(look)
            earliest = look.evaluations + spacing * (self.consecutive - holds)  # the looks that are still missing
            evaluations = None if expected is None else max(expected, earliest)
        return RuleStatus(str(self), self._now(look), reached, evaluations)

    def _credits(self, look: Look) -> dict[str, Credits | None]:
        names = look.higher_is_better if self.property is None else [self.property]
        return {name: (look.credits or {}).get(name) for name in names}

    def _qualities(self, look: Look) -> dict[str, float | None]:
        return {
            name: None if credits is None else self.quality(credits, look.higher_is_better[name])
            for name, credits in self._credits(look).items()
        }

    def _holds(self, look: Look) -> bool:
        return all(quality is not None and self.enough(quality) for quality in self._qualities(look).values())

    def _expected_evaluations(self, look: Look) -> int | None:
        """Return the most that any property needs; None if that is not known for one of them."""
        needed = [
            None if credits is None else self.needed(credits, look.higher_is_better[name], look.evaluations)
            for name, credits in self._credits(look).items()
        ]
        known = [math.ceil(each) for each in needed if each is not None and math.isfinite(each)]
        return max([look.evaluations, *known]) if len(known) == len(needed) else None

    def _now(self, look: Look) -> str:
        """Return the quality of the property that is farthest from the target."""
        qualities = self._qualities(look)
        known = {name: quality for name, quality in qualities.items() if quality is not None}
        if unknown := [name for name in qualities if name not in known]:
            return f"not known for {unknown[0]}"
        name = (max if self.smaller_is_better else min)(known, key=known.__getitem__)
        return f"{known[name]:.3g}" + (f" ({name})" if len(known) > 1 else "")

    def _of(self) -> str:
        return "" if self.property is None else f" of {self.property}"


@dataclass(frozen=True)
class Correlation(CreditRule):
    """The correlation with the exact credits is at least ``target`` with a probability of 85 %, at two looks in a row.

    The probability is the estimator's own (``assured_correlation``). The correlation ρ of shrunken estimates from M
    evaluations has 1 − ρ² = 1/(1 + c·M). So the predicted correlation t that assures the target needs
    M · (t²/(1 − t²)) / (ρ²/(1 − ρ²)) evaluations.
    """

    target: float
    consecutive: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if not 0 < self.target < 1:
            raise UserError(f"stop: correlation: {self.target}; a number between 0 and 1 is accepted")

    def quality(self, credits: Credits, higher_is_better: bool) -> float | None:
        return credits.diagnostics.get("assured_correlation")

    def enough(self, quality: float) -> bool:
        return quality >= self.target

    def needed(self, credits: Credits, higher_is_better: bool, evaluations: int) -> float | None:
        assured, predicted = (credits.diagnostics.get(f"{key}_correlation") for key in ("assured", "predicted"))
        if assured is None or predicted is None or not 0 < assured < 1:
            return evaluations if assured == 1 else None
        margin = math.atanh(predicted) - math.atanh(assured)
        wanted, now = math.tanh(math.atanh(self.target) + margin) ** 2, predicted**2
        return evaluations * (wanted / (1 - wanted)) / (now / (1 - now))

    def __str__(self) -> str:
        return f"correlation{self._of()} ≥ {self.target:g}, 85 % sure"


@dataclass(frozen=True)
class Width(CreditRule):
    """The widest interval of any contributor is at most ``target``, in the unit of the property."""

    target: float
    smaller_is_better: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive("width", self.target)

    def quality(self, credits: Credits, higher_is_better: bool) -> float | None:
        width = float((credits.high - credits.low).max())
        return width if math.isfinite(width) else None

    def enough(self, quality: float) -> bool:
        return quality <= self.target

    def needed(self, credits: Credits, higher_is_better: bool, evaluations: int) -> float | None:
        width = self.quality(credits, higher_is_better)
        return None if width is None else evaluations * (width / self.target) ** 2

    def __str__(self) -> str:
        return f"width{self._of()} ≤ {self.target:g}"


@dataclass(frozen=True)
class TopK(CreditRule):
    """The ``k`` who seem most helpful are expected to contain the share ``overlap`` of the true top k, at two looks
    in a row."""

    k: int
    overlap: float
    consecutive: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if self.k < 1:
            raise UserError(f"stop: top.k: {self.k}; at least 1 is accepted")
        if not 0 < self.overlap <= 1:
            raise UserError(f"stop: top.overlap: {self.overlap}; a share above 0, at most 1, is accepted")

    def quality(self, credits: Credits, higher_is_better: bool) -> float | None:
        return expected_overlap(credits.values, credits.standard_error, self.k, higher_is_better)

    def enough(self, quality: float) -> bool:
        return quality >= self.overlap

    def needed(self, credits: Credits, higher_is_better: bool, evaluations: int) -> float | None:
        def enough_after(times: float) -> bool:
            errors = credits.standard_error / math.sqrt(times)
            overlap = expected_overlap(credits.values, errors, self.k, higher_is_better)
            return overlap is not None and overlap >= self.overlap

        if not enough_after(FARTHEST):
            return None
        low, high = 1.0, FARTHEST
        while high / low > 1.01:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if enough_after(middle) else (middle, high)
        return evaluations * high

    def __str__(self) -> str:
        return f"top {self.k}{self._of()} settled to {100 * self.overlap:g} %"


def expected_overlap(values: FloatArray, standard_error: FloatArray, k: int, higher_is_better: bool) -> float | None:
    """Return E |T̂ ∩ T| / k, T̂ the top k of ``values`` (n,) and T the top k of independent N(values, standard_error²).

    Standard errors include the level's, which moves no rank, so the overlap is rather understated. None if not known.
    """
    if not np.isfinite(standard_error).all():
        return None
    k = min(k, len(values))
    signed = values if higher_is_better else -values
    noise = np.random.Generator(np.random.PCG64(0)).standard_normal((DRAWS, len(values)))
    drawn = signed + standard_error * noise
    top = np.argsort(-signed, kind="stable")[:k]
    threshold = np.partition(drawn, len(values) - k, axis=1)[:, len(values) - k, None]
    return float((drawn[:, top] >= threshold).mean())
