"""Coalitions that two recipes' games share, and credits from a part of a game."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diffcredit.credit import estimate
from diffcredit.util.arrays import BoolArray, FloatArray
from diffcredit.validation.statistics.records import RecipeGame

EVERYTHING = slice(None)


@dataclass(frozen=True, eq=False)
class Replicates:
    """Distinct coalitions (k, n), neither empty nor full, in the order of their first evaluation, each with its
    values in the order of evaluation."""

    coalitions: BoolArray
    values: tuple[FloatArray, ...]

    @property
    def means(self) -> FloatArray:
        """(k,)"""
        return np.array([replicates.mean() for replicates in self.values])


@dataclass(frozen=True, eq=False)
class Shared:
    """The coalitions (k, n) that two games share, with the mean values (k,) of each game and the number (k,) of
    replicates behind the second game's."""

    coalitions: BoolArray
    first: FloatArray
    second: FloatArray
    second_replicates: NDArray[np.intp]

    @property
    def sizes(self) -> NDArray[np.intp]:
        """(k,)"""
        return self.coalitions.sum(axis=1)


def game_credits(game: RecipeGame, estimator: str, rows: slice = EVERYTHING) -> FloatArray:
    """Estimate credits (n,) from the evaluations ``rows`` of a game's design, and all evaluations of its endpoints.

    Raises UserError where the estimator refuses them, for example because they are too few.
    """
    return estimate(
        game.coalitions[rows],
        game.values[rows],
        empty=game.empty,
        full=game.full,
        method=estimator,
        size_distribution=game.size_distribution,
    ).values


def replicates_of(game: RecipeGame) -> Replicates:
    """Group a game's values by coalition."""
    sizes = game.coalitions.sum(axis=1)
    inner = np.flatnonzero((sizes > 0) & (sizes < game.coalitions.shape[1]))
    rows: dict[bytes, list[int]] = {}
    for row in inner:
        rows.setdefault(game.coalitions[row].tobytes(), []).append(int(row))
    first = [members[0] for members in rows.values()]
    return Replicates(game.coalitions[first], tuple(game.values[members] for members in rows.values()))


def shared(first: RecipeGame, second: RecipeGame) -> Shared:
    """Match two games by coalition, with replicates averaged, in the first game's order."""
    one, other = replicates_of(first), replicates_of(second)
    place = {coalition.tobytes(): row for row, coalition in enumerate(other.coalitions)}
    pairs = [
        (row, place[coalition.tobytes()])
        for row, coalition in enumerate(one.coalitions)
        if coalition.tobytes() in place
    ]
    rows, others = ([pair[k] for pair in pairs] for k in (0, 1))
    return Shared(
        one.coalitions[rows],
        one.means[rows],
        other.means[others],
        np.array([len(other.values[row]) for row in others], dtype=np.intp),
    )
