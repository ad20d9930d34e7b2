"""Credits from a stretch of one recipe's evaluations."""

from diffcredit.credit import estimate
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.records import RecipeGame

EVERYTHING = slice(None)


def credits_of(game: RecipeGame, estimator: str, rows: slice = EVERYTHING) -> FloatArray:
    """(n,): credits by ``estimator`` from the evaluations ``rows`` of the design and all of the endpoints'.

    Raises UserError where the estimator refuses them, such as too few.
    """
    return estimate(
        game.coalitions[rows],
        game.values[rows],
        empty=game.empty,
        full=game.full,
        method=estimator,
        size_distribution=game.size_distribution,
    ).values
