"""How long does one coalition take?"""

from math import isfinite

from diffcredit.errors import UserError
from diffcredit.validation.data import PartWork, ValidationData
from diffcredit.validation.presentation.figures import Series, boxes, curves
from diffcredit.validation.presentation.sections import Figure, PartResult, Section, Table
from diffcredit.validation.statistics.records import Estimate
from diffcredit.validation.statistics.runtime import RuntimeResult, compare_runtimes

MINUTE = 60.0
LONG = 120.0  # longer times are shown in minutes
UNEVEN = 1.1  # a mean that is so many times the median: a few evaluations took far longer


def work(data: ValidationData) -> list[PartWork]:
    """Need nothing: every evaluation was timed."""
    return []


def result(data: ValidationData) -> PartResult[RuntimeResult]:
    games = [game for each in data.recipes if (game := data.timings(each)) is not None]
    scratch = next((game for game in games if game.recipe == data.scratch.name), None)
    if scratch is None:
        raise UserError("no model is retrained from scratch yet; the parts lds and fidelity do that")
    devices = {
        each.name: sorted({str(one.numerics.get("device")) for one in each.evaluations(status="done")})
        for each in data.recipes
    }
    return PartResult(compare_runtimes(games, scratch, devices))


def section(result: PartResult[RuntimeResult]) -> Section:
    found = result.numbers
    unit, name = (MINUTE, "min") if found.recipes[0].both.mean > LONG else (1.0, "s")
    tables = [_table(found, unit, name)]
    figures = [
        boxes(
            "runtimes",
            "Runtime of one coalition",
            "Training and sampling of one coalition together, over evaluations.",
            {"training and sampling": {each.recipe: each.seconds / unit for each in found.recipes}},
            name,
        )
    ]
    if found.growths:
        columns = ("method", "seconds a step", "seconds at no step", "R²")
        rows = tuple((each.method, each.slope, each.intercept, each.r_squared) for each in found.growths)
        tables.append(Table("growth", "Training seconds against steps", columns, rows, decimals=4))
        figures.append(_growth_figure(found, unit, name))
    caveats = (*_uneven_caveats(found), *_device_caveats(found))
    title = "Runtime of one coalition"
    return Section("runtime", title, tuple(_summary(found)), tuple(tables), tuple(figures), caveats=caveats)


def _summary(result: RuntimeResult) -> list[str]:
    def words(seconds: float) -> str:
        return f"{seconds / MINUTE:.3g} min" if seconds > LONG else f"{seconds:.3g} s"

    sentences = []
    first = result.recipes[0]
    for each in result.recipes:
        spent = f"{each.recipe}: {words(each.training.mean)} of training and {words(each.sampling.mean)} of sampling"
        if each is first:
            sentences.append(f"{spent} a coalition.")
        elif isfinite(each.speed_up):
            sentences.append(f"{spent}, {each.speed_up:.3g} times as fast as {first.recipe}.")
        else:
            sentences.append(f"{each.recipe}: its seconds are not known.")
    return sentences


def _uneven_caveats(result: RuntimeResult) -> list[str]:
    """Warn of skewed times: the first fleet compiles, and a fleet with empty places takes as long as a full one."""
    uneven = [each.recipe for each in result.recipes if each.both.mean > UNEVEN * each.both.median]
    if not uneven:
        return []
    return [
        f"Means are what was spent. For {', '.join(uneven)}, a few evaluations took far longer than the others, as the "
        "first of a run do; the median is closer to the time of one among many."
    ]


def _device_caveats(result: RuntimeResult) -> list[str]:
    """Warn where seconds were spent on different devices and so do not compare."""
    used = {recipe: ", ".join(sorted(set(devices))) for recipe, devices in result.devices.items()}
    caveats = [
        f"{recipe} ran on different devices ({used[recipe]}): its mean is a mixture."
        for recipe, devices in result.devices.items()
        if len(set(devices)) > 1
    ]
    retraining = result.recipes[0].recipe
    for each in (each.recipe for each in result.recipes[1:]):
        if used.get(each) and used.get(retraining) and used[each] != used[retraining]:
            caveats.append(
                f"{each} ran on {used[each]}, {retraining} on {used[retraining]}: their seconds do not compare."
            )
    return caveats


def _table(result: RuntimeResult, unit: float, name: str) -> Table:
    columns = (
        *("recipe", "method", "steps", "evaluations", f"training ({name})", "deviation of training"),
        *(f"sampling ({name})", "deviation of sampling", f"both ({name})", "median of both"),
        "times as fast as retraining",
    )
    rows = tuple(
        (
            *(each.recipe, each.method, each.steps, len(each.seconds)),
            *(each.training.mean / unit, each.training.deviation / unit),
            *(each.sampling.mean / unit, each.sampling.deviation / unit),
            *(each.both.mean / unit, each.both.median / unit, each.speed_up),
        )
        for each in result.recipes
    )
    return Table("runtime", "Training and sampling of one coalition", columns, rows)


def _growth_figure(result: RuntimeResult, unit: float, name: str) -> Figure:
    series = []
    for growth in result.growths:
        rows = [each for each in result.recipes if each.method == growth.method and each.steps is not None]
        times = [(each.training.mean, each.training.deviation) for each in rows]
        y = tuple(Estimate(mean / unit, (mean - spread) / unit, (mean + spread) / unit) for mean, spread in times)
        series.append(Series(growth.method, tuple(float(each.steps or 0) for each in rows), y))
    return curves(
        "training-by-steps",
        "Training time against steps",
        "Mean training time of one coalition, with one standard deviation each way, against training steps.",
        {"training": series},
        "training steps",
        name,
    )
