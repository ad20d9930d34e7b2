"""How long a coalition takes with each recipe, and how that grows with the steps. The same for all properties."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from types import MappingProxyType

import numpy as np

from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.statistics.records import RecipeGame, by_method


@dataclass(frozen=True)
class Seconds:
    """The mean, standard deviation (NaN: fewer than two) and median of evaluations' seconds."""

    mean: float
    deviation: float
    median: float


@dataclass(frozen=True, eq=False)
class RecipeRuntime:
    """One recipe's seconds of ``training``, of ``sampling`` and of ``both``, which ``seconds`` has evaluation by
    evaluation. ``speed_up`` is how many times faster it is than a retraining."""

    recipe: str
    method: str
    steps: int | None
    training: Seconds
    sampling: Seconds
    both: Seconds
    seconds: FloatArray
    speed_up: float


@dataclass(frozen=True)
class Growth:
    """Training seconds = ``intercept`` + ``slope``·steps, by least squares over all evaluations of a method's recipes
    of two step counts or more; ``r_squared`` is the explained part of their variance (NaN: they do not vary)."""

    method: str
    slope: float
    intercept: float
    r_squared: float


@dataclass(frozen=True)
class RuntimeResult:
    """Runtimes, the retraining's first, then by method and steps, and each recipe's distinct ``devices``."""

    recipes: tuple[RecipeRuntime, ...]
    growths: tuple[Growth, ...]
    devices: Mapping[str, Sequence[str]]


def mean_of_known(seconds: FloatArray) -> float:
    """Average the finite ones; NaN if there are none."""
    known = seconds[np.isfinite(seconds)]
    return float(known.mean()) if len(known) else nan


def compare_runtimes(
    games: Sequence[RecipeGame], retraining: RecipeGame, devices: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> RuntimeResult:
    """Compare the runtime of every game with that of ``retraining``, and fit how training grows with the steps. Seconds
    that are not finite are unknown and left out. Raises UserError when the retraining's are all unknown or 0."""
    unit = mean_of_known(retraining.seconds)
    if not unit > 0:
        raise UserError(f"runtime: no seconds of {retraining.recipe!r} are known; at least one evaluation is needed")
    ordered = [retraining, *by_method(game for game in games if game.recipe != retraining.recipe)]
    growths = (_growth(method, ordered) for method in dict.fromkeys(game.method for game in ordered))
    recipes = []
    for game in ordered:
        both = _seconds(game.seconds)
        parts = (_seconds(game.training_seconds), _seconds(game.sampling_seconds), both)
        known = game.seconds[np.isfinite(game.seconds)]
        speed_up = unit / both.mean if both.mean > 0 else nan
        recipes.append(RecipeRuntime(game.recipe, game.method, game.steps, *parts, known, speed_up))
    return RuntimeResult(tuple(recipes), tuple(growth for growth in growths if growth is not None), devices)


def _seconds(seconds: FloatArray) -> Seconds:
    known = seconds[np.isfinite(seconds)]
    deviation = float(known.std(ddof=1)) if len(known) > 1 else nan
    return Seconds(mean_of_known(known), deviation, float(np.median(known)) if len(known) else nan)


def _growth(method: str, games: Sequence[RecipeGame]) -> Growth | None:
    points = [
        (float(game.steps), seconds)
        for game in games
        if game.method == method and game.steps is not None
        for seconds in game.training_seconds[np.isfinite(game.training_seconds)]
    ]
    if len({steps for steps, _ in points}) < 2:
        return None
    steps, seconds = map(np.array, zip(*points, strict=True))
    from scipy.stats import linregress  # takes long to import

    fit = linregress(steps, seconds)
    r_squared = float(fit.rvalue**2) if np.ptp(seconds) > 0 else nan
    return Growth(method, float(fit.slope), float(fit.intercept), r_squared)
