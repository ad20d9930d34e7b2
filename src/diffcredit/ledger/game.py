"""Evaluations as the table of one property, the form from which credits are estimated."""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from diffcredit.ledger.records import Evaluation


@dataclass(frozen=True)
class Game:
    """A property's values for coalitions, and for the two endpoints: nobody's and everybody's model."""

    coalitions: NDArray[np.bool_]
    """(m, n): True where a contributor takes part."""
    values: NDArray[np.float64]
    """(m,)"""
    empty: tuple[float, ...]
    """F of the empty coalition, one value a replicate."""
    full: tuple[float, ...]
    """F of all contributors, one value a replicate."""
    missing: int
    """The number of done evaluations without a value, because measuring failed or was not done."""


USED = ("estimate", "endpoint")
"""The purposes of evaluations that are in a game."""


def values_missing(evaluations: Iterable[Evaluation], prop: str) -> int:
    """Return how many evaluations that would be in a property's game have no value of it."""
    used = (each for each in evaluations if each.status == "done" and each.purpose in USED)
    return sum(all(value.property != prop or value.value is None for value in each.values) for each in used)


def game_of(evaluations: Iterable[Evaluation], prop: str) -> Game:
    """Return a property's game from done evaluations with the purposes ``estimate`` and ``endpoint``, sorted by
    coalition and replicate, so that sums over them do not depend on who finished first."""
    rows: list[tuple[str, float]] = []
    endpoints: dict[bool, list[float]] = {False: [], True: []}
    missing = 0
    ordered = sorted(evaluations, key=attrgetter("coalition", "replicate"))
    for evaluation in ordered:
        if evaluation.status != "done" or evaluation.purpose not in USED:
            continue
        value = None
        for each in evaluation.values:  # a generator takes several times as long
            if each.property == prop:
                value = each.value
        if value is None:
            missing += 1
        elif evaluation.purpose == "endpoint":
            endpoints["1" in evaluation.coalition].append(value)
        else:
            rows.append((evaluation.coalition, value))
    n = len(ordered[0].coalition) if ordered else 0
    members = np.frombuffer("".join(row for row, _ in rows).encode(), np.uint8) == ord("1")
    return Game(
        coalitions=members.reshape(len(rows), n),
        values=np.array([value for _, value in rows], dtype=np.float64),
        empty=tuple(endpoints[False]),
        full=tuple(endpoints[True]),
        missing=missing,
    )
