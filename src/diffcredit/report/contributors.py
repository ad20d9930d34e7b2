"""The use of the images that contributors gave: how many were used and held out, and why."""

from pathlib import Path
from typing import TYPE_CHECKING

from diffcredit.report.records import Given

if TYPE_CHECKING:
    from diffcredit.contributions import Contributions
    from diffcredit.study.config import StudyConfig


def given_images(contributions: "Contributions") -> dict[str, Given]:
    """Return how many images each contributor gave, and what became of them; empty where that is not known."""
    given, withheld = contributions.given, contributions.withheld
    return {
        name: Given(all_, held_out, all_ - held_out - used)
        for name, all_, held_out, used in zip(
            contributions.contributors, given, withheld, contributions.counts.tolist(), strict=bool(given)
        )
    }


def images_in_words(config: "StudyConfig", contributions: "Contributions") -> str:
    """Return sentences on how many images were given, used, held out and unreadable, and why."""
    n, used = contributions.n, int(contributions.counts.sum())
    found = given_images(contributions).values()
    held_out, unreadable = (sum(getattr(each, what) for each in found) for what in ("held_out", "unreadable"))
    if not found:
        return f"{used:,} images of {n:,} contributors were used."
    parts = [f"{used:,} were used"]
    if held_out:
        parts.append(f"{held_out:,} held out, because {_reason(config)}")
    if unreadable:
        parts.append(f"{unreadable:,} could not be read")
    text = f"{n:,} contributors gave {used + held_out + unreadable:,} images"
    text += " and all were used." if len(parts) == 1 else f": {', '.join(parts[:-1])} and {parts[-1]}."
    if contributions.has_house:
        text += f" {int(contributions.house.sum()):,} house images, credited to nobody, are part of every model."
    if others := len(contributions.heldout) - held_out:
        text += f" {others:,} further images, of nobody, measure the model on what it has not seen."
    if contributions.left_out:
        left = len(contributions.left_out)
        text += f" {left:,} {'contributor was' if left == 1 else 'contributors were'} left out: too few images, or not "
        text += "drawn."
    return text


def _reason(config: "StudyConfig") -> str:
    share = config.contributions.holdout
    if share is None or isinstance(share, Path):
        return "their source keeps them apart to measure models on images that they have not seen"
    return (
        f"the study keeps {100 * share:g} % of everybody's images apart to measure models on images they have not seen"
    )
