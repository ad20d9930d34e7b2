"""What validation looks at: retrained models' values, credits that claim to foretell them, and games of recipes.

All values and credits are *helpfulness*: F itself, or −F of a property where lower is better, so that more is better
everywhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from diffcredit.util.arrays import BoolArray, FloatArray


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; bounds that are not finite are not known."""

    value: float
    low: float = float("nan")
    high: float = float("nan")


@dataclass(frozen=True, eq=False)
class Truth:
    """One property of models retrained from scratch on ``coalitions`` (B, n) of one size, ⌊αn⌋ with α = ``share``:
    ``values`` (B, R), column r with each coalition's r-th training seed."""

    share: float
    coalitions: BoolArray
    values: FloatArray


@dataclass(frozen=True, eq=False)
class Contender:
    """Credits (n,) that one method gives. ``category`` is the kind of method (``shapley``, ``banzhaf``,
    ``leave-one-out``, or a baseline's), ``recipe`` the retraining it rests on (empty: none), ``evaluations`` how many
    of it, ``cost`` their time in units of one retraining with its sampling (NaN: not known)."""

    name: str
    category: str
    recipe: str
    credits: FloatArray
    evaluations: int = 0
    cost: float = float("nan")


@dataclass(frozen=True, eq=False)
class RecipeGame:
    """One property's evaluations by one recipe, in the order of the design: ``coalitions`` (m, n) of the design
    ``size_distribution`` with ``values`` (m,); replicates of F(∅) and F(N); the retraining ``method``, the same for
    recipes that differ in their number of training ``steps`` for a coalition (None: it has none) alone; and the seconds
    (m,) that each evaluation took to train and to sample. ``preparation`` is the seconds that were spent before the
    first coalition, such as on pruning and recovery (NaN: not known)."""

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
    preparation: float = float("nan")

    @property
    def seconds(self) -> FloatArray:
        """(m,), of training and sampling."""
        return self.training_seconds + self.sampling_seconds


def by_method(games: Iterable[RecipeGame]) -> list[RecipeGame]:
    """Those of one method beside each other, by their steps; methods as they come, so that they have the same colours
    in all figures."""
    games = list(games)
    methods = list(dict.fromkeys(game.method for game in games))
    return sorted(games, key=lambda game: (methods.index(game.method), game.steps is not None, game.steps or 0))
