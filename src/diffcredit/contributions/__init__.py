"""Contributions: training images with their contributors, read from the places where people keep them."""

from diffcredit.contributions.house import House
from diffcredit.contributions.loading import load_contributions
from diffcredit.contributions.near_copies.records import Lookalike, NearCopies, NearCopy, NearCopyRule
from diffcredit.contributions.near_copies.rules import lookalikes_of, near_copies_of
from diffcredit.contributions.planted import with_copies, with_noise
from diffcredit.contributions.records import HOUSE, Contributions, Duplicate, Excluded, Works

__all__ = [
    "HOUSE",
    "Contributions",
    "Duplicate",
    "Excluded",
    "House",
    "Lookalike",
    "NearCopies",
    "NearCopy",
    "NearCopyRule",
    "Works",
    "load_contributions",
    "lookalikes_of",
    "near_copies_of",
    "with_copies",
    "with_noise",
]
