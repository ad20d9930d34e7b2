"""How F changes when the contributors with the highest credits are left out, or when only they stay.

Models are retrained from scratch without a method's top contributors, and with them alone. The better the credits, the
more the first harms the property and the less the second does. Values here are F itself, not helpfulness.

A coalition has few seeds, often two, whose own spread is nearly useless (Student's factor is then 12.7). So the noise
of a training is assumed to be equal for all of these coalitions, and pooled over them.
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
from diffcredit.validation.statistics.intervals import satterthwaite_estimate, variance_of_mean
from diffcredit.validation.statistics.records import Contender, Estimate

RANDOM = "random rankings"


@dataclass(frozen=True)
class Action:
    """The top ``percent`` of the contributors leave, or only they stay."""

    percent: int
    leave: bool

    @property
    def name(self) -> str:
        return f"{'without' if self.leave else 'only'} the top {self.percent} %"


# Leaving out the bottom 40 % is the same as keeping only the top 60 %, for any number of contributors.
ACTIONS = (Action(10, True), Action(20, True), Action(40, True), Action(60, False))


@dataclass(frozen=True)
class TrainingNoise:
    """The noise of one training: the variance of F over seeds, pooled over ``coalitions`` with two seeds or more, with
    ``freedom`` degrees of freedom (0: no coalition has two, and the variance is NaN)."""

    variance: float
    freedom: int
    coalitions: int


@dataclass(frozen=True)
class Change:
    """The change of the mean of F: (after − before)/|before| where ``relative``, otherwise after − before."""

    estimate: Estimate
    relative: bool


@dataclass(frozen=True, eq=False)
class Effect:
    """The effect of an ``action`` by a ``method``'s ranking.

    ``after`` (R,) is F of the models retrained on its coalition, row 0 of ``coalitions`` (1, n), one for each seed. For
    random rankings ``coalitions`` (k, n) has one for each ranking, and ``after`` (k,) the mean over seeds of each.
    ``from_first`` is this change minus that of the first contender (None: unknown).
    """

    method: str
    action: Action
    coalitions: BoolArray
    after: FloatArray
    change: Change
    from_first: Estimate | None = None


@dataclass(frozen=True, eq=False)
class CounterfactualResult:
    """Effects on one property. ``before`` (R,) is F of the models retrained on all ``contributors``.

    ``effects`` are by action; within each are the contenders in the order given (``first`` is the study's own), then
    random rankings, with intervals from the ``noise`` of their seeds. ``missing`` names what has no retrained model.
    """

    higher_is_better: bool
    contributors: int
    first: str
    before: FloatArray
    noise: TrainingNoise
    effects: tuple[Effect, ...]
    missing: tuple[str, ...] = ()

    def of(self, method: str, action: Action) -> Effect | None:
        return next((effect for effect in self.effects if (effect.method, effect.action) == (method, action)), None)


def share_count(percent: int, n: int) -> int:
    """Return ``percent`` of n contributors as a count: rounded, halves up, at least 1."""
    return max(1, (2 * percent * n + 100) // 200)


def removals(credits: ArrayLike, seed: int = 0) -> dict[str, BoolArray]:
    """Return the coalition (n,) that each action leaves, by the action's name; ``credits`` (n,) are helpfulness. Ties
    are ordered at random, in the same way for one seed and n."""
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
    """Return the removals by ``draws`` random rankings; the first do not depend on how many there are."""
    return tuple(removals(_generator("ranking", seed, draw).permutation(n), seed) for draw in range(draws))


def counterfactual_coalitions(contenders: Sequence[Contender], *, draws: int, seed: int = 0) -> BoolArray:
    """Return the coalitions (k, n) that `compare_removals` needs retrained from scratch, all contributors first."""
    n = _contributors(contenders)
    rankings = (*(removals(contender.credits, seed) for contender in contenders), *random_removals(n, seed, draws))
    rows = {encode(row): row for row in (np.ones(n, np.bool_), *(row for found in rankings for row in found.values()))}
    return np.array(list(rows.values()))


def pooled_noise(samples: Sequence[FloatArray]) -> TrainingNoise:
    """Pool the variance over samples (R,) of seeds: Σ (x − mean of its sample)² / Σ (R − 1)."""
    several = [sample for sample in samples if len(sample) > 1]
    freedom = sum(len(sample) - 1 for sample in several)
    squares = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in several)
    return TrainingNoise(squares / freedom if freedom else np.nan, freedom, len(several))


def relative_change(
    before: ArrayLike, after: ArrayLike, noise: TrainingNoise, confidence: float = 0.95, *, rankings: bool = False
) -> Change:
    """Return the change of the mean from F ``before`` (R,) to F ``after`` (R',), over independent seeds.

    It is (after − before)/|before|, or after − before where ``before`` does not differ significantly from 0 (with
    unknown noise: where it is 0).

    The interval is the delta method's with Satterthwaite's degrees of freedom, from the ``noise`` of one seed. Where
    ``after`` are ``rankings``, their own spread is used instead, since rankings differ by more than noise. In
    simulations with 10 coalitions, 2 or 3 seeds each and noise up to a fifth of F it covers 95 %. It covers 90 % for a
    coalition whose models vary 1.5 times as much as the others', 83 % for twice as much, and 98 % for two thirds as
    much. Without a coalition of two seeds there are no bounds.
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


def compare_removals(
    contenders: Sequence[Contender],
    values: Mapping[str, ArrayLike],
    *,
    higher_is_better: bool,
    draws: int,
    seed: int = 0,
    confidence: float = 0.95,
) -> CounterfactualResult:
    """Compare all actions by the contenders' credits and by ``draws`` random rankings.

    ``values`` maps a coalition as text (`diffcredit.coalitions.encode`) to F (R,) of the models retrained from scratch
    on it. Only those of :func:`counterfactual_coalitions` of the same contenders, draws and seed are used. The other
    contenders are compared with the first; names must differ.
    """
    n = _contributors(contenders)
    everybody = "1" * n
    if everybody not in values:
        raise UserError("counterfactual: no model retrained on all contributors; at least 1 is needed")
    before = _values("all contributors", values[everybody])
    asked = [encode(row) for row in counterfactual_coalitions(contenders, draws=draws, seed=seed)]
    noise = pooled_noise([np.asarray(values[each], np.float64) for each in asked if each in values])
    rankings = {contender.name: [removals(contender.credits, seed)] for contender in contenders}
    rankings |= {RANDOM: list(random_removals(n, seed, draws))} if draws else {}
    effects: list[Effect] = []
    missing: list[str] = []
    for action in ACTIONS:
        first: Effect | None = None
        for method, found in rankings.items():
            coalitions = [removal[action.name] for removal in found if encode(removal[action.name]) in values]
            if len(coalitions) < len(found):
                missing.append(f"{method}, {action.name}")
            if not coalitions:
                continue
            samples = [_values(f"{method}, {action.name}", values[encode(row)]) for row in coalitions]
            chance = method == RANDOM
            after = np.array([sample.mean() for sample in samples]) if chance else samples[0]
            difference = None
            if first is not None:
                same = np.array_equal(first.coalitions, coalitions)
                difference = (
                    Estimate(0.0, 0.0, 0.0)
                    if same
                    else _difference(before, after, first.after, noise, confidence, rankings=chance)
                )
            change = relative_change(before, after, noise, confidence, rankings=chance)
            effects.append(Effect(method, action, np.array(coalitions), after, change, difference))
            if method == contenders[0].name:
                first = effects[-1]
    if not effects:
        raise UserError("counterfactual: 0 of its coalitions have a retrained model; at least 1 is needed")
    return CounterfactualResult(higher_is_better, n, contenders[0].name, before, noise, tuple(effects), tuple(missing))


def best_of_categories(
    contenders: Sequence[Contender], scores: Mapping[str, float] | None = None
) -> tuple[Contender, ...]:
    """Return one contender of each category, categories in the order given: the one with the highest of ``scores``,
    such as the LDS by contender's name (NaN: none), or the first where none has a score."""
    known = {name: score for name, score in (scores or {}).items() if np.isfinite(score)}
    best: dict[str, Contender] = {}
    for contender in contenders:
        rival = best.setdefault(contender.category, contender)
        if known.get(contender.name, -np.inf) > known.get(rival.name, -np.inf):
            best[contender.category] = contender
    return tuple(best.values())


def verdict(effect: Effect, higher_is_better: bool) -> str:
    """Say whether the action by this method does more of what it should than by the first: leaving the top out should
    do harm, keeping only the top should do good. Empty: there is nothing to compare with."""
    difference = effect.from_first
    if difference is None or not (difference.low > 0 or difference.high < 0):
        return "" if difference is None else "not told apart"
    rises = difference.value > 0
    good = rises == higher_is_better
    return "weaker" if good == effect.action.leave else "stronger"


def _difference(
    before: FloatArray, after: FloatArray, first: FloatArray, noise: TrainingNoise, confidence: float, *, rankings: bool
) -> Estimate:
    """Subtract two changes from the same ``before``, which cancels except for the scale."""
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
    noise: TrainingNoise,
    confidence: float,
) -> Estimate:
    """Return ``value`` with its interval. It changes as a sum of weights times ``means`` over seeds (R,), which all
    have one noise, and of weights times means of samples that have a variance of their ``own``."""
    pooled = noise.variance * sum(weight**2 / len(sample) for weight, sample in means)
    parts = [(pooled, noise.freedom), *(variance_of_mean(weight, sample) for weight, sample in own)]
    return satterthwaite_estimate(value, parts, confidence)


def _scale(before: FloatArray, noise: TrainingNoise, confidence: float) -> float | None:
    """Return |mean|, or None where it does not differ significantly from 0."""
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
        raise UserError(f"counterfactual: methods {', '.join(names)}; names must differ, and from {RANDOM!r}")
    return counts.pop()


def _generator(*parts: int | str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(derive_seed("counterfactual", *parts)))
