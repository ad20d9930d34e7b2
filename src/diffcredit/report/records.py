"""What a report is made of: plain records that anybody can fill."""

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

    ``images``, ``credit``, ``low``, ``high`` and the five after them have length n, in the order of
    ``contributors``. ``rank_low`` and ``rank_high`` are the best and the worst rank (1..n, 1 helps most) that a
    contributor may have; ``share_low`` and ``share_high`` bound credit / (F(N) − F(∅)); ``contrast_half_width`` is
    half the width of the interval of credit − average. A bound that is not finite is not known, or there is none,
    and is shown as such. ``confidence`` is a fraction, e.g. 0.95; ``empty`` is F(∅) and ``full`` is F(N).
    ``evaluations`` counts those the credits rest on and ``failed`` those left out because they failed.
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
    rank_high: tuple[int, ...]
    share_low: tuple[float, ...]
    share_high: tuple[float, ...]
    contrast_half_width: tuple[float, ...]
    confidence: float
    empty: float
    full: float
    evaluations: int
    failed: int
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
    """A ready PNG with its words; the caption doubles as its text alternative."""

    title: str
    caption: str
    png: bytes


@dataclass(frozen=True)
class BaselineRow:
    """A method beside the study's credits: Spearman's correlation for each property; None where the method was for
    another property, or where all its credits are equal."""

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
    """Everything the page says.

    ``thumbnails`` maps a contributor to a PNG strip of their images; ``settings`` may nest mappings and
    lists; ``scope`` says in sentences what the credits hold for, ``notes`` what the reader should beware of;
    ``baselines`` are cheaper methods beside the credits, ``agreement`` how far they agree with each other;
    ``validation`` is the evidence for the credits.
    """

    study: str
    created: str
    version: str
    tables: tuple[CreditTable, ...]
    samples: tuple[Picture, ...]
    thumbnails: Mapping[str, bytes]
    settings: Mapping[str, Any]
    cost: Mapping[str, float | int | str]
    scope: tuple[str, ...]
    notes: tuple[str, ...] = ()
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    baselines: tuple[BaselineRow, ...] = ()
    agreement: Agreement | None = None
    validation: tuple[Section, ...] = ()

    def __post_init__(self) -> None:
        if not self.tables:
            raise UserError(f"report of {self.study!r}: no credits; at least one property is needed")
        names = [table.property for table in self.tables]
        if len(set(names)) < len(names):
            raise UserError(f"report of {self.study!r}: a property occurs twice among {', '.join(names)}")
