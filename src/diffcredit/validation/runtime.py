"""How long a coalition takes with each recipe, and how that grows with the steps. The same for all properties."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from types import MappingProxyType

import numpy as np
from scipy.stats import linregress

from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.figures import Series, boxes, curves
from diffcredit.validation.records import Estimate, RecipeGame, by_method
from diffcredit.validation.sections import Figure, Section, Table

MINUTE = 60.0
# Retrainings longer than this are told in minutes.
LONG = 120.0
# Where the mean is so many times the median, a few evaluations took far longer.
UNEVEN = 1.1


@dataclass(frozen=True)
class Spell:
    """Seconds that evaluations took: their mean, standard deviation (NaN: of fewer than two) and median."""

    mean: float
    deviation: float
    median: float


@dataclass(frozen=True, eq=False)
class RecipeRuntime:
    """Seconds an evaluation, over ``evaluations`` of them: ``training``, ``sampling`` and both, each also evaluation
    by evaluation (``seconds``, both). ``speed_up`` is how many times faster than a retraining."""

    recipe: str
    method: str
    steps: int | None
    evaluations: int
    training: Spell
    sampling: Spell
    both: Spell
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
class Runtime:
    """By method and steps; ``retraining`` is the recipe that the others are compared with."""

    retraining: str
    recipes: tuple[RecipeRuntime, ...]
    growths: tuple[Growth, ...]


def mean_of_known(seconds: FloatArray) -> float:
    """The mean of those that are finite; NaN of none."""
    known = seconds[np.isfinite(seconds)]
    return float(known.mean()) if len(known) else nan


def runtime(games: Sequence[RecipeGame], retraining: RecipeGame) -> Runtime:
    """Runtimes of ``retraining``, by recipe and growth, and of every other game. Seconds that are not finite are not
    known, and left out. Raises UserError when those of the retraining are all unknown or zero."""
    unit = mean_of_known(retraining.seconds)
    if not unit > 0:
        raise UserError(f"runtime: no seconds of {retraining.recipe!r} are known; at least one evaluation is needed")
    others = [game for game in games if game.recipe != retraining.recipe]
    ordered = [retraining, *by_method(others)]
    growths = (_growth(method, ordered) for method in dict.fromkeys(game.method for game in ordered))
    return Runtime(
        retraining.recipe,
        tuple(_recipe(game, unit) for game in ordered),
        tuple(growth for growth in growths if growth is not None),
    )


def _recipe(game: RecipeGame, unit: float) -> RecipeRuntime:
    seconds = game.seconds[np.isfinite(game.seconds)]
    both = _spell(seconds)
    return RecipeRuntime(
        game.recipe,
        game.method,
        game.steps,
        len(seconds),
        _spell(game.training_seconds),
        _spell(game.sampling_seconds),
        both,
        seconds,
        unit / both.mean if both.mean > 0 else nan,
    )


def _spell(seconds: FloatArray) -> Spell:
    known = seconds[np.isfinite(seconds)]
    deviation = float(known.std(ddof=1)) if len(known) > 1 else nan
    return Spell(mean_of_known(known), deviation, float(np.median(known)) if len(known) else nan)


def _growth(method: str, games: Sequence[RecipeGame]) -> Growth | None:
    mine = [game for game in games if game.method == method and game.steps is not None]
    seconds = np.concatenate([game.training_seconds for game in mine]) if mine else np.empty(0)
    steps = np.concatenate([np.full(len(game.values), float(game.steps or 0)) for game in mine] or [np.empty(0)])
    known = np.isfinite(seconds)
    if len(np.unique(steps[known])) < 2:
        return None
    fit = linregress(steps[known], seconds[known])
    return Growth(
        method, float(fit.slope), float(fit.intercept), float(fit.rvalue**2) if np.ptp(seconds[known]) > 0 else nan
    )


def runtime_section(result: Runtime, devices: Mapping[str, Sequence[str]] = MappingProxyType({})) -> Section:
    """``devices``: for each recipe, the different devices that its evaluations ran on."""
    unit, name = (MINUTE, "min") if result.recipes[0].both.mean > LONG else (1.0, "s")
    figures = [_box_figure(result, unit, name)]
    if result.growths:
        figures.append(_growth_figure(result, unit, name))
    return Section(
        "runtime",
        "Runtime of one coalition",
        tuple(_summary(result)),
        tuple([_table(result, unit, name)] + ([_growth_table(result)] if result.growths else [])),
        tuple(figures),
        caveats=(*_uneven_caveats(result), *_device_caveats(result, devices)),
    )


def _summary(result: Runtime) -> list[str]:
    first = result.recipes[0]
    sentences = [
        f"{first.recipe}: {_words(first.training.mean)} of training and {_words(first.sampling.mean)} of sampling a "
        "coalition."
    ]
    for each in result.recipes[1:]:
        if isfinite(each.speed_up):
            sentences.append(
                f"{each.recipe}: {_words(each.training.mean)} of training and {_words(each.sampling.mean)} of "
                f"sampling, {each.speed_up:.3g} times as fast as {first.recipe}."
            )
        else:
            sentences.append(f"{each.recipe}: its seconds are not known.")
    return sentences


def _words(seconds: float) -> str:
    return f"{seconds / MINUTE:.3g} min" if seconds > LONG else f"{seconds:.3g} s"


def _uneven_caveats(result: Runtime) -> list[str]:
    """Where fleets are trained, the first has what is compiled, and one with empty places takes as long as a full."""
    uneven = [each.recipe for each in result.recipes if each.both.mean > UNEVEN * each.both.median]
    if not uneven:
        return []
    return [
        f"Means are what was spent; of {', '.join(uneven)} a few evaluations took far longer, as those do with which "
        "a run begins. The median is nearer to what one among many takes."
    ]


def _device_caveats(result: Runtime, devices: Mapping[str, Sequence[str]]) -> list[str]:
    """Seconds compare only where the same device spent them."""
    caveats = [
        f"{recipe} ran on different devices ({', '.join(sorted(set(used)))}): its mean is a mixture."
        for recipe, used in devices.items()
        if len(set(used)) > 1
    ]
    reference = set(devices.get(result.retraining, ()))
    for each in result.recipes[1:]:
        used = set(devices.get(each.recipe, ()))
        if reference and used and used != reference:
            caveats.append(
                f"{each.recipe} ran on {', '.join(sorted(used))}, {result.retraining} on "
                f"{', '.join(sorted(reference))}: their seconds do not compare."
            )
    return caveats


def _table(result: Runtime, unit: float, name: str) -> Table:
    return Table(
        "runtime",
        "Training and sampling of one coalition",
        (
            *("recipe", "method", "steps", "evaluations", f"training ({name})", "deviation of training"),
            *(f"sampling ({name})", "deviation of sampling", f"both ({name})", "median of both"),
            "times as fast as retraining",
        ),
        tuple(
            (
                *(each.recipe, each.method, each.steps, each.evaluations),
                *(each.training.mean / unit, each.training.deviation / unit),
                *(each.sampling.mean / unit, each.sampling.deviation / unit),
                *(each.both.mean / unit, each.both.median / unit, each.speed_up),
            )
            for each in result.recipes
        ),
    )


def _growth_table(result: Runtime) -> Table:
    return Table(
        "growth",
        "Training seconds against steps",
        ("method", "seconds a step", "seconds at no step", "R²"),
        tuple((each.method, each.slope, each.intercept, each.r_squared) for each in result.growths),
        decimals=4,
    )


def _box_figure(result: Runtime, unit: float, name: str) -> Figure:
    return boxes(
        "runtimes",
        "Runtime of one coalition",
        "Training and sampling of one coalition together, over evaluations.",
        {"training and sampling": {each.recipe: each.seconds / unit for each in result.recipes}},
        name,
    )


def _growth_figure(result: Runtime, unit: float, name: str) -> Figure:
    series = []
    for growth in result.growths:
        rows = [each for each in result.recipes if each.method == growth.method and each.steps is not None]
        y = tuple(
            Estimate(
                each.training.mean / unit,
                (each.training.mean - each.training.deviation) / unit,
                (each.training.mean + each.training.deviation) / unit,
            )
            for each in rows
        )
        series.append(Series(growth.method, tuple(float(each.steps or 0) for each in rows), y))
    return curves(
        "training-by-steps",
        "Training time against steps",
        "Mean training time of one coalition, with one standard deviation each way, against training steps.",
        {"training": series},
        "training steps",
        name,
    )
