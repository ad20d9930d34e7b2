"""Evaluations as the table of one property's game, the form in which credits are estimated."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diffcredit.ledger.records import Evaluation


@dataclass(frozen=True)
class Game:
    """``coalitions`` (m, n) with their ``values`` (m,); the endpoints' replicates; how many values are lacking
    because measuring failed."""

    coalitions: NDArray[np.bool_]
    values: NDArray[np.float64]
    empty: tuple[float, ...]
    full: tuple[float, ...]
    lacking: int


def game_of(evaluations: Iterable[Evaluation], prop: str) -> Game:
    """The game of a property from done evaluations with the purposes ``estimate`` and ``endpoint``.

    Rows are sorted by coalition and replicate, so that sums over them do not depend on who finished first.
    """
    rows: list[tuple[list[bool], float]] = []
    endpoints: dict[bool, list[float]] = {False: [], True: []}
    lacking = 0
    ordered = sorted(evaluations, key=lambda e: e.key)
    for evaluation in ordered:
        if evaluation.status != "done" or evaluation.purpose not in ("estimate", "endpoint"):
            continue
        value = next((v.value for v in evaluation.values if v.property == prop), None)
        if value is None:
            lacking += 1
        elif evaluation.purpose == "endpoint":
            endpoints["1" in evaluation.coalition].append(value)
        else:
            rows.append(([member == "1" for member in evaluation.coalition], value))
    n = len(ordered[0].coalition) if ordered else 0
    return Game(
        coalitions=np.array([coalition for coalition, _ in rows], dtype=bool).reshape(len(rows), n),
        values=np.array([value for _, value in rows], dtype=np.float64),
        empty=tuple(endpoints[False]),
        full=tuple(endpoints[True]),
        lacking=lacking,
    )
