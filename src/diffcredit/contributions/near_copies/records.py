"""The rule for near-copies that a study states, and what was found."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from diffcredit.contributions.near_copies.finding import DISTANCE
from diffcredit.errors import UserError

Credit = Literal["first", "split", "house"]
CREDITS: tuple[Credit, ...] = ("first", "split", "house")
MOST_DISTANCE = 16  # bits: beyond, too many pairs are proposed


@dataclass(frozen=True)
class NearCopyRule:
    """Who is credited where several contributors gave near-copies of one image: whoever has the earliest date
    (``first``), each of them for like numbers of images (``split``), or nobody (``house``)."""

    credit: Credit
    dates: str | Path | None = None
    """For ``first``: a CSV or JSON lines file with the columns ``file_name`` and ``date``; None: the images' own
    ``metadata.csv`` or ``metadata.jsonl``."""
    date: str = "date"
    """The column of the dates."""
    distance: int = DISTANCE
    """In how many bits of 64 the hashes of near-copies may differ."""
    pairs: str | Path | None = None
    """A CSV or JSON lines file of pairs that a person found, with the columns ``file_name`` and ``copy_of``."""

    def __post_init__(self) -> None:
        if self.credit not in CREDITS:
            raise UserError(f"near_copies.credit: {self.credit!r}; {', '.join(CREDITS)} are accepted")
        if isinstance(self.distance, bool) or not 0 <= self.distance <= MOST_DISTANCE:
            raise UserError(f"near_copies.distance: {self.distance!r}; 0 to {MOST_DISTANCE} bits are accepted")
        if self.credit != "first" and self.dates is not None:
            raise UserError(f"near_copies.dates: {self.dates}; dates are accepted with credit: first alone")


@dataclass(frozen=True)
class NearCopy:
    """An image, and the one of which it is a near-copy."""

    name: str
    giver: str
    original: str
    """The name of the image that stays; without a rule, of the first of its group."""
    original_giver: str
    distance: int | None
    """In how many bits of 64 their hashes differ; 0 where the pixels are the same, None where a person found them."""
    mirrored: bool
    done: str = ""
    """What the rule did with the image; empty without a rule."""


@dataclass(frozen=True)
class NearCopies:
    """The near-copies among contributions."""

    credit: Credit | None
    """The rule that was applied; None where they are only reported."""
    distance: int
    copies: tuple[NearCopy, ...]
    """Those of training images, first between contributors, then of a contributor's own."""
    heldout: tuple[NearCopy, ...]
    """Held-out images that are near-copies of training images: each with one of these."""
    stated: int = 0
    """How many pairs a person found, in the rule's file."""

    @property
    def between(self) -> int:
        """How many of ``copies`` are of somebody else's image."""
        return sum(each.giver != each.original_giver for each in self.copies)


@dataclass(frozen=True)
class Lookalike:
    """Two images that features find alike, by how much they stand out (``margin``)."""

    one: str
    one_giver: str
    two: str
    two_giver: str
    margin: float
