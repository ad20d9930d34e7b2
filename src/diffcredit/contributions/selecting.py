"""Selecting contributors: those with enough images, or a random draw of them."""

from collections import Counter
from collections.abc import Sequence

from diffcredit.contributions.sources import Record
from diffcredit.errors import UserError
from diffcredit.util.seeds import derive_seed


def select(
    records: Sequence[Record], at_least: int, draw: int | None, seed: int
) -> tuple[list[Record], tuple[str, ...]]:
    """Keep contributors with ``at_least`` training images or, with ``draw``, that many of them drawn at random.

    Return the records of those who are kept, and ``name (k images)`` for everybody else, whose held-out images are left
    out too. The draw ranks contributors by a hash of seed and name: it does not depend on what they gave.
    """
    if isinstance(at_least, bool) or not isinstance(at_least, int) or at_least < 1:
        raise UserError(f"at_least: {at_least!r}; a number of images from 1 is accepted")
    if draw is not None and (isinstance(draw, bool) or not isinstance(draw, int) or draw < 2):
        raise UserError(f"draw: {draw!r}; a number of contributors from 2, or null for all, is accepted")
    if at_least == 1 and draw is None:
        return list(records), ()
    counts = Counter(record.contributor for record in records if record.contributor and not record.heldout)
    named = {record.contributor for record in records if record.contributor}
    enough = [name for name in named if counts[name] >= at_least]
    if draw is not None and draw > len(enough):
        raise UserError(
            f"draw: {draw}, but there are {len(enough)} contributors with at least {at_least} images; "
            "at most as many are accepted"
        )
    if len(enough) < 2:
        most = max(counts.values(), default=0)
        raise UserError(
            f"at_least: {at_least} leaves {len(enough)} of {len(counts)} contributors, who gave up to {most} images; "
            "a number that leaves 2 or more is accepted"
        )
    kept = set(sorted(enough, key=lambda name: derive_seed(seed, "draw", name))[:draw])
    left_out = tuple(f"{name} ({counts[name]} image{'s' * (counts[name] != 1)})" for name in sorted(named - kept))
    return [record for record in records if not record.contributor or record.contributor in kept], left_out
