"""What happens to F when the contributors that credits call the best are left out, or alone stay.

Models are retrained from scratch without a method's top contributors, and with them alone. The better the credits,
the more the first harms the property and the less the second does. Values here are F itself, not helpfulness.

A coalition has few seeds, often two, whose own spread tells next to nothing (Student's factor is then 12.7). So the
noise of a training is taken to be the same for all of these coalitions, and pooled over them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student

from diffcredit.coalitions import encode
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray, FloatArray
from diffcredit.util.seeds import derive_seed
from diffcredit.validation.figures import forest
from diffcredit.validation.records import Contender, Estimate
from diffcredit.validation.sections import Cell, Figure, Photograph, Section, Table
from diffcredit.validation.welch import satterthwaite_estimate, variance_of_mean
from diffcredit.validation.wording import worded

RANDOM = "random rankings"


@dataclass(frozen=True)
class Action:
    """The top ``percent`` of the contributors leave, or alone stay."""

    percent: int
    leave: bool

    @property
    def name(self) -> str:
        return f"{'without' if self.leave else 'only'} the top {self.percent} %"


# Without the bottom 40 % is the same as only the top 60 %, for any number of contributors.
ACTIONS = (Action(10, True), Action(20, True), Action(40, True), Action(60, False))
SPOKEN = (ACTIONS[1], ACTIONS[3])  # what the summary tells


@dataclass(frozen=True)
class Noise:
    """Of one training: the variance of F over seeds, pooled over ``coalitions`` of two seeds or more, with ``freedom``
    degrees of freedom (0: no coalition has two, and the variance is NaN)."""

    variance: float
    freedom: int
    coalitions: int


@dataclass(frozen=True)
class Change:
    """Of the mean of F: (after − before)/|before| where ``relative``, otherwise after − before."""

    estimate: Estimate
    relative: bool


@dataclass(frozen=True, eq=False)
class Effect:
    """What an ``action`` by a ``method``'s ranking does: F ``after`` (R,) of models retrained on its coalition, row 0
    of ``coalitions`` (1, n), one a seed. Of random rankings ``coalitions`` (k, n) has one a ranking, and ``after``
    (k,) is the mean over seeds of each. ``from_first`` is this change less that of the first contender, None where
    there is no such."""

    method: str
    action: Action
    coalitions: BoolArray
    after: FloatArray
    change: Change
    from_first: Estimate | None = None


@dataclass(frozen=True, eq=False)
class Counterfactual:
    """One property: F ``before`` (R,) of everybody's retrained models, and the ``effects`` by action, in each the
    contenders in the order given (``first`` is the study's own) and random rankings last, with intervals by the
    ``noise`` of their seeds. ``lacking`` names what has no retrained model, ``contributors`` counts all."""

    higher_is_better: bool
    contributors: int
    first: str
    before: FloatArray
    noise: Noise
    effects: tuple[Effect, ...]
    lacking: tuple[str, ...] = ()

    def of(self, method: str, action: Action) -> Effect | None:
        return next((effect for effect in self.effects if (effect.method, effect.action) == (method, action)), None)


def share_count(percent: int, n: int) -> int:
    """How many of n contributors ``percent`` of them are: rounded, halves up, at least 1."""
    return max(1, (2 * percent * n + 100) // 200)


def removals(credits: ArrayLike, seed: int = 0) -> dict[str, BoolArray]:
    """The coalition (n,) that each action leaves, by name; ``credits`` (n,) are helpfulness. Who has equal credits is
    ordered at random, the same for one seed and n."""
    credit = np.asarray(credits, np.float64)
    if credit.ndim != 1 or len(credit) < 2 or not np.isfinite(credit).all():
        raise UserError(
            f"counterfactual: credits of shape {credit.shape}; expected finite ones of 2 contributors or more"
        )
    shuffled = _generator("ties", seed).permutation(len(credit))
    order = np.lexsort((shuffled, -credit))
    coalitions = {}
    for action in ACTIONS:
        member = np.full(len(credit), action.leave)
        member[order[: share_count(action.percent, len(credit))]] = not action.leave
        coalitions[action.name] = member
    return coalitions


def random_removals(n: int, seed: int, draws: int) -> tuple[dict[str, BoolArray], ...]:
    """The same for ``draws`` random rankings, the first of which do not depend on how many there are."""
    return tuple(removals(_generator("ranking", seed, draw).permutation(n), seed) for draw in range(draws))


def counterfactual_coalitions(contenders: Sequence[Contender], *, draws: int, seed: int = 0) -> BoolArray:
    """What is to be retrained from scratch for :func:`counterfactual`, (k, n), each once and everybody first."""
    n = _contributors(contenders)
    rankings = (*(removals(contender.credits, seed) for contender in contenders), *random_removals(n, seed, draws))
    rows = {encode(row): row for row in (np.ones(n, np.bool_), *(row for found in rankings for row in found.values()))}
    return np.array(list(rows.values()))


def pooled_noise(samples: Sequence[FloatArray]) -> Noise:
    """Σ (x − mean of its sample)² / Σ (R − 1), over samples (R,) of seeds."""
    several = [sample for sample in samples if len(sample) > 1]
    freedom = sum(len(sample) - 1 for sample in several)
    squares = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in several)
    return Noise(squares / freedom if freedom else np.nan, freedom, len(several))


def relative_change(
    before: ArrayLike, after: ArrayLike, noise: Noise, confidence: float = 0.95, *, rankings: bool = False
) -> Change:
    """From F ``before`` (R,) to F ``after`` (R',), over independent seeds, of the means: (after − before)/|before|,
    or after − before where ``before`` is not told apart from 0 (where the noise is not known, only 0 is not).

    The interval is the delta method's with Satterthwaite's degrees of freedom, by the ``noise`` of one seed. Where
    ``after`` are ``rankings``, their own spread counts in its place, for rankings differ by more than noise. In
    simulations of 10 coalitions, 2 or 3 seeds each and noise up to a fifth of F it covers at 95 %; at 90 % of a
    coalition whose models vary 1.5 times as much as the others', at 83 % where twice as much, and at 98 % where two
    thirds as much. Without a coalition of two seeds there are no bounds.
    """
    b, a = _values("before", before), _values("after", after)
    scale = _scale(b, noise, confidence)
    if scale is None:
        value, weights = float(a.mean() - b.mean()), (1.0, 1.0)
    else:
        # with D = |mean before|: d(after/D) = d after/D − (after/D) dD/D
        value, weights = float(a.mean() - b.mean()) / scale, (1 / scale, float(a.mean()) / scale**2)
    means = [(weights[1], b)] if rankings else [(weights[0], a), (weights[1], b)]
    own = [(weights[0], a)] if rankings else []
    return Change(_estimate(value, means, own, noise, confidence), relative=scale is not None)


def counterfactual(
    contenders: Sequence[Contender],
    values: Mapping[str, ArrayLike],
    *,
    higher_is_better: bool,
    draws: int,
    seed: int = 0,
    confidence: float = 0.95,
) -> Counterfactual:
    """The effects of all actions by the contenders' credits and by ``draws`` random rankings. ``values``: from a
    coalition as text (`diffcredit.coalitions.encode`) to F (R,) of the models retrained from scratch on it, for those
    of :func:`counterfactual_coalitions` of the same contenders, draws and seed; of others, they are not looked at. The
    first contender is the one that the others are compared with; names must differ."""
    n = _contributors(contenders)
    everybody = "1" * n
    if everybody not in values:
        raise UserError("counterfactual: no model retrained on all contributors; at least 1 is needed")
    before = _values("all contributors", values[everybody])
    asked = [encode(row) for row in counterfactual_coalitions(contenders, draws=draws, seed=seed)]
    noise = pooled_noise([np.asarray(values[each], np.float64) for each in asked if each in values])
    rankings = {contender.name: [removals(contender.credits, seed)] for contender in contenders}
    rankings |= {RANDOM: list(random_removals(n, seed, draws))} if draws else {}
    effects, lacking = [], []
    for action in ACTIONS:
        first: Effect | None = None
        for method, found in rankings.items():
            coalitions = [removal[action.name] for removal in found if encode(removal[action.name]) in values]
            if len(coalitions) < len(found):
                lacking.append(f"{method}, {action.name}")
            if not coalitions:
                continue
            samples = [_values(f"{method}, {action.name}", values[encode(row)]) for row in coalitions]
            after = np.array([sample.mean() for sample in samples]) if method == RANDOM else samples[0]
            difference = None
            if first is not None:
                same = np.array_equal(first.coalitions, coalitions)
                difference = Estimate(0.0, 0.0, 0.0)
                if not same:
                    chance = method == RANDOM
                    difference = _difference(before, after, first.after, noise, confidence, rankings=chance)
            change = relative_change(before, after, noise, confidence, rankings=method == RANDOM)
            effects.append(Effect(method, action, np.array(coalitions), after, change, difference))
            if method == contenders[0].name:
                first = effects[-1]
    if not effects:
        raise UserError("counterfactual: 0 of its coalitions have a retrained model; at least 1 is needed")
    return Counterfactual(higher_is_better, n, contenders[0].name, before, noise, tuple(effects), tuple(lacking))


def best_of_categories(
    contenders: Sequence[Contender], scores: Mapping[str, float] | None = None
) -> tuple[Contender, ...]:
    """One contender a category, in the order in which categories come: the one with the highest of ``scores``, such as
    the LDS by contender's name (NaN: none), or the first where none has a score."""
    known = {name: score for name, score in (scores or {}).items() if np.isfinite(score)}
    best: dict[str, Contender] = {}
    for contender in contenders:
        rival = best.setdefault(contender.category, contender)
        if known.get(contender.name, -np.inf) > known.get(rival.name, -np.inf):
            best[contender.category] = contender
    return tuple(best.values())


def counterfactual_section(results: Mapping[str, Counterfactual], photographs: Sequence[Photograph] = ()) -> Section:
    """``results`` by the properties' titles."""
    if not results:
        raise UserError("counterfactual: 0 properties; at least 1 is needed")
    relative = {title: result for title, result in results.items() if _relative(result)}
    absolute = {title: result for title, result in results.items() if title not in relative}
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
    if any(np.isnan(effect.change.estimate.low) for result in results.values() for effect in result.effects):
        caveats.append("Where there is one seed alone, or one random ranking, there is no interval.")
    caveats += [
        f"{title}: no retrained model for {'; '.join(result.lacking)}."
        for title, result in results.items()
        if result.lacking
    ]
    return Section(
        part="counterfactual",
        title="What happens without the top contributors",
        summary=tuple(sentence for title, result in results.items() for sentence in _summary(title, result)),
        tables=tuple(tables),
        figures=tuple(_figure(index, *item) for index, item in enumerate(results.items(), start=1)),
        photographs=tuple(photographs),
        caveats=tuple(caveats),
    )


def verdict(effect: Effect, higher_is_better: bool) -> str:
    """Whether the action does more of what it should, by this method than by the first: of leaving the top out, more
    harm; of keeping the top alone, more good."""
    difference = effect.from_first
    if difference is None or not (difference.low > 0 or difference.high < 0):
        return "" if difference is None else "not told apart"
    rises = difference.value > 0
    good = rises == higher_is_better
    return "weaker" if good == effect.action.leave else "stronger"


def _summary(title: str, result: Counterfactual) -> list[str]:
    sentences = []
    for action in SPOKEN:
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
            told = {
                f"weaker than {result.first}": [name for name in others if others[name] == "weaker"],
                "stronger": [name for name in others if others[name] == "stronger"],
                "not told apart": [name for name in others if others[name] == "not told apart"],
            }
            words = "; ".join(f"{word}: {_listed(names)}" for word, names in told.items() if names)
            sentences.append(f"{title}, {action.name}, {words}.")
    return sentences


def _moves(change: Change) -> str:
    """``falls by 12.0 % (8.1 to 15.9)``; the interval is of the size in the direction told."""
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


def _changes(name: str, title: str, results: Mapping[str, Counterfactual], decimals: int) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            prop,
            effect.action.name,
            effect.method,
            _shown(effect.change.estimate, effect.change.relative),
            None if effect.from_first is None else _shown(effect.from_first, effect.change.relative),
            verdict(effect, result.higher_is_better) or None,
        )
        for prop, result in results.items()
        for effect in result.effects
    ]
    columns = ("property", "action", "method", "change", "difference from the first method", "against it")
    return Table(name, title, columns, tuple(rows), decimals)


def _means(results: Mapping[str, Counterfactual]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            prop,
            effect.action.name,
            effect.method,
            int(effect.coalitions[0].sum()),
            float(result.before.mean()),
            len(result.before),
            float(effect.after.mean()),
            len(effect.after),
        )
        for prop, result in results.items()
        for effect in result.effects
    ]
    columns = ("property", "action", "method", "contributors", "F before", "models before", "F after", "models after")
    return Table("counterfactual-values", "F before and after", columns, tuple(rows), decimals=4)


def _figure(index: int, title: str, result: Counterfactual) -> Figure:
    relative = _relative(result)
    panels: dict[str, dict[str, Estimate]] = {action.name: {} for action in ACTIONS}
    lines: dict[str, dict[str, Estimate]] = {action.name: {} for action in ACTIONS}
    for effect in result.effects:
        place = lines if effect.method == RANDOM else panels
        place[effect.action.name][effect.method] = _shown(effect.change.estimate, relative)
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


def _shown(estimate: Estimate, relative: bool) -> Estimate:
    """In per cent where relative."""
    factor = 100 if relative else 1
    return Estimate(factor * estimate.value, factor * estimate.low, factor * estimate.high)


def _relative(result: Counterfactual) -> bool:
    """One for all effects: it follows from F before."""
    return result.effects[0].change.relative


def _noise_caveats(results: Mapping[str, Counterfactual]) -> list[str]:
    return [
        f"{title}: the noise of one training, a standard deviation of {np.sqrt(result.noise.variance):.3g}, is pooled "
        f"over the seeds of {result.noise.coalitions} coalitions, as if it were the same for all; where a coalition's "
        "models vary by more, its interval is too short."
        for title, result in results.items()
        if result.noise.freedom
    ]


def _difference(
    before: FloatArray, after: FloatArray, first: FloatArray, noise: Noise, confidence: float, *, rankings: bool
) -> Estimate:
    """Of two changes from the same ``before``, which cancels but for the scale."""
    gap = float(after.mean() - first.mean())
    scale = _scale(before, noise, confidence)
    size = 1.0 if scale is None else scale
    means = [(1 / size, first), *([] if scale is None else [(gap / scale**2, before)])]
    own = [(1 / size, after)] if rankings else []
    return _estimate(gap / size, means if rankings else [(1 / size, after), *means], own, noise, confidence)


def _estimate(
    value: float,
    means: Sequence[tuple[float, FloatArray]],
    own: Sequence[tuple[float, FloatArray]],
    noise: Noise,
    confidence: float,
) -> Estimate:
    """``value``, which changes as the sum of weights times ``means`` over seeds (R,), all with one noise, and of
    weights times means of samples with a variance of their ``own``."""
    pooled = noise.variance * sum(weight**2 / len(sample) for weight, sample in means)
    parts = [(pooled, noise.freedom), *(variance_of_mean(weight, sample) for weight, sample in own)]
    return satterthwaite_estimate(value, parts, confidence)


def _scale(before: FloatArray, noise: Noise, confidence: float) -> float | None:
    """|mean|, or None where it is not told apart from 0."""
    mean = abs(float(before.mean()))
    if not noise.freedom:
        return mean or None
    margin = student.ppf((1 + confidence) / 2, noise.freedom) * np.sqrt(noise.variance / len(before))
    return mean if mean > margin else None


def _values(name: str, given: ArrayLike) -> FloatArray:
    values = np.asarray(given, np.float64)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise UserError(f"counterfactual: values of {name} are {values.tolist()}; expected finite ones, one a seed")
    return values


def _contributors(contenders: Sequence[Contender]) -> int:
    counts = {len(contender.credits) for contender in contenders}
    if len(counts) != 1:
        raise UserError(
            f"counterfactual: credits of {sorted(counts)} contributors; expected one number for all methods"
        )
    names = [contender.name for contender in contenders]
    if len({*names, RANDOM}) != len(names) + 1:
        raise UserError(f"counterfactual: methods {_listed(names)}; names must differ, and from {RANDOM!r}")
    return counts.pop()


def _generator(*parts: int | str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(derive_seed("counterfactual", *parts)))


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(names)
