"""Contributions: training images with their contributors, read from the places where people keep them."""

from diffcredit.contributions.loading import load_contributions
from diffcredit.contributions.planted import with_copies, with_noise
from diffcredit.contributions.records import Contributions, Duplicate

__all__ = ["Contributions", "Duplicate", "load_contributions", "with_copies", "with_noise"]
