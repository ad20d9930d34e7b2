"""The records that validation works with.

All values and credits are *helpfulness*: F itself, or −F for a property where lower is better. More is better
everywhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, nan

from diffcredit.credit import KnownSurrogate, estimate
from diffcredit.util.arrays import BoolArray, FloatArray

EVERYTHING = slice(None)
UNCLEAR = "no clear difference"  # the verdict where the interval of a difference contains 0


@dataclass(frozen=True)
class Estimate:
    """A number with its interval. Bounds that are not finite are unknown."""

    value: float
    low: float = nan
    high: float = nan

    def __float__(self) -> float:
        return self.value

    @property
    def bounded(self) -> bool:
        return isfinite(self.low) and isfinite(self.high)


@dataclass(frozen=True, eq=False)
class Truth:
    """One property of models retrained from scratch on held-out ``coalitions`` (B, n) of ⌊αn⌋ members each, α =
    ``share``. Column r of ``values`` (B, R) has each coalition's value with its r-th training seed."""

    share: float
    coalitions: BoolArray
    values: FloatArray


@dataclass(frozen=True, eq=False)
class Contender:
    """Credits (n,) by one method of a ``category``, such as ``shapley``, ``leave-one-out`` or a baseline's, from
    ``evaluations`` by a ``recipe`` (empty: none)."""

    name: str
    category: str
    recipe: str
    credits: FloatArray
    evaluations: int = 0


@dataclass(frozen=True, eq=False)
class RecipeGame:
    """One property's evaluations by one recipe, in the order of the design ``size_distribution``: ``coalitions`` (m, n)
    with ``values`` (m,), and replicates of F(∅) and F(N). Recipes that differ only in ``steps`` (None: it has none)
    share the ``method``. ``preparation``: seconds before the first coalition, such as of pruning (NaN: unknown)."""

    recipe: str
    method: str
    steps: int | None
    size_distribution: str
    coalitions: BoolArray
    values: FloatArray
    empty: tuple[float, ...]
    full: tuple[float, ...]
    training_seconds: FloatArray
    sampling_seconds: FloatArray
    preparation: float = nan

    @property
    def seconds(self) -> FloatArray:
        """(m,): training and sampling."""
        return self.training_seconds + self.sampling_seconds


def by_method(games: Iterable[RecipeGame]) -> list[RecipeGame]:
    """Sort games by method, then by steps. Methods keep their order, and so their colours in all figures."""
    games = list(games)
    methods = list(dict.fromkeys(game.method for game in games))
    return sorted(games, key=lambda game: (methods.index(game.method), game.steps is not None, game.steps or 0))


def game_credits(
    game: RecipeGame, estimator: str, rows: slice = EVERYTHING, surrogates: Sequence[KnownSurrogate] | None = None
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
