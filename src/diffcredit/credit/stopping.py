"""When a study has evaluated enough: stopping rules that combine with ``&`` and ``|``.

A rule sees a sequence of looks, each at more evaluations of the design, and says whether it is reached and about how
many evaluations that takes. Rules on what is spent are here, rules on the credits in `diffcredit.credit.precision`.

>>> from diffcredit.credit import Correlation, Evaluations, Look, Money, Time
>>> rule = Evaluations(500) | Time(hours=12) & Correlation(0.9)
>>> print(rule)
any of (500 evaluations; all of (12 hours; correlation ≥ 0.9, 85 % sure))
>>> look = Look(120, worker_seconds=7200.0, elapsed_seconds=3600.0, credits=None, higher_is_better={"fid": False})
>>> rule.reached([look])
False
>>> rule.status([look]).evaluations  # the expected total: 500 evaluations come before anything else that is known
500
>>> Money(amount=100, per_hour=2.5).status([look]).evaluations  # at 2.5 an hour, 60 evaluations cost 2.5
2400

Pitfalls: a rule on credits alone may never be reached, so combine it with a limit, ``Correlation(0.9) |
Evaluations(500)``; `Rule.bounded` says whether a rule is sure to end. Time and money do not count preparation.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from diffcredit.credit.credits import Credits
from diffcredit.errors import UserError

HOUR = 3600.0  # seconds


@dataclass(frozen=True, eq=False)
class Look:
    """The state of a study after some ``evaluations`` of the design, without the endpoints.

    ``worker_seconds`` is the sum of all evaluations' times, ``elapsed_seconds`` the time during which at least one was
    running. ``credits``: of properties with enough values; None if not computed. ``higher_is_better`` names them all.
    """

    evaluations: int
    worker_seconds: float
    elapsed_seconds: float
    credits: Mapping[str, Credits] | None
    higher_is_better: Mapping[str, bool]


@dataclass(frozen=True)
class RuleStatus:
    """How far a rule is: its target (``wanted``), the present state (``now``), whether that is enough, and about how
    many ``evaluations`` it takes (None: not known). A combination has ``parts``, ``joined`` by "and" or "or"."""

    wanted: str
    now: str
    reached: bool
    evaluations: int | None
    parts: tuple["RuleStatus", ...] = ()
    joined: str = ""

    def reason(self) -> str:
        """Say what was reached: all parts of an "and", the first part reached of an "or"."""
        if not self.parts:
            return self.wanted if self.wanted.startswith(self.now) else f"{self.wanted}, now {self.now}"
        reached = [part.reason() for part in self.parts if part.reached]
        if not self.reached:
            return self.now
        return " and ".join(reached) if self.joined == "and" else reached[0]


class Rule(ABC):
    """A stopping rule. ``a & b`` is reached if both are at the same look, ``a | b`` if one of them is."""

    @abstractmethod
    def reached(self, looks: Sequence[Look]) -> bool:
        """Return whether it is reached at the last of ``looks``."""

    @abstractmethod
    def status(self, looks: Sequence[Look]) -> RuleStatus:
        """Return how far it is at the last of ``looks``."""

    @abstractmethod
    def bounded(self) -> bool:
        """Return whether it is sure to be reached some day, whatever the credits are."""

    def max_evaluations(self) -> int | None:
        """Return the number of evaluations at which it is sure to be reached, if there is one."""
        return None

    def leaves(self) -> Iterator["Rule"]:
        """Yield the simple rules that it is made of."""
        yield self

    def __and__(self, other: "Rule") -> "AllOf":
        return AllOf((self, other))

    def __or__(self, other: "Rule") -> "AnyOf":
        return AnyOf((self, other))


@dataclass(frozen=True)
class _Combination(Rule):
    rules: tuple[Rule, ...]
    every: ClassVar[bool]

    def reached(self, looks: Sequence[Look]) -> bool:
        return self._joined(rule.reached(looks) for rule in self.rules)

    def bounded(self) -> bool:
        return self._joined(rule.bounded() for rule in self.rules)

    def max_evaluations(self) -> int | None:
        return self._evaluations([rule.max_evaluations() for rule in self.rules])

    def leaves(self) -> Iterator[Rule]:
        for rule in self.rules:
            yield from rule.leaves()

    def status(self, looks: Sequence[Look]) -> RuleStatus:
        parts = tuple(rule.status(looks) for rule in self.rules)
        now = f"{sum(part.reached for part in parts)} of {len(parts)} reached"
        evaluations = self._evaluations([part.evaluations for part in parts])
        wanted, joined = ("all of", "and") if self.every else ("any of", "or")  # the parts state their own targets
        return RuleStatus(wanted, now, self.reached(looks), evaluations, parts, joined)

    def __str__(self) -> str:
        return f"{'all' if self.every else 'any'} of ({'; '.join(map(str, self.rules))})"

    def _joined(self, states: Iterable[bool]) -> bool:
        return all(states) if self.every else any(states)

    def _evaluations(self, counts: list[int | None]) -> int | None:
        known = [count for count in counts if count is not None]
        if self.every:
            return max(known) if len(known) == len(counts) else None
        return min(known, default=None)


class AllOf(_Combination):
    every = True


class AnyOf(_Combination):
    every = False


class _Limit(Rule):
    """A limit on what is spent, which predicts the number of evaluations from the cost of those so far."""

    @abstractmethod
    def _progress(self, look: Look) -> tuple[float, float, str]:
        """Return what is spent, the limit, and what is spent in words."""

    def bounded(self) -> bool:
        return True

    def reached(self, looks: Sequence[Look]) -> bool:
        return self.status(looks).reached

    def status(self, looks: Sequence[Look]) -> RuleStatus:
        look = looks[-1] if looks else Look(0, 0.0, 0.0, None, {})
        spent, limit, words = self._progress(look)
        done, expected = look.evaluations, self.max_evaluations()
        if expected is None and spent >= limit:
            expected = done
        elif expected is None and done and spent > 0:
            expected = max(done, math.floor(done * limit / spent))
        return RuleStatus(str(self), words, spent >= limit, expected)


@dataclass(frozen=True)
class Evaluations(_Limit):
    """``count`` evaluations of the design, without the endpoints."""

    count: int

    def __post_init__(self) -> None:
        require_positive("evaluations", self.count)

    def max_evaluations(self) -> int:
        return self.count

    def _progress(self, look: Look) -> tuple[float, float, str]:
        return look.evaluations, self.count, f"{look.evaluations:,}"

    def __str__(self) -> str:
        return f"{self.count:,} evaluations"


@dataclass(frozen=True)
class Time(_Limit):
    """``hours`` during which at least one evaluation was running. Pauses between runs and preparation do not count."""

    hours: float

    def __post_init__(self) -> None:
        require_positive("hours", self.hours)

    def _progress(self, look: Look) -> tuple[float, float, str]:
        return look.elapsed_seconds, self.hours * HOUR, f"{look.elapsed_seconds / HOUR:.3g} hours"

    def __str__(self) -> str:
        return f"{self.hours:g} hours"


@dataclass(frozen=True)
class Money(_Limit):
    """``amount`` spent at ``per_hour`` for one worker's hour, in any currency. Preparation does not count."""

    amount: float
    per_hour: float

    def __post_init__(self) -> None:
        require_positive("money.amount", self.amount)
        require_positive("money.per_hour", self.per_hour)

    def _progress(self, look: Look) -> tuple[float, float, str]:
        spent = look.worker_seconds / HOUR * self.per_hour
        return spent, self.amount, f"{spent:.2f}"

    def __str__(self) -> str:
        return f"{self.amount:g} spent at {self.per_hour:g} an hour"


def require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"stop: {name}: {value}; a positive number is accepted")
