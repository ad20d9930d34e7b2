"""The records that a report is made from; anybody can fill them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from diffcredit.errors import UserError
from diffcredit.validation.presentation.sections import Section

INTERVALS = ("rank_low", "rank_high", "share_low", "share_high", "contrast_half_width")


@dataclass(frozen=True)
class CreditTable:
    """The credits of n contributors for one property.

    Tuples have length n, in the order of ``contributors``. A bound that is not finite is unknown or does not exist, and
    is shown as such.
    """

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
    rank_low: tuple[int, ...]
    """The best rank that a contributor may have; 1 helps most."""
    rank_high: tuple[int, ...]
    share_low: tuple[float, ...]
    """A bound of credit / (F(N) − F(∅)), like ``share_high``."""
    share_high: tuple[float, ...]
    contrast_half_width: tuple[float, ...]
    """The half-width of the interval of credit − average."""
    confidence: float
    """A fraction, such as 0.95."""
    empty: float
    """F(∅)"""
    full: float
    """F(N)"""
    evaluations: int
    """The number that the credits are estimated from."""
    failed: int
    """The number left out because they failed."""
    method: str
    diagnostics: Mapping[str, float]

    def __post_init__(self) -> None:
        n = len(self.contributors)
        if n == 0:
            raise UserError(f"credits of {self.property!r}: no contributors; at least one is needed")
        if len(set(self.contributors)) < n:
            raise UserError(f"credits of {self.property!r}: a contributor occurs twice; names must be unique")
        for name in ("images", "credit", "low", "high", *INTERVALS):
            if (length := len(getattr(self, name))) != n:
                raise UserError(f"credits of {self.property!r}: {name} has {length} values, expected {n}")
        for name, values in (("credit", self.credit), ("empty", [self.empty]), ("full", [self.full])):
            if not all(math.isfinite(value) for value in values):
                raise UserError(f"credits of {self.property!r}: {name} has a value that is not finite")
        for bounds in ("low", "high"), ("rank_low", "rank_high"), ("share_low", "share_high"):
            for contributor, low, high in zip(
                self.contributors, *(getattr(self, name) for name in bounds), strict=True
            ):
                if low > high:
                    raise UserError(
                        f"credits of {self.property!r}: {contributor!r} has {bounds[0]} {low} above {bounds[1]} {high}"
                    )
        if min(self.rank_low) < 1 or max(self.rank_high) > n:
            raise UserError(f"credits of {self.property!r}: a rank's interval leaves the ranks 1 to {n}")
        if not 0 < self.confidence < 1:
            raise UserError(f"credits of {self.property!r}: confidence is {self.confidence}, expected one in (0, 1)")


@dataclass(frozen=True)
class Picture:
    """A PNG with its title and caption, which is also its text alternative."""

    title: str
    caption: str
    png: bytes


@dataclass(frozen=True)
class BaselineRow:
    """A baseline's Spearman correlation with the study's credits, by property.

    None where the baseline was computed for another property, or where all its credits are equal.
    """

    name: str
    title: str
    category: str
    correlations: Mapping[str, float | None]
    chosen: Mapping[str, float]
    seconds: float


@dataclass(frozen=True)
class Agreement:
    """Spearman's correlation between each two of ``names``; None where all credits of one are equal."""

    names: tuple[str, ...]
    correlations: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Report:
    """The content of the page."""

    study: str
    created: str
    version: str
    tables: tuple[CreditTable, ...]
    samples: tuple[Picture, ...]
    thumbnails: Mapping[str, bytes]
    """A PNG strip of images by contributor."""
    settings: Mapping[str, Any]
    """May nest mappings and lists."""
    cost: Mapping[str, float | int | str]
    scope: tuple[str, ...]
    """Sentences that state what the credits are valid for."""
    notes: tuple[str, ...] = ()
    """Sentences that ask the reader for care."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    baselines: tuple[BaselineRow, ...] = ()
    agreement: Agreement | None = None
    """How far the baselines agree with each other."""
    validation: tuple[Section, ...] = ()
    """The evidence for the credits."""

    def __post_init__(self) -> None:
        if not self.tables:
            raise UserError(f"report of {self.study!r}: no credits; at least one property is needed")
        names = [table.property for table in self.tables]
        if len(set(names)) < len(names):
            raise UserError(f"report of {self.study!r}: a property occurs twice among {', '.join(names)}")
