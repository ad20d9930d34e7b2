"""Near-copies put into groups, each around the image that stays.

Likeness is not passed on: where A is like B and B like C, A and C may be two works. So a group has its first image and
those that are near-copies of that one, and no chains. Where any image of a group may be the one that stays, all must be
near-copies of one another (``mutual``).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from diffcredit.contributions.near_copies.finding import Pairs


def close_classes(pairs: Pairs) -> dict[int, frozenset[int]]:
    """Return the classes that each class is a near-copy of, itself among them; only those that have any."""
    close: defaultdict[int, set[int]] = defaultdict(set)
    for one, two in zip(pairs.one.tolist(), pairs.two.tolist(), strict=True):
        close[one] |= {one, two}
        close[two] |= {one, two}
    return {number: frozenset(others) for number, others in close.items()}


def grouped(
    order: Sequence[int],
    class_of: Sequence[int],
    close: Mapping[int, Collection[int]],
    *,
    alone: Collection[int] = (),
    mutual: bool = False,
) -> list[list[int]]:
    """Return the groups of two images or more among those in ``order``, each in that order. Its first image is the
    earliest that is in no group before. Those that stand ``alone`` begin groups and join none."""
    place = {image: number for number, image in enumerate(order)}
    members: defaultdict[int, list[int]] = defaultdict(list)
    for image in order:
        members[class_of[image]].append(image)
    taken: set[int] = set()
    groups = []
    for first in order:
        if first in taken:
            continue
        near = close.get(class_of[first], (class_of[first],))
        found = sorted((image for number in near for image in members[number]), key=place.__getitem__)
        free = [image for image in found if image != first and image not in taken and image not in alone]
        group = [first, *(_mutual(class_of[first], free, class_of, close) if mutual else free)]
        taken.update(group)
        if len(group) > 1:
            groups.append(group)
    return groups


def _mutual(
    first: int, images: Iterable[int], class_of: Sequence[int], close: Mapping[int, Collection[int]]
) -> list[int]:
    """Return those of ``images`` that are near-copies of all before them."""
    kept, classes = [], {first}
    for image in images:
        number = class_of[image]
        if classes <= {number, *close.get(number, ())}:
            kept.append(image)
            classes.add(number)
    return kept
