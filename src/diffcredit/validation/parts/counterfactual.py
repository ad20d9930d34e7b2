"""Does F change as the credits say when the contributors with the highest credits leave?"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from diffcredit.baselines.study import helpfulness
from diffcredit.coalitions import encode
from diffcredit.errors import UserError
from diffcredit.execution import Task
from diffcredit.properties import Images
from diffcredit.properties.measuring import needs_features
from diffcredit.study.reserved import truth_task
from diffcredit.util.arrays import BoolArray
from diffcredit.validation.contenders import categories_to_come
from diffcredit.validation.data import ValidationData
from diffcredit.validation.parts import lds
from diffcredit.validation.parts.outcome import PartResult
from diffcredit.validation.presentation.figures import forest
from diffcredit.validation.presentation.photographs import above_and_below, same_noises
from diffcredit.validation.presentation.sections import Cell, Figure, Photograph, Section, Table
from diffcredit.validation.presentation.wording import worded
from diffcredit.validation.statistics.counterfactual import (
    ACTIONS,
    RANDOM,
    Action,
    Change,
    CounterfactualResult,
    best_of_categories,
    compare_removals,
    counterfactual_coalitions,
    removals,
    share_count,
    verdict,
)
from diffcredit.validation.statistics.records import Contender, Estimate
from diffcredit.validation.work import PartWork, keeping_images, kept_images

RANDOM_RANKINGS = 3
SUMMARISED = (ACTIONS[1], ACTIONS[3])
PICTURED = Action(40, leave=True)  # the action whose images are shown for every method: the one that removes most
# categories that do not compete with the study's own credits: from the same evaluations, and floors
NO_RIVALS = ("shapley", "banzhaf", "datamodel", "floor")


def work(data: ValidationData) -> list[PartWork]:
    return [_work(data, [_rivals(data, name) for name in _names(data)])]


def expected_work(data: ValidationData) -> list[PartWork]:
    """Return the work as far as it is known before the part ``lds``: the models of the study's own credits and of
    random rankings. The LDS decides who else is a rival; at most one method of each category."""
    if not categories_to_come(data) and not any(each.missing() for each in lds.work(data)):
        return work(data)
    names = _names(data)
    coming = categories_to_come(data) | ({"leave-one-out"} if data.settings.leave_one_out else set())
    categories = {each.category for name in names for each in _rivals(data, name)[1:]} | coming
    most = len(categories - {*NO_RIVALS}) * len(ACTIONS) * data.settings.seeds * len(names)
    return [_work(data, [_rivals(data, name)[:1] for name in names], most)]


def result(data: ValidationData) -> PartResult[Mapping[str, CounterfactualResult]]:
    results: dict[str, CounterfactualResult] = {}
    photographs: list[Photograph] = []
    for index, name in enumerate(_names(data), start=1):
        higher, rivals = data.properties[name].higher_is_better, _rivals(data, name)
        values = {coalition: helpfulness(some, higher) for coalition, some in data.truth_values(name).items()}
        results[data.title(name)] = compare_removals(
            rivals, values, higher_is_better=higher, draws=RANDOM_RANKINGS, seed=data.study.config.seed
        )
        photographs += _photographs(data, index, name, rivals)
    return PartResult(results, tuple(photographs))


def _names(data: ValidationData) -> list[str]:
    """Return the properties asked for by name, or only the first: each needs models of its own."""
    return data.names if data.chosen else data.names[:1]


def _rivals(data: ValidationData, name: str) -> list[Contender]:
    """Return the study's own credits, and the best of every other category by its LDS at the middle share."""
    everybody = data.contenders(name)
    if not everybody or everybody[0].recipe != data.study.recipe.name:
        raise UserError(f"{name}: {data.study.recipe.name!r} has no credits yet; diffcredit run comes first")
    scores: dict[str, float] = {}
    with suppress(UserError):
        found = lds.scores_of(data, name).scores
        shares = sorted({score.share for score in found})
        middle = shares[len(shares) // 2]
        scores = {each.contender.name: each.spearman.value for each in found if each.share == middle}
    others = [each for each in everybody[1:] if each.category not in NO_RIVALS]
    return [everybody[0], *best_of_categories(others, scores)]


def _work(data: ValidationData, rivals: Sequence[Sequence[Contender]], undecided: int = 0) -> PartWork:
    """Return the work for each property's ``rivals``, and at most so many ``undecided`` models more."""
    coalitions: dict[str, None] = {}
    for some in rivals:
        rows = counterfactual_coalitions(some, draws=RANDOM_RANKINGS, seed=data.study.config.seed)
        coalitions |= dict.fromkeys(encode(row) for row in rows)
    tasks = [truth_task(each, seed) for seed in range(data.settings.seeds) for each in coalitions]
    pictured = dict.fromkeys(
        task for some in rivals for by in (_by_action(data, some[0]), _by_method(data, some)) for task in by.values()
    )
    keeping = keeping_images(data.scratch, data.evaluations)
    return PartWork(keeping, tasks, "retraining from scratch: counterfactual", undecided, list(pictured))


def _by_action(data: ValidationData, ours: Contender) -> dict[str, Task]:
    """Return everybody's model, and that of each removal by one method's credits."""
    return _beside_everybody(data, removals(ours.credits, data.study.config.seed))


def _by_method(data: ValidationData, rivals: Sequence[Contender]) -> dict[str, Task]:
    """Return everybody's model, and that without the top of each method's credits."""
    left = {each.name: removals(each.credits, data.study.config.seed)[PICTURED.name] for each in rivals}
    return _beside_everybody(data, left)


def _beside_everybody(data: ValidationData, coalitions: Mapping[str, BoolArray]) -> dict[str, Task]:
    named = {"everybody": "1" * data.n} | {key: encode(row) for key, row in coalitions.items()}
    return {key: truth_task(each, 0) for key, each in named.items()}


def _photographs(data: ValidationData, index: int, name: str, rivals: Sequence[Contender]) -> list[Photograph]:
    """Show images from the same noises of everybody's retrained model and of models without the top contributors: for
    each action by the first method's credits, and for one action by each of the ``rivals``."""
    title, pictures = data.title(name), []
    images = _images(data, _by_action(data, rivals[0]))
    if images:
        pictures.append(same_noises(f"noises-{index}", f"{title}: retrained models from the same noises", images))
        prop = data.fitted_property(name)
        if hasattr(prop, "of_each"):
            scores = {key: _of_each(data, prop, some) for key, some in images.items()}
            pictures += above_and_below(f"percentile-{index}", title, images, scores)
    others = _images(data, _by_method(data, rivals)) if len(rivals) > 1 else {}
    if others:
        words = f"{title}: models retrained {PICTURED.name} by each method, from the same noises"
        pictures.append(same_noises(f"methods-{index}", words, others))
    return pictures


def _images(data: ValidationData, tasks: Mapping[str, Task]) -> dict[str, Images]:
    """Return the kept images of each model; none at all without everybody's, or with nothing to compare them with."""
    images = {key: kept_images(data.scratch, task) for key, task in tasks.items()}
    found = {key: some for key, some in images.items() if some is not None}
    return found if "everybody" in found and len(found) > 1 else {}


def _of_each(data: ValidationData, prop: Any, images: Images) -> Any:
    extractors = data.study.prepared.extractors
    return prop.of_each(extractors.extract(prop.features, images) if needs_features(prop) else images)


def section(result: PartResult[Mapping[str, CounterfactualResult]]) -> Section:
    results = result.numbers
    if not results:
        raise UserError("counterfactual: 0 properties; at least 1 is needed")
    relative = {title: each for title, each in results.items() if _relative(each)}
    absolute = {title: each for title, each in results.items() if title not in relative}
    tables = []
    if relative:
        tables.append(_changes("counterfactual", "Change of F, in % of F before", relative, decimals=1))
    if absolute:
        tables.append(_changes("counterfactual-absolute", "Change of F, in its own unit", absolute, decimals=4))
    tables.append(_means(results))
    caveats = [
        "Intervals are over training seeds, of random rankings over rankings; each holds on its own, not all at once.",
        *_noise_caveats(results),
        "Without the bottom 40 % is the same coalition as only the top 60 %.",
        "A method is weaker than the first where its top's leaving harms F less, or its top alone does worse.",
    ]
    if absolute:
        caveats.append(
            f"Changes are not in per cent for {_listed(absolute)}: the seeds do not tell F before from 0 there."
        )
    if any(np.isnan(effect.change.estimate.low) for each in results.values() for effect in each.effects):
        caveats.append("Where there is one seed alone, or one random ranking, there is no interval.")
    caveats += [
        f"{title}: no retrained model for {'; '.join(each.missing)}." for title, each in results.items() if each.missing
    ]
    return Section(
        part="counterfactual",
        title="What happens without the top contributors",
        summary=tuple(sentence for title, each in results.items() for sentence in _summary(title, each)),
        tables=tuple(tables),
        figures=tuple(_figure(index, *item) for index, item in enumerate(results.items(), start=1)),
        photographs=result.photographs,
        caveats=tuple(caveats),
    )


def _summary(title: str, result: CounterfactualResult) -> list[str]:
    sentences = []
    for action in SUMMARISED:
        first, chance = result.of(result.first, action), result.of(RANDOM, action)
        if first is not None:
            count, on = share_count(action.percent, result.contributors), "" if action.leave else "on "
            sentence = f"{title}: retrained {on}{action.name} ({count} of {result.contributors}) by {result.first}, F "
            sentence += _moves(first.change)
            if chance is not None:
                sentence += f"; by random rankings, F {_moves(chance.change)}"
            sentences.append(f"{sentence}.")
        others = {
            effect.method: verdict(effect, result.higher_is_better)
            for effect in result.effects
            if effect.action == action and effect.from_first is not None and effect.method != RANDOM
        }
        if others:
            verdicts = {
                f"weaker than {result.first}": [name for name in others if others[name] == "weaker"],
                "stronger": [name for name in others if others[name] == "stronger"],
                "not told apart": [name for name in others if others[name] == "not told apart"],
            }
            words = "; ".join(f"{word}: {_listed(names)}" for word, names in verdicts.items() if names)
            sentences.append(f"{title}, {action.name}, {words}.")
    return sentences


def _moves(change: Change) -> str:
    """Say ``falls by 12.0 % (8.1 to 15.9)``; the interval is of the size, in the stated direction."""
    value, low, high = change.estimate.value, change.estimate.low, change.estimate.high
    if value < 0:
        value, low, high = -value, -high, -low
    unit = " %" if change.relative else ""
    value, low, high = ((100 * x if change.relative else x) for x in (value, low, high))

    def number(x: float) -> str:
        return worded(x, ".1f" if change.relative else ".4g")

    if value == 0:
        return "does not change"
    interval = f" ({number(low)} to {number(high)})" if np.isfinite([low, high]).all() else " (interval not known)"
    return f"{'falls' if change.estimate.value < 0 else 'rises'} by {number(value)}{unit}{interval}"


def _changes(name: str, title: str, results: Mapping[str, CounterfactualResult], decimals: int) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            *(prop, effect.action.name, effect.method, _scaled(effect.change.estimate, effect.change.relative)),
            None if effect.from_first is None else _scaled(effect.from_first, effect.change.relative),
            verdict(effect, result.higher_is_better) or None,
        )
        for prop, result in results.items()
        for effect in result.effects
    ]
    columns = ("property", "action", "method", "change", "difference from the first method", "against it")
    return Table(name, title, columns, tuple(rows), decimals)


def _means(results: Mapping[str, CounterfactualResult]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            *(prop, effect.action.name, effect.method, int(effect.coalitions[0].sum())),
            *(float(result.before.mean()), len(result.before), float(effect.after.mean()), len(effect.after)),
        )
        for prop, result in results.items()
        for effect in result.effects
    ]
    columns = ("property", "action", "method", "contributors", "F before", "models before", "F after", "models after")
    return Table("counterfactual-values", "F before and after", columns, tuple(rows), decimals=4)


def _figure(index: int, title: str, result: CounterfactualResult) -> Figure:
    relative = _relative(result)
    panels: dict[str, dict[str, Estimate]] = {action.name: {} for action in ACTIONS}
    lines: dict[str, dict[str, Estimate]] = {action.name: {} for action in ACTIONS}
    for effect in result.effects:
        place = lines if effect.method == RANDOM else panels
        place[effect.action.name][effect.method] = _scaled(effect.change.estimate, relative)
    better = "Higher is better" if result.higher_is_better else "Lower is better"
    return forest(
        f"counterfactual-{index}",
        f"{title} after retraining",
        f"Change of {title} when models are retrained without a method's top contributors, or with them alone, with "
        f"intervals over training seeds; random rankings for comparison. {better}.",
        panels,
        "change of F (%)" if relative else "change of F",
        lines,
    )


def _scaled(estimate: Estimate, relative: bool) -> Estimate:
    """Convert to per cent where relative."""
    factor = 100 if relative else 1
    return Estimate(factor * estimate.value, factor * estimate.low, factor * estimate.high)


def _relative(result: CounterfactualResult) -> bool:
    """Return whether changes are relative; the same for all effects, since it follows from F before."""
    return result.effects[0].change.relative


def _noise_caveats(results: Mapping[str, CounterfactualResult]) -> list[str]:
    return [
        f"{title}: the noise of one training, a standard deviation of {np.sqrt(result.noise.variance):.3g}, is pooled "
        f"over the seeds of {result.noise.coalitions} coalitions, as if it were the same for all; where a coalition's "
        "models vary by more, its interval is too short."
        for title, result in results.items()
        if result.noise.freedom
    ]


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(names)
