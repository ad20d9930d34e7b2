"""Coalitions that two recipes' games share, and credits from a part of a game."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diffcredit.credit import KnownSurrogate, estimate
from diffcredit.util.arrays import BoolArray, FloatArray
from diffcredit.validation.statistics.records import RecipeGame

EVERYTHING = slice(None)


@dataclass(frozen=True, eq=False)
class Shared:
    """The coalitions (k, n) that two games share, with the mean values (k,) of each game and the number (k,) of
    replicates behind the second game's."""

    coalitions: BoolArray
    first: FloatArray
    second: FloatArray
    second_replicates: NDArray[np.intp]


def game_credits(
    game: RecipeGame,
    estimator: str,
    rows: slice = EVERYTHING,
    surrogates: Sequence[KnownSurrogate] | None = None,
) -> FloatArray:
    """Estimate credits (n,) from the evaluations ``rows`` of a game's design, all evaluations of its endpoints, and
    ``surrogates`` known at these rows. Raises UserError where the estimator refuses them, such as too few."""
    return estimate(
        game.coalitions[rows],
        game.values[rows],
        empty=game.empty,
        full=game.full,
        method=estimator,
        size_distribution=game.size_distribution,
        surrogate=surrogates,
    ).values


def replicates_of(game: RecipeGame) -> tuple[BoolArray, list[FloatArray]]:
    """Return the game's distinct coalitions (k, n), neither empty nor full, in the order of their first evaluation,
    and the values of each in the order of evaluation."""
    sizes = game.coalitions.sum(axis=1)
    inner = np.flatnonzero((sizes > 0) & (sizes < game.coalitions.shape[1]))
    rows: dict[bytes, list[int]] = {}
    for row in inner:
        rows.setdefault(game.coalitions[row].tobytes(), []).append(int(row))
    first = [members[0] for members in rows.values()]
    return game.coalitions[first], [game.values[members] for members in rows.values()]


def shared(first: RecipeGame, second: RecipeGame) -> Shared:
    """Match two games by coalition, with replicates averaged, in the first game's order."""
    (coalitions, ours), (others, theirs) = replicates_of(first), replicates_of(second)
    values = {coalition.tobytes(): each for coalition, each in zip(others, theirs, strict=True)}
    rows = [row for row, coalition in enumerate(coalitions) if coalition.tobytes() in values]
    matched = [values[coalitions[row].tobytes()] for row in rows]
    return Shared(
        coalitions[rows],
        np.array([ours[row].mean() for row in rows]),
        np.array([each.mean() for each in matched]),
        np.array([len(each) for each in matched], dtype=np.intp),
    )
