"""Near-copies among contributions: reported, or counted once by a rule.

Whatever the rule, of a contributor's own near-copies one stays, and no contributor is credited for a near-copy of a
house image: it is in every model without them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions.near_copies.dates import KEY, date_of, dates_file, read_dates
from diffcredit.contributions.near_copies.finding import DISTANCE, Pairs, find_pairs
from diffcredit.contributions.near_copies.groups import close_classes, grouped, interchangeable
from diffcredit.contributions.near_copies.lookalikes import lookalikes
from diffcredit.contributions.near_copies.records import Credit, Lookalike, NearCopies, NearCopy, NearCopyRule
from diffcredit.contributions.near_copies.sharing import shared_evenly
from diffcredit.contributions.near_copies.stated import UNKNOWN, with_stated
from diffcredit.contributions.records import HOUSE, THE_HOUSE, Contributions, Excluded
from diffcredit.errors import UserError
from diffcredit.util.progress import Progress, silent
from diffcredit.util.seeds import derive_seed

NOBODY = "held out"

# Statements show these to the contributor, after a number of images.
EARLIER = "left out as near-copies of earlier images"
OTHERS = "left out as near-copies, counted once for another contributor"
NOBODYS = "credited to nobody, because several contributors gave near-copies"
OWN = "left out as near-copies among the contributor's own images"
OF_HOUSE = "left out as near-copies of house images"

_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class _Decision:
    """Of one group: the image that ``stays``, whether it joins the house, and why each other one does not count."""

    stays: int
    reasons: Mapping[int, str]
    to_house: bool = False


def near_copies_of(contributions: Contributions, distance: int = DISTANCE, progress: Progress = silent) -> NearCopies:
    """Return the near-copies among ``contributions``, whose hashes differ in at most ``distance`` bits."""
    pairs = _pairs(contributions, distance, progress)
    found = grouped(_house_first(contributions), pairs.class_of, close_classes(pairs), alone=_house(contributions))
    decisions = [_Decision(group[0], dict.fromkeys(group[1:], "")) for group in found]
    return _reported(contributions, pairs, decisions, None, distance)


def lookalikes_of(contributions: Contributions, vectors: NDArray[np.float32]) -> tuple[Lookalike, ...]:
    """Return the pairs of training images that only their features ``vectors`` (m, d) show; see :mod:`.lookalikes`.
    Pairs that are near-copies are left out."""
    pairs, names = _pairs(contributions, DISTANCE), contributions.names
    close, givers = close_classes(pairs), [contributions.giver(image) for image in range(len(names))]
    found = []
    for one, two, margin in lookalikes(vectors, givers):
        classes = pairs.class_of[one], pairs.class_of[two]
        if classes[1] not in close.get(classes[0], (classes[0],)):
            found.append(Lookalike(names[one], givers[one], names[two], givers[two], margin))
    return tuple(found)


def without_near_copies(
    contributions: Contributions,
    rule: NearCopyRule,
    *,
    images: Path | None,
    heldout_givers: Sequence[str | None],
    seed: int,
    progress: Progress = silent,
) -> Contributions:
    """Return ``contributions``, not yet in lots, with every group of near-copies counted once by ``rule``.

    Contributors of whom nothing stays are left out, their held-out images too. ``images`` is the place of the images,
    which may have their dates; ``heldout_givers`` who gave each held-out image. ``seed`` decides who comes first where
    several ways to ``split`` are as even.
    """
    if rule.credit == "house" and not contributions.has_house:
        raise UserError(
            "near_copies.credit: 'house', but there are no house images; name some under house, or first or split is "
            "accepted"
        )
    pairs, stated = _pairs(contributions, rule.distance, progress), 0
    if rule.pairs is not None:
        pairs, stated = with_stated(pairs, Path(rule.pairs), contributions.names)
    if rule.credit == "first":
        decisions = _first(contributions, pairs, rule, images)
    elif rule.credit == "split":
        decisions = _split(contributions, pairs, seed)
    else:
        decisions = _to_house(contributions, pairs)
    found = replace(_reported(contributions, pairs, decisions, rule.credit, rule.distance), stated=stated)
    return _applied(contributions, decisions, found, heldout_givers)


def _first(contributions: Contributions, pairs: Pairs, rule: NearCopyRule, images: Path | None) -> list[_Decision]:
    """The image with the earliest date stays."""
    file, close = dates_file(rule.dates, images), close_classes(pairs)
    dates, names = read_dates(file, rule.date), contributions.names
    for image in _between_contributors(contributions, pairs, close):
        date_of(names[image], dates, file, rule.date)
    house = _house(contributions)
    order = sorted(
        range(len(names)), key=lambda image: (image not in house, dates.get(names[image], _LATEST), names[image])
    )
    decisions = []
    for group in grouped(order, pairs.class_of, close, alone=house):
        first, giver = group[0], contributions.giver(group[0])
        for image in group[1:]:
            if (
                first not in house
                and contributions.giver(image) != giver
                and dates[names[image]] == dates[names[first]]
            ):
                raise UserError(
                    f"{KEY}: {file}: {names[first]} and {names[image]} are near-copies by two contributors with the "
                    f"same {rule.date}, {dates[names[first]].isoformat()}; different dates are accepted"
                )
        decisions.append(_decision(contributions, group, first, EARLIER))
    return decisions


def _split(contributions: Contributions, pairs: Pairs, seed: int) -> list[_Decision]:
    """Contributors are credited for like numbers of the images that several of them gave."""
    house, close = _house(contributions), close_classes(pairs)
    class_of = pairs.class_of[: len(contributions.names)]
    groups = grouped(_house_first(contributions), class_of, close, alone=house)
    able = interchangeable(groups, class_of, close, house)
    shared = [(group, images) for group, images in zip(groups, able, strict=True) if group[0] not in house]
    rank = {name: derive_seed(seed, "near-copies", name) for name in contributions.contributors}
    credited = shared_evenly([frozenset(map(contributions.giver, images)) for _, images in shared], rank)
    stays = {
        group[0]: next(image for image in images if contributions.giver(image) == name)
        for (group, images), name in zip(shared, credited, strict=True)
    }
    return [_decision(contributions, group, stays.get(group[0], group[0]), OTHERS) for group in groups]


def _to_house(contributions: Contributions, pairs: Pairs) -> list[_Decision]:
    """What several contributors gave is credited to nobody."""
    decisions = []
    house = _house(contributions)
    for group in grouped(_house_first(contributions), pairs.class_of, close_classes(pairs), alone=house):
        if group[0] in house or len({contributions.giver(image) for image in group}) == 1:
            decisions.append(_decision(contributions, group, group[0], OWN))
        else:
            decisions.append(_Decision(group[0], dict.fromkeys(group, NOBODYS), to_house=True))
    return decisions


def _decision(contributions: Contributions, group: Sequence[int], stays: int, others: str) -> _Decision:
    """Return the decision that one image of a group stays; ``others`` is the reason for images by other people."""
    giver = contributions.giver(stays)
    if giver == THE_HOUSE:
        return _Decision(stays, dict.fromkeys(group[1:], OF_HOUSE))
    reasons = {image: OWN if contributions.giver(image) == giver else others for image in group if image != stays}
    return _Decision(stays, reasons)


def _between_contributors(contributions: Contributions, pairs: Pairs, close: Mapping[int, Iterable[int]]) -> list[int]:
    """Return the images of which another contributor gave a near-copy, but for those of house images."""
    givers: dict[int, set[str]] = {}
    for image in range(len(contributions.names)):
        givers.setdefault(pairs.class_of[image], set()).add(contributions.giver(image))
    found = []
    for image in range(len(contributions.names)):
        own = pairs.class_of[image]
        near = set().union(*(givers.get(number, ()) for number in close.get(own, (own,))))
        if len(near) > 1 and THE_HOUSE not in near:
            found.append(image)
    return found


def _pairs(contributions: Contributions, distance: int, progress: Progress = silent) -> Pairs:
    return find_pairs([*contributions.images, *contributions.heldout], distance, progress)


def _house(contributions: Contributions) -> frozenset[int]:
    return frozenset(np.flatnonzero(contributions.house).tolist())


def _house_first(contributions: Contributions) -> list[int]:
    return sorted(range(len(contributions.names)), key=lambda image: not contributions.house[image])


def _reported(
    contributions: Contributions, pairs: Pairs, decisions: Sequence[_Decision], credit: Credit | None, distance: int
) -> NearCopies:
    """Return what was found and decided."""
    likeness = {
        (one, two): (bits, turned)
        for one, two, bits, turned in zip(
            *(column.tolist() for column in (pairs.one, pairs.two, pairs.distance, pairs.mirrored)), strict=True
        )
    }

    def copy(image: int, name: str, giver: str, original: int, done: str) -> NearCopy:
        key = sorted((pairs.class_of[image], pairs.class_of[original]))
        bits, turned = likeness.get((key[0], key[1]), (0, False))
        distance = None if bits == UNKNOWN else bits
        return NearCopy(
            name, giver, contributions.names[original], contributions.giver(original), distance, turned, done
        )

    copies = [
        copy(image, contributions.names[image], contributions.giver(image), each.stays, why)
        for each in decisions
        for image, why in each.reasons.items()
        if image != each.stays
    ]
    return NearCopies(
        credit,
        distance,
        tuple(sorted(copies, key=lambda each: each.giver == each.original_giver)),
        tuple(_heldout(contributions, pairs, decisions, copy)),
    )


def _heldout(
    contributions: Contributions,
    pairs: Pairs,
    decisions: Sequence[_Decision],
    copy: Callable[[int, str, str, int, str], NearCopy],
) -> Iterable[NearCopy]:
    """Yield the held-out images that are near-copies of images that are trained on."""
    close, m = close_classes(pairs), len(contributions.names)
    gone = {image for each in decisions for image, why in each.reasons.items() if why and image != each.stays}
    first: dict[int, int] = {}
    for image in range(m):
        if image not in gone:
            first.setdefault(pairs.class_of[image], image)
    for row in range(len(contributions.heldout)):
        number = pairs.class_of[m + row]
        near = [first[each] for each in sorted(close.get(number, (number,))) if each in first]
        if near:
            name = contributions.heldout_names[row] if contributions.heldout_names else f"held-out image {row + 1}"
            yield copy(m + row, name, NOBODY, near[0], "")


def _applied(
    contributions: Contributions,
    decisions: Sequence[_Decision],
    found: NearCopies,
    heldout_givers: Sequence[str | None],
) -> Contributions:
    """Return what stays of ``contributions``."""
    names, owner = contributions.names, contributions.owner.copy()
    excluded = []
    gone: set[int] = set()
    for each in decisions:
        for image, why in each.reasons.items():
            counterpart = "" if image == each.stays else names[each.stays]
            excluded.append(Excluded(names[image], contributions.giver(image), why, counterpart))
        gone.update(image for image in each.reasons if image != each.stays)
        if each.to_house:
            owner[each.stays] = HOUSE
    rows = np.array([image for image in range(len(names)) if image not in gone], dtype=np.int64)
    stay = [place for place in range(contributions.n) if (owner[rows] == place).any()]
    people = tuple(contributions.contributors[place] for place in stay)
    if len(people) < 2:
        left = f"{people[0]!r} alone" if people else "nobody"
        raise UserError(f"near_copies: {left} has images that are credited; at least 2 contributors are accepted")
    place_of = {old: new for new, old in enumerate(stay)} | {HOUSE: HOUSE}
    lost = sorted({*contributions.contributors} - {*people})
    counts = Counter(each.contributor for each in excluded)
    seen = [row for row, giver in enumerate(heldout_givers) if giver not in lost]
    captions, heldout_captions = contributions.captions, contributions.heldout_captions
    return replace(
        contributions,
        images=contributions.images[rows],
        owner=np.array([place_of[old] for old in owner[rows].tolist()], dtype=np.int64),
        contributors=people,
        names=tuple(names[row] for row in rows),
        captions=None if captions is None else tuple(captions[row] for row in rows),
        heldout=contributions.heldout[seen],
        heldout_names=tuple(contributions.heldout_names[row] for row in seen),
        heldout_captions=None if heldout_captions is None else tuple(heldout_captions[row] for row in seen),
        left_out=contributions.left_out
        + tuple(f"{name} ({counts[name]} image{'s' * (counts[name] != 1)}, all near-copies)" for name in lost),
        given=tuple(contributions.given[place] for place in stay),
        withheld=tuple(contributions.withheld[place] for place in stay),
        accounts={person: accounts for person, accounts in contributions.accounts.items() if person not in lost},
        excluded=tuple(sorted(excluded, key=lambda each: each.name)),
        near_copies=found,
    )
