"""The use of the images that contributors gave: how many were used and held out, and why."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from diffcredit.report.records import Given

if TYPE_CHECKING:
    from diffcredit.contributions import Contributions
    from diffcredit.study.config import StudyConfig


def given_images(contributions: "Contributions") -> dict[str, Given]:
    """Return how many images each contributor, all their lots together, gave, and what became of them; empty where that
    is not known."""
    used, excluded = _used(contributions), Counter(each.contributor for each in contributions.excluded)
    given, withheld = contributions.given, contributions.withheld
    return {
        name: Given(all_, held_out, all_ - held_out - used[name] - excluded[name], excluded[name])
        for name, all_, held_out in zip(contributions.givers, given, withheld, strict=bool(given))
    }


def _used(contributions: "Contributions") -> Counter[str]:
    """Return how many images of each contributor, all lots together, are trained on."""
    used: Counter[str] = Counter()
    for player, count in zip(contributions.contributors, contributions.counts.tolist(), strict=True):
        used[contributions.whose.get(player, player)] += count
    return used


def images_in_words(config: "StudyConfig", contributions: "Contributions") -> str:
    """Return sentences on how many images were given, used, held out and unreadable, and why."""
    n, used = len(contributions.givers), int(contributions.counts.sum())
    found = given_images(contributions).values()
    held_out, unreadable, excluded = (
        sum(getattr(each, what) for each in found) for what in ("held_out", "unreadable", "excluded")
    )
    if not found:
        return f"{used:,} images of {n:,} contributors were used."
    parts = [f"{used:,} were used"]
    if held_out:
        parts.append(f"{held_out:,} held out, because {_reason(config)}")
    if excluded:
        parts.append(f"{excluded:,} left out as near-copies")
    if unreadable:
        parts.append(f"{unreadable:,} could not be read")
    text = f"{n:,} contributors gave {used + held_out + excluded + unreadable:,} images"
    text += " and all were used." if len(parts) == 1 else f": {', '.join(parts[:-1])} and {parts[-1]}."
    if contributions.accounts:
        text += f" {_accounts_in_words(contributions)}"
    if contributions.lot:
        rests = contributions.n - int(contributions.whole_lots.sum())
        text += f" What is credited are lots of {contributions.lot} images of one contributor each"
        text += f", and {rests:,} smaller rests." if rests > 1 else ", and a smaller rest." if rests else "."
    if contributions.has_house:
        text += f" {int(contributions.house.sum()):,} house images, credited to nobody, are part of every model."
    if others := len(contributions.heldout) - held_out:
        text += f" {others:,} further images, of nobody, measure the model on what it has not seen."
    if contributions.left_out:
        left = len(contributions.left_out)
        text += f" {left:,} {'contributor was' if left == 1 else 'contributors were'} left out: too few images, "
        text += "nothing but near-copies, or not drawn." if contributions.near_copies else "or not drawn."
    return text


def _accounts_in_words(contributions: "Contributions") -> str:
    merged = {person: accounts for person, accounts in contributions.accounts.items() if len(accounts) > 1}
    count = sum(map(len, merged.values()))
    people = "one of them" if len(merged) == 1 else f"{len(merged):,} of them"
    return f"{count:,} accounts are {people}." if merged else ""


def _reason(config: "StudyConfig") -> str:
    share = config.contributions.holdout
    if share is None or isinstance(share, Path):
        return "their source keeps them apart to measure models on images that they have not seen"
    return (
        f"the study keeps {100 * share:g} % of everybody's images apart to measure models on images they have not seen"
    )
