"""Near-copies put into groups, each around the image that stays.

Likeness is not passed on: where A is like B and B like C, A and C may be two works. So a group has its first image and
those that are near-copies of that one, and no chains. Another image may stay in its place where it is a near-copy of
the same images and of no others: however it is decided, no two images that stay are near-copies of one another.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

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
        group = [first, *free]
        taken.update(group)
        if len(group) > 1:
            groups.append(group)
    return groups


def interchangeable(
    groups: Sequence[Sequence[int]],
    class_of: Sequence[int],
    close: Mapping[int, Collection[int]],
    alone: Collection[int] = (),
) -> list[list[int]]:
    """Return of each of the ``groups``, in the order in which they were made, the images that may stay: the first, and
    those that are near-copies of all others and of nothing else but images of earlier groups and ``alone``."""
    members: defaultdict[int, list[int]] = defaultdict(list)
    for image, number in enumerate(class_of):
        members[number].append(image)
    gone, found = set(alone), []
    for group in groups:
        own = set(group)
        near = {
            image: {other for number in close.get(class_of[image], (class_of[image],)) for other in members[number]}
            for image in group
        }
        found.append([image for image in group if image == group[0] or near[image] - gone == own])
        gone |= own
    return found
