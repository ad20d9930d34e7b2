"""Contributions: training images with their contributors, read from the places where people keep them."""

from diffcredit.contributions.house import House
from diffcredit.contributions.loading import load_contributions
from diffcredit.contributions.planted import with_copies, with_noise
from diffcredit.contributions.records import HOUSE, Contributions, Duplicate, Excluded, Works

__all__ = [
    "HOUSE",
    "Contributions",
    "Duplicate",
    "Excluded",
    "House",
    "Works",
    "load_contributions",
    "with_copies",
    "with_noise",
]
