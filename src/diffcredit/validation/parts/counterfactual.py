"""Does F change as the credits say when the contributors with the highest credits leave?"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import comb

import numpy as np

from diffcredit.baselines.study import helpfulness
from diffcredit.coalitions import encode
from diffcredit.errors import UserError
from diffcredit.execution import Task
from diffcredit.properties import Images
from diffcredit.properties.base import has_value_of_each, needs_features
from diffcredit.properties.prompted import rows_of
from diffcredit.study.reserved import truth_task
from diffcredit.validation.contenders import categories_to_come
from diffcredit.validation.data import PartWork, ValidationData, keeping_images, kept_images
from diffcredit.validation.parts import lds
from diffcredit.validation.presentation.figures import forest
from diffcredit.validation.presentation.photographs import above_and_below, same_noises
from diffcredit.validation.presentation.sections import (
    Cell,
    Figure,
    PartResult,
    Photograph,
    Section,
    Table,
    property_summary,
    property_table,
    worded,
)
from diffcredit.validation.statistics.counterfactual import (
    ACTIONS,
    RANDOM,
    CounterfactualResult,
    best_of_categories,
    compare_removals,
    counterfactual_coalitions,
    removals,
    share_count,
    verdict,
)
from diffcredit.validation.statistics.records import UNCLEAR, Contender, Estimate

RANDOM_RANKINGS = 3
SUMMARISED = (ACTIONS[1], ACTIONS[3])
PICTURED = ACTIONS[2]  # the action whose images are shown for every method: the one that removes most
# categories that do not compete with the study's own credits: from the same evaluations, and floors
NO_RIVALS = ("shapley", "banzhaf", "datamodel", "floor")


def work(data: ValidationData) -> list[PartWork]:
    return [_work(data, [_rivals(data, name) for name in _names(data)])]


def expected_work(data: ValidationData) -> list[PartWork]:
    """Return the work as far as it is known before the part ``lds``: the models of the study's own credits and of
    random rankings. The LDS decides who else is a rival; at most one method of each category, and no more coalitions
    than there are. Before a run, any ranking stands for the study's own credits."""
    if data.begun and not categories_to_come(data) and not _scores_to_come(data):
        return work(data)
    any_ranking = Contender("not yet", "shapley", data.study.recipe.name, np.arange(data.n, dtype=np.float64))
    rivals = [_rivals(data, name) if data.begun else [any_ranking] for name in _names(data)]
    coming = categories_to_come(data) | ({"leave-one-out"} if data.settings.leave_one_out else set())
    categories = {each.category for some in rivals for each in some[1:]} | coming
    most = len(categories - {*NO_RIVALS}) * len(ACTIONS) * len(rivals)
    if not data.begun:  # each property may rank in an order of its own
        most += len(ACTIONS) * (len(rivals) - 1)
    known = _work(data, [some[:1] for some in rivals])
    others = _there_are(data.n) - len({task.coalition for task in known.tasks})
    return [replace(known, undecided=min(most, others) * data.settings.seeds)]


def _scores_to_come(data: ValidationData) -> bool:
    with suppress(UserError):  # there is no truth to score by
        return any(each.missing() for each in lds.work(data))
    return False


def _there_are(n: int) -> int:
    """Return how many coalitions have the sizes that removals leave; everybody's counts too."""
    counts = [(share_count(each.percent, n), each.leave) for each in ACTIONS]
    return sum(comb(n, size) for size in {n, *(n - count if leave else count for count, leave in counts)})


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
        found = lds.scores_of(data, name)
        scores = {each.contender.name: each.spearman.value for each in found.at(found.middle)}
    others = [each for each in everybody[1:] if each.category not in NO_RIVALS]
    return [everybody[0], *best_of_categories(others, scores)]


def _work(data: ValidationData, rivals: Sequence[Sequence[Contender]]) -> PartWork:
    coalitions: dict[str, None] = {}
    for some in rivals:
        rows = counterfactual_coalitions(some, draws=RANDOM_RANKINGS, seed=data.study.config.seed)
        coalitions |= dict.fromkeys(encode(row) for row in rows)
    tasks = [truth_task(each, seed) for seed in range(data.settings.seeds) for each in coalitions]
    pictured = dict.fromkeys(task for some in rivals for by in _pictured(data, some) for task in by.values())
    keeping = keeping_images(data.scratch, data.evaluations)
    return PartWork(keeping, tasks, "retraining from scratch: counterfactual", pictured=list(pictured))


def _pictured(data: ValidationData, rivals: Sequence[Contender]) -> tuple[dict[str, Task], dict[str, Task]]:
    """Return everybody's model beside those of each removal by the first method, and of one removal by each method."""
    found = {each.name: removals(each.credits, data.study.config.seed) for each in rivals}
    by_action, by_method = found[rivals[0].name], {name: each[PICTURED.name] for name, each in found.items()}
    first, second = (
        {"everybody": truth_task("1" * data.n, 0)} | {key: truth_task(encode(row), 0) for key, row in some.items()}
        for some in (by_action, by_method)
    )
    return first, second


def _photographs(data: ValidationData, index: int, name: str, rivals: Sequence[Contender]) -> list[Photograph]:
    """Show images from the same noises of the models that `_pictured` returns."""
    title, pictures = data.title(name), []
    images, others = (_images(data, tasks) for tasks in _pictured(data, rivals))
    if images:
        pictures.append(same_noises(f"noises-{index}", f"{title}: retrained models from the same noises", images))
        prop = data.fitted_property(name)
        if has_value_of_each(prop):
            see = data.study.prepared.extractors.extract
            own = {key: some[rows_of(prop, len(some))] for key, some in images.items()}
            seen = {key: see(prop.features, some) if needs_features(prop) else some for key, some in own.items()}
            scores = {key: prop.of_each(some) for key, some in seen.items()}
            pictures += above_and_below(f"percentile-{index}", title, own, scores)
    if others and len(rivals) > 1:
        words = f"{title}: models retrained {PICTURED.name} by each method, from the same noises"
        pictures.append(same_noises(f"methods-{index}", words, others))
    return pictures


def _images(data: ValidationData, tasks: Mapping[str, Task]) -> dict[str, Images]:
    """Return the kept images of each model; none at all without everybody's, or with nothing to compare them with."""
    images = {key: kept_images(data.scratch, task) for key, task in tasks.items()}
    found = {key: some for key, some in images.items() if some is not None}
    return found if "everybody" in found and len(found) > 1 else {}


def section(result: PartResult[Mapping[str, CounterfactualResult]]) -> Section:
    results = result.numbers
    relative = {title: each for title, each in results.items() if each.relative}
    absolute = {title: each for title, each in results.items() if not each.relative}
    tables = []
    if relative:
        tables.append(_changes("counterfactual", "Change of F, in % of F before", relative, decimals=1))
    if absolute:
        tables.append(_changes("counterfactual-absolute", "Change of F, in its own unit", absolute, decimals=4))
    tables.append(_means(results))
    return Section(
        part="counterfactual",
        title="What happens without the top contributors",
        summary=property_summary(results, _summary),
        tables=tuple(tables),
        figures=tuple(_figure(index, *item) for index, item in enumerate(results.items(), start=1)),
        photographs=result.photographs,
        caveats=tuple(_caveats(results, absolute)),
    )


def _caveats(results: Mapping[str, CounterfactualResult], absolute: Mapping[str, object]) -> Iterator[str]:
    yield "Intervals are over training seeds, of random rankings over rankings; each holds on its own, not all at once."
    for title, result in results.items():
        if result.noise.freedom:
            yield (
                f"{title}: the noise of one training, a standard deviation of {np.sqrt(result.noise.variance):.3g}, is "
                f"pooled over the seeds of {result.noise.coalitions} coalitions, as if it were the same for all; where "
                "a coalition's models vary by more, its interval is too short."
            )
    yield "Leaving out the bottom 40 % is the same as keeping only the top 60 %."
    yield "A method is weaker than the first if F suffers less without its top, or is worse with its top alone."
    if absolute:
        yield f"Changes are not in per cent for {', '.join(absolute)}: F before does not clearly differ from 0 there."
    if any(np.isnan(effect.change.low) for each in results.values() for effect in each.effects):
        yield "Where there is one seed alone, or one random ranking, there is no interval."
    for title, each in results.items():
        if each.missing:
            yield f"{title}: no retrained model for {'; '.join(each.missing)}."


def _summary(title: str, result: CounterfactualResult) -> Iterator[str]:
    for action in SUMMARISED:
        first, chance = result.of(result.first, action), result.of(RANDOM, action)
        if first is not None:
            count, on = share_count(action.percent, result.contributors), "" if action.leave else "on "
            sentence = f"{title}: retrained {on}{action.name} ({count} of {result.contributors}) by {result.first}, F "
            sentence += _moves(first.change, result.relative)
            if chance is not None:
                sentence += f"; by random rankings, F {_moves(chance.change, result.relative)}"
            yield f"{sentence}."
        verdicts: dict[str, list[str]] = {"weaker": [], "stronger": [], UNCLEAR: []}
        for effect in result.effects:
            if effect.action == action and effect.from_first is not None and effect.method != RANDOM:
                verdicts[verdict(effect, result.higher_is_better)].append(effect.method)
        named = {"weaker": f"weaker than {result.first}"}
        words = [f"{named.get(word, word)}: {', '.join(names)}" for word, names in verdicts.items() if names]
        if words:
            yield f"{title}, {action.name}, {'; '.join(words)}."


def _moves(change: Estimate, relative: bool) -> str:
    """Say ``falls by 12.0 % (8.1 to 15.9)``; the interval is of the size, in the stated direction."""
    found = _scaled(change, relative)
    if found.value == 0:
        return "does not change"
    falls = found.value < 0
    size = (-found.value, -found.high, -found.low) if falls else (found.value, found.low, found.high)
    value, low, high = (worded(number, ".1f" if relative else ".4g") for number in size)
    interval = f"({low} to {high})" if np.isfinite(size).all() else "(interval not known)"
    return f"{'falls' if falls else 'rises'} by {value}{' %' if relative else ''} {interval}"


def _changes(name: str, title: str, results: Mapping[str, CounterfactualResult], decimals: int) -> Table:
    def rows(result: CounterfactualResult) -> Iterator[tuple[Cell, ...]]:
        for effect in result.effects:
            difference = effect.from_first
            yield (
                *(effect.action.name, effect.method, _scaled(effect.change, result.relative)),
                None if difference is None else _scaled(difference, result.relative),
                verdict(effect, result.higher_is_better) or None,
            )

    columns = ("action", "method", "change", "difference from the first method", "against it")
    return property_table(name, title, columns, results, rows, decimals)


def _means(results: Mapping[str, CounterfactualResult]) -> Table:
    def rows(result: CounterfactualResult) -> Iterator[tuple[Cell, ...]]:
        before = float(result.before.mean()), len(result.before)
        for effect in result.effects:
            about = (effect.action.name, effect.method, int(effect.coalitions[0].sum()))
            yield (*about, *before, float(effect.after.mean()), len(effect.after))

    columns = ("action", "method", "contributors", "F before", "models before", "F after", "models after")
    return property_table("counterfactual-values", "F before and after", columns, results, rows, decimals=4)


def _figure(index: int, title: str, result: CounterfactualResult) -> Figure:
    panels: dict[str, dict[str, Estimate]] = {action.name: {} for action in ACTIONS}
    lines: dict[str, dict[str, Estimate]] = {action.name: {} for action in ACTIONS}
    for effect in result.effects:
        place = lines if effect.method == RANDOM else panels
        place[effect.action.name][effect.method] = _scaled(effect.change, result.relative)
    better = "Higher is better" if result.higher_is_better else "Lower is better"
    return forest(
        f"counterfactual-{index}",
        f"{title} after retraining",
        f"Change of {title} when models are retrained without a method's top contributors, or with them alone, with "
        f"intervals over training seeds; random rankings for comparison. {better}.",
        panels,
        "change of F (%)" if result.relative else "change of F",
        lines,
    )


def _scaled(estimate: Estimate, relative: bool) -> Estimate:
    factor = 100 if relative else 1
    return Estimate(factor * estimate.value, factor * estimate.low, factor * estimate.high)
