"""Works that several people gave, divided among them one by one, as evenly as can be.

Of each work, every one of its k givers is due 1/k. The dues of a person, summed over all works, are met but for the
fraction of one work: everybody gets their sum rounded down or up. That is always possible, because where a division
into parts exists, one into whole works between the same bounds does too (flows with whole bounds have whole solutions).
"""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil, floor


def shared_evenly(works: Sequence[frozenset[str]], rank: Mapping[str, int]) -> list[str]:
    """Return to whom each of ``works``, the set of those who gave it, goes. Where several divisions are as even,
    ``rank`` decides, which has a number for each person."""
    dues: defaultdict[str, Fraction] = defaultdict(Fraction)
    for givers in works:
        for giver in givers:
            dues[giver] += Fraction(1, len(givers))
    found: list[str | None] = [None] * len(works)
    held: defaultdict[str, set[int]] = defaultdict(set)
    for most in ({giver: floor(due) for giver, due in dues.items()}, {giver: ceil(due) for giver, due in dues.items()}):
        for work in range(len(works)):
            if found[work] is None:
                _give(work, works, found, held, most, rank)
    return [giver for giver in found if giver is not None]


def _give(
    work: int,
    works: Sequence[frozenset[str]],
    found: list[str | None],
    held: Mapping[str, set[int]],
    most: Mapping[str, int],
    rank: Mapping[str, int],
) -> None:
    """Give a work to one of its givers such that nobody has over ``most``; others may hand on works to one another for
    that. Where it is not possible, leave it."""
    waiting = deque(_by_need(works[work], held, most, rank))
    via: dict[str, tuple[int, str | None]] = dict.fromkeys(waiting, (work, None))
    while waiting:
        giver = waiting.popleft()
        if len(held[giver]) < most[giver]:
            _hand_on(giver, via, found, held)
            return
        for own in sorted(held[giver]):
            for other in _by_need(works[own], held, most, rank):
                if other not in via:
                    via[other] = (own, giver)
                    waiting.append(other)


def _hand_on(
    giver: str | None, via: Mapping[str, tuple[int, str | None]], found: list[str | None], held: Mapping[str, set[int]]
) -> None:
    while giver is not None:
        work, before = via[giver]
        found[work] = giver
        held[giver].add(work)
        if before is not None:
            held[before].remove(work)
        giver = before


def _by_need(
    givers: frozenset[str], held: Mapping[str, set[int]], most: Mapping[str, int], rank: Mapping[str, int]
) -> list[str]:
    """Return ``givers``, first who has the smallest part of what is due."""
    have = Counter({giver: len(held[giver]) for giver in givers})
    return sorted(givers, key=lambda giver: (Fraction(have[giver], most[giver] or 1), rank[giver]))
