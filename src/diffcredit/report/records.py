"""The records that a report is made from; anybody can fill them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from diffcredit.credit.verdicts import Verdict
from diffcredit.errors import UserError
from diffcredit.validation.presentation.sections import Section

# relative to the largest magnitude involved: far above rounding, far below any interval worth reporting
TOLERANCE = 1e-9
INTERVALS = ("rank_low", "rank_high", "share_low", "share_high", "contrast_half_width")


@dataclass(frozen=True)
class Reference:
    """The reference that contributors are compared with: its ``kind`` in the study file, and its words for readers."""

    kind: str = "untrained"
    words: str = "the untrained network"


UNTRAINED = Reference()


@dataclass(frozen=True)
class Step:
    """A step from F of the reference to F(all): a contributor's credit, or that of several together, with half the
    width of its interval (NaN: unknown)."""

    name: str
    value: float
    half_width: float = math.nan

    @property
    def known(self) -> bool:
        return math.isfinite(self.half_width)


@dataclass(frozen=True)
class CreditTable:
    """Credits of n contributors for one property; tuples are in their order. Bounds that are not finite are unknown."""

    property: str
    title: str
    explanation: str
    higher_is_better: bool
    unit: str
    contributors: tuple[str, ...]
    images: tuple[int, ...]
    credit: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    rank_low: tuple[int, ...]  # the best rank that a contributor may have; 1 helps most
    rank_high: tuple[int, ...]
    share_low: tuple[float, ...]
    """A bound of credit / (F(N) − F(∅)), like ``share_high``."""
    share_high: tuple[float, ...]
    contrast_half_width: tuple[float, ...]  # the half-width of the interval of credit − average
    confidence: float  # a fraction, such as 0.95
    empty: float  # F of the reference; F(∅) in formulas
    full: float  # F(N)
    evaluations: int  # the number that the credits are estimated from
    failed: int  # the number left out because they failed
    method: str
    diagnostics: Mapping[str, float]
    reference: Reference = UNTRAINED
    no_shares: str = ""  # why there are no shares and what to do, in a sentence; empty where there are
    verdict: Verdict | None = None
    matters: tuple[bool, ...] = ()  # whether a contributor's help is large enough to matter; empty where not known
    steps: tuple[Step, ...] = ()  # from F of the reference to F(all), the most helpful first; empty: no waterfall
    differences: tuple[str, str] = ("", "")
    """Sentences of a lower and of a higher value, with ``{}`` for the amount: ``pictures would be {} less vivid``."""
    relative: bool = False  # whether the amount is a part of F(N), and not in the property's unit

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise UserError(f"credits of {self.property!r}: {problem}")

    def _problems(self) -> Iterator[str]:
        n = len(self.contributors)
        if n == 0:
            yield "no contributors; at least one is needed"
        if len(set(self.contributors)) < n:
            yield "a contributor occurs twice; names must be unique"
        optional = ["matters"] if self.matters else []
        for name in ("images", "credit", "low", "high", *INTERVALS, *optional):
            if (length := len(getattr(self, name))) != n:
                yield f"{name} has {length} values, expected {n}"
        for name, values in (("credit", self.credit), ("empty", [self.empty]), ("full", [self.full])):
            if not all(map(math.isfinite, values)):
                yield f"{name} has a value that is not finite"
        for below, above in ("low", "high"), ("rank_low", "rank_high"), ("share_low", "share_high"):
            for contributor, low, high in zip(
                self.contributors, getattr(self, below), getattr(self, above), strict=True
            ):
                if low > high:
                    yield f"{contributor!r} has {below} {low} above {above} {high}"
        if min(self.rank_low) < 1 or max(self.rank_high) > n:
            yield f"a rank's interval leaves the ranks 1 to {n}"
        if not 0 < self.confidence < 1:
            yield f"confidence is {self.confidence}, expected one in (0, 1)"

    @property
    def help(self) -> tuple[float, ...]:
        """Each credit beside the average one, turned so that more is always better."""
        sign = 1 if self.higher_is_better else -1
        return tuple(sign * (credit - self.average) for credit in self.credit)

    @property
    def help_low(self) -> tuple[float, ...]:
        return tuple(help_ - half for help_, half in zip(self.help, self.contrast_half_width, strict=True))

    @property
    def help_high(self) -> tuple[float, ...]:
        return tuple(help_ + half for help_, half in zip(self.help, self.contrast_half_width, strict=True))

    @property
    def shared(self) -> bool:
        """Whether each credit has a share of the total."""
        return not self.no_shares and self.sums_to_total and self.total != 0

    @property
    def total(self) -> float:
        """F(N) − F(∅), the effect of all contributors together."""
        return self.full - self.empty

    @property
    def sum(self) -> float:
        return math.fsum(self.credit)

    @property
    def average(self) -> float:
        """Σ credit / n, which is (F(N) − F(∅)) / n for every method whose credits sum to the total."""
        return self.sum / len(self.credit)

    @property
    def rounding(self) -> float:
        """The tolerance for rounding errors: relative to the largest magnitude of F and of the credits."""
        return TOLERANCE * max(abs(self.empty), abs(self.full), *map(abs, self.credit))

    @property
    def sums_to_total(self) -> bool:
        """Whether Σ credit = F(N) − F(∅) up to rounding, as for Shapley values (efficiency)."""
        return abs(self.sum - self.total) <= self.rounding * len(self.credit)


@dataclass(frozen=True)
class Picture:
    """A PNG with its title and caption, which is also its text alternative."""

    title: str
    caption: str
    png: bytes


@dataclass(frozen=True)
class BaselineRow:
    """A baseline's Spearman correlation with the study's credits, by property; None where it was computed for
    another property, or all its credits are equal. Random rankings have ``ranges``: what 95 % of them reach."""

    name: str
    correlations: Mapping[str, float | None]
    chosen: Mapping[str, float]
    seconds: float
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def words(self, prop: str) -> str:
        """Return the correlation for a property, or the range; empty where there is none."""
        if prop in self.ranges:
            low, high = self.ranges[prop]
            return f"{low:+.2f} to {high:+.2f}".replace("-", "−")
        rho = self.correlations.get(prop)
        return "" if rho is None else f"{rho:+.2f}".replace("-", "−")


@dataclass(frozen=True)
class Agreement:
    """Spearman's correlation between each two of ``names``; None where all credits of one are equal."""

    names: tuple[str, ...]
    correlations: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Given:
    """How many images a contributor gave, and what became of them. The rest of them were used."""

    given: int
    held_out: int = 0
    unreadable: int = 0
    excluded: int = 0  # near-copies

    @property
    def used(self) -> int:
        return self.given - self.held_out - self.unreadable - self.excluded


@dataclass(frozen=True)
class CostRow:
    """A piece of work: its evaluations, where it has any, and its worker ``seconds`` by stage (None: not recorded)."""

    what: str
    done: int | None = None
    failed: int = 0
    seconds: Mapping[str, float] | None = None

    @property
    def total(self) -> float | None:
        return None if self.seconds is None else math.fsum(self.seconds.values())


@dataclass(frozen=True)
class Report:
    """The content of the page."""

    study: str
    created: str
    version: str
    tables: tuple[CreditTable, ...]
    settings: Mapping[str, Any]  # may nest mappings and lists
    cost: tuple[CostRow, ...]
    scope: tuple[str, ...]  # sentences that state what the credits are valid for
    samples: tuple[Picture, ...] = ()
    thumbnails: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    """Square images by contributor, as PNG or WebP."""
    given: Mapping[str, Given] = field(default_factory=dict)  # by contributor; empty where not known
    images: str = ""
    """A sentence: how many images were given, used and held out, and why."""
    missing: tuple[str, ...] = ()  # sentences: what the report could not show, and why
    devices: str = ""
    notes: tuple[str, ...] = ()
    """Sentences that ask the reader for care."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    baselines: tuple[BaselineRow, ...] = ()
    agreement: Agreement | None = None  # how far the baselines agree with each other
    validation: tuple[Section, ...] = ()
    """The evidence for the credits."""

    def __post_init__(self) -> None:
        if not self.tables:
            raise UserError(f"report of {self.study!r}: no credits; at least one property is needed")
        names = [table.property for table in self.tables]
        if len(set(names)) < len(names):
            raise UserError(f"report of {self.study!r}: a property occurs twice among {', '.join(names)}")
