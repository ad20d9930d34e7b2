"""When a study has evaluated enough: stopping rules that combine with ``&`` and ``|``.

A rule sees a sequence of looks, each at more evaluations of the design, and says whether it is reached and about how
many evaluations that takes. Rules on what is spent are here; rules on how well the credits are known are in
`diffcredit.credit.precision`.

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

``a & b`` is reached if both are at the same look, ``a | b`` if one of them is.

Pitfalls: a rule on credits alone may never be reached, so combine it with a limit, ``Correlation(0.9) |
Evaluations(500)``; `Rule.bounded` says whether a rule is sure to end. Time and money count evaluations only, not the
preparation of the model.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from diffcredit.credit.credits import Credits
from diffcredit.errors import UserError

HOUR = 3600.0  # seconds


@dataclass(frozen=True, eq=False)
class Look:
    """The state of a study after some evaluations.

    ``evaluations`` counts those of the design, without the endpoints. ``worker_seconds`` is the sum of all evaluations'
    times, ``elapsed_seconds`` the time during which at least one was running. ``credits`` holds the credits of each
    property that has enough values; None if they were not computed at this look. ``higher_is_better`` names all
    properties.
    """

    evaluations: int
    worker_seconds: float
    elapsed_seconds: float
    credits: Mapping[str, Credits] | None
    higher_is_better: Mapping[str, bool]


@dataclass(frozen=True)
class RuleStatus:
    """How far a rule is: its target (``wanted``), the present state (``now``), and whether that is enough.

    ``evaluations``: about how many in all it takes, None if that is not known. A combination has ``parts``, ``joined``
    by "and" or "or".
    """

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
    """A stopping rule. ``a & b`` is reached if both are, ``a | b`` if one of them is."""

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

    def leaves(self) -> Iterator[Rule]:
        for rule in self.rules:
            yield from rule.leaves()

    def _status(self, looks: Sequence[Look], joined: str) -> RuleStatus:
        parts = tuple(rule.status(looks) for rule in self.rules)
        known = [part.evaluations for part in parts if part.evaluations is not None]
        first, last = min(known, default=None), max(known) if len(known) == len(parts) else None
        now = f"{sum(part.reached for part in parts)} of {len(parts)} reached"
        wanted = "any of" if joined == "or" else "all of"  # the parts state their own targets
        return RuleStatus(wanted, now, self.reached(looks), first if joined == "or" else last, parts, joined)


@dataclass(frozen=True)
class AnyOf(_Combination):
    """Reached if one of ``rules`` is."""

    def reached(self, looks: Sequence[Look]) -> bool:
        return any(rule.reached(looks) for rule in self.rules)

    def status(self, looks: Sequence[Look]) -> RuleStatus:
        return self._status(looks, "or")

    def bounded(self) -> bool:
        return any(rule.bounded() for rule in self.rules)

    def max_evaluations(self) -> int | None:
        return min((most for rule in self.rules if (most := rule.max_evaluations()) is not None), default=None)

    def __str__(self) -> str:
        return f"any of ({'; '.join(map(str, self.rules))})"


@dataclass(frozen=True)
class AllOf(_Combination):
    """Reached if all of ``rules`` are, at the same look."""

    def reached(self, looks: Sequence[Look]) -> bool:
        return all(rule.reached(looks) for rule in self.rules)

    def status(self, looks: Sequence[Look]) -> RuleStatus:
        return self._status(looks, "and")

    def bounded(self) -> bool:
        return all(rule.bounded() for rule in self.rules)

    def max_evaluations(self) -> int | None:
        most = [rule.max_evaluations() for rule in self.rules]
        return None if None in most else max(count for count in most if count is not None)

    def __str__(self) -> str:
        return f"all of ({'; '.join(map(str, self.rules))})"


@dataclass(frozen=True)
class Evaluations(Rule):
    """``count`` evaluations of the design, without the endpoints."""

    count: int

    def __post_init__(self) -> None:
        _require_positive("evaluations", self.count)

    def reached(self, looks: Sequence[Look]) -> bool:
        return bool(looks) and looks[-1].evaluations >= self.count

    def status(self, looks: Sequence[Look]) -> RuleStatus:
        done = looks[-1].evaluations if looks else 0
        return RuleStatus(str(self), f"{done:,}", self.reached(looks), self.count)

    def bounded(self) -> bool:
        return True

    def max_evaluations(self) -> int:
        return self.count

    def __str__(self) -> str:
        return f"{self.count:,} evaluations"


class _Budget(Rule):
    """A limit on what evaluations cost, which predicts their number from the cost of those so far."""

    @abstractmethod
    def _spent(self, looks: Sequence[Look]) -> float: ...

    @abstractmethod
    def _limit(self) -> float: ...

    def bounded(self) -> bool:
        return True

    def reached(self, looks: Sequence[Look]) -> bool:
        return bool(looks) and self._spent(looks) >= self._limit()

    def _expected_evaluations(self, looks: Sequence[Look]) -> int | None:
        done = looks[-1].evaluations if looks else 0
        if self.reached(looks):
            return done
        spent = self._spent(looks)
        return max(done, math.floor(done * self._limit() / spent)) if done and spent > 0 else None


@dataclass(frozen=True)
class Time(_Budget):
    """``hours`` during which at least one evaluation was running. Pauses between runs and preparation do not count."""

    hours: float

    def __post_init__(self) -> None:
        _require_positive("hours", self.hours)

    def status(self, looks: Sequence[Look]) -> RuleStatus:
        now = f"{self._spent(looks) / HOUR:.3g} hours"
        return RuleStatus(str(self), now, self.reached(looks), self._expected_evaluations(looks))

    def _spent(self, looks: Sequence[Look]) -> float:
        return looks[-1].elapsed_seconds if looks else 0.0

    def _limit(self) -> float:
        return self.hours * HOUR

    def __str__(self) -> str:
        return f"{self.hours:g} hours"


@dataclass(frozen=True)
class Money(_Budget):
    """``amount`` spent at ``per_hour`` for one worker's hour, in any currency. Preparation does not count."""

    amount: float
    per_hour: float

    def __post_init__(self) -> None:
        _require_positive("money.amount", self.amount)
        _require_positive("money.per_hour", self.per_hour)

    def status(self, looks: Sequence[Look]) -> RuleStatus:
        now = f"{self._spent(looks):.2f}"
        return RuleStatus(str(self), now, self.reached(looks), self._expected_evaluations(looks))

    def _spent(self, looks: Sequence[Look]) -> float:
        return looks[-1].worker_seconds / HOUR * self.per_hour if looks else 0.0

    def _limit(self) -> float:
        return self.amount

    def __str__(self) -> str:
        return f"{self.amount:g} spent at {self.per_hour:g} an hour"


def _require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"stop: {name}: {value}; a positive number is accepted")
