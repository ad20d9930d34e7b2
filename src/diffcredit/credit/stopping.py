"""When a study has evaluated enough: rules that combine with ``&`` and ``|``.

A rule sees a sequence of looks, each at a longer prefix of the design, and says whether it is reached and about
how many evaluations that will take. Here are the rules on what is spent; those on how well the credits are known
are in :mod:`diffcredit.credit.precision`::

    rule = (Evaluations(500) | Time(hours=12)) | Correlation(0.95)
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
    """What is known after some evaluations.

    ``evaluations`` counts the design's, endpoints apart. ``worker_seconds`` is the time of all evaluations added
    up; ``elapsed_seconds`` the time during which at least one was under way. ``credits`` holds the credits of each
    property that has enough values; None: only the clocks were looked at. ``higher_is_better`` names all properties.
    """

    evaluations: int
    worker_seconds: float
    elapsed_seconds: float
    credits: Mapping[str, Credits] | None
    higher_is_better: Mapping[str, bool]


@dataclass(frozen=True)
class Standing:
    """How far a rule is: what is ``wanted``, what is there ``now``, whether that is enough, and about how many
    ``evaluations`` in all it takes (None where that cannot be told). A combination has ``parts``, joined by
    ``and`` or ``or``.
    """

    wanted: str
    now: str
    reached: bool
    evaluations: int | None
    parts: tuple["Standing", ...] = ()
    joined: str = ""

    def reason(self) -> str:
        """What was reached, in words: all parts of an ``and``, the first part reached of an ``or``."""
        if not self.parts:
            return self.wanted if self.wanted.startswith(self.now) else f"{self.wanted}, now {self.now}"
        reached = [part.reason() for part in self.parts if part.reached]
        if not self.reached:
            return self.now
        return " and ".join(reached) if self.joined == "and" else reached[0]


class Rule(ABC):
    """A stopping rule. ``a & b`` is reached when both are, ``a | b`` when one of them is."""

    @abstractmethod
    def reached(self, looks: Sequence[Look]) -> bool:
        """Whether it is reached at the last of ``looks``."""

    @abstractmethod
    def standing(self, looks: Sequence[Look]) -> Standing:
        """How far it is at the last of ``looks``."""

    @abstractmethod
    def bounded(self) -> bool:
        """Whether it is sure to be reached one day, whatever the credits do."""

    def most(self) -> int | None:
        """The number of evaluations at which it is sure to be reached, if there is one."""
        return None

    def leaves(self) -> Iterator["Rule"]:
        """The rules that it is made of."""
        yield self

    def __and__(self, other: "Rule") -> "AllOf":
        return AllOf((self, other))

    def __or__(self, other: "Rule") -> "AnyOf":
        return AnyOf((self, other))


@dataclass(frozen=True)
class AnyOf(Rule):
    """Reached when one of ``rules`` is."""

    rules: tuple[Rule, ...]

    def reached(self, looks: Sequence[Look]) -> bool:
        return any(rule.reached(looks) for rule in self.rules)

    def standing(self, looks: Sequence[Look]) -> Standing:
        return _joined(self, looks, "or", [rule.standing(looks) for rule in self.rules])

    def bounded(self) -> bool:
        return any(rule.bounded() for rule in self.rules)

    def most(self) -> int | None:
        return min((most for rule in self.rules if (most := rule.most()) is not None), default=None)

    def leaves(self) -> Iterator[Rule]:
        for rule in self.rules:
            yield from rule.leaves()

    def __str__(self) -> str:
        return f"any of ({'; '.join(map(str, self.rules))})"


@dataclass(frozen=True)
class AllOf(Rule):
    """Reached when all of ``rules`` are, at the same look."""

    rules: tuple[Rule, ...]

    def reached(self, looks: Sequence[Look]) -> bool:
        return all(rule.reached(looks) for rule in self.rules)

    def standing(self, looks: Sequence[Look]) -> Standing:
        return _joined(self, looks, "and", [rule.standing(looks) for rule in self.rules])

    def bounded(self) -> bool:
        return all(rule.bounded() for rule in self.rules)

    def most(self) -> int | None:
        most = [rule.most() for rule in self.rules]
        return None if None in most else max(count for count in most if count is not None)

    def leaves(self) -> Iterator[Rule]:
        for rule in self.rules:
            yield from rule.leaves()

    def __str__(self) -> str:
        return f"all of ({'; '.join(map(str, self.rules))})"


def _joined(rule: AnyOf | AllOf, looks: Sequence[Look], joined: str, parts: Sequence[Standing]) -> Standing:
    known = [part.evaluations for part in parts if part.evaluations is not None]
    first, last = min(known, default=None), max(known) if len(known) == len(parts) else None
    now = f"{sum(part.reached for part in parts)} of {len(parts)} reached"
    wanted = "any of" if joined == "or" else "all of"  # the parts say what they want themselves
    return Standing(wanted, now, rule.reached(looks), first if joined == "or" else last, tuple(parts), joined)


@dataclass(frozen=True)
class Evaluations(Rule):
    """``count`` evaluations of the design, endpoints apart."""

    count: int

    def __post_init__(self) -> None:
        _require_positive("evaluations", self.count)

    def reached(self, looks: Sequence[Look]) -> bool:
        return bool(looks) and looks[-1].evaluations >= self.count

    def standing(self, looks: Sequence[Look]) -> Standing:
        done = looks[-1].evaluations if looks else 0
        return Standing(str(self), f"{done:,}", self.reached(looks), self.count)

    def bounded(self) -> bool:
        return True

    def most(self) -> int:
        return self.count

    def __str__(self) -> str:
        return f"{self.count:,} evaluations"


@dataclass(frozen=True)
class Time(Rule):
    """``hours`` during which at least one evaluation was under way. Pauses between two runs do not count, nor does
    preparing the model."""

    hours: float

    def __post_init__(self) -> None:
        _require_positive("hours", self.hours)

    def reached(self, looks: Sequence[Look]) -> bool:
        return bool(looks) and looks[-1].elapsed_seconds >= self.hours * HOUR

    def standing(self, looks: Sequence[Look]) -> Standing:
        spent = looks[-1].elapsed_seconds if looks else 0.0
        reached = self.reached(looks)
        evaluations = _at_this_rate(looks, spent, self.hours * HOUR, reached)
        return Standing(str(self), f"{spent / HOUR:.3g} hours", reached, evaluations)

    def bounded(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"{self.hours:g} hours"


@dataclass(frozen=True)
class Money(Rule):
    """``amount`` spent at the price of ``per_hour`` for one worker's hour, in any currency. Preparing the model is
    not counted."""

    amount: float
    per_hour: float

    def __post_init__(self) -> None:
        _require_positive("money.amount", self.amount)
        _require_positive("money.per_hour", self.per_hour)

    def reached(self, looks: Sequence[Look]) -> bool:
        return bool(looks) and self._spent(looks) >= self.amount

    def standing(self, looks: Sequence[Look]) -> Standing:
        spent, reached = self._spent(looks) if looks else 0.0, self.reached(looks)
        evaluations = _at_this_rate(looks, spent, self.amount, reached)
        return Standing(str(self), f"{spent:.2f}", reached, evaluations)

    def bounded(self) -> bool:
        return True

    def _spent(self, looks: Sequence[Look]) -> float:
        return looks[-1].worker_seconds / HOUR * self.per_hour

    def __str__(self) -> str:
        return f"{self.amount:g} spent at {self.per_hour:g} an hour"


def _at_this_rate(looks: Sequence[Look], spent: float, wanted: float, reached: bool) -> int | None:
    """How many evaluations ``wanted`` buys if each costs as much as those so far."""
    done = looks[-1].evaluations if looks else 0
    if reached:
        return done
    return max(done, math.floor(done * wanted / spent)) if done and spent > 0 else None


def _require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"stop: {name}: {value}; a positive number is accepted")
