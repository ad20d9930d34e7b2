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
from scipy.special import stdtrit

from diffcredit.coalitions import encode
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray, FloatArray
from diffcredit.util.seeds import derive_seed
from diffcredit.validation.statistics.intervals import satterthwaite_estimate, variance_of_mean
from diffcredit.validation.statistics.records import UNCLEAR, Contender, Estimate

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


@dataclass(frozen=True, eq=False)
class Effect:
    """The effect of an ``action`` by a ``method``'s ranking.

    A ranking leaves one coalition, and ``after`` (R,) is F of the models retrained on it, by seed. Of k random
    rankings, ``coalitions`` are (k, n) and ``after`` (k,) their means over seeds. ``change`` is that of the mean of F,
    and ``from_first`` is this change minus the first contender's (None: unknown).
    """

    method: str
    action: Action
    coalitions: BoolArray
    after: FloatArray
    change: Estimate
    from_first: Estimate | None = None


@dataclass(frozen=True, eq=False)
class CounterfactualResult:
    """Effects on one property. ``before`` (R,) is F of models retrained on all ``contributors``; changes are divided by
    its size where ``relative``. ``effects`` are by action, the study's own (``first``) before others and random
    rankings, with intervals from the ``noise`` of seeds. ``missing`` has no retrained model."""

    higher_is_better: bool
    contributors: int
    first: str
    before: FloatArray
    noise: TrainingNoise
    relative: bool
    effects: tuple[Effect, ...]
    missing: tuple[str, ...] = ()

    def of(self, method: str, action: Action) -> Effect | None:
        return next((effect for effect in self.effects if (effect.method, effect.action) == (method, action)), None)


def share_count(percent: int, n: int) -> int:
    """Return ``percent`` of n contributors as a count: rounded, halves up, at least 1."""
    return max(1, (2 * percent * n + 100) // 200)


def removals(credits: FloatArray, seed: int = 0) -> dict[str, BoolArray]:
    """Return the coalition (n,) that each action leaves, by the action's name; ``credits`` (n,) are helpfulness. Ties
    are ordered at random, in the same way for one seed and n."""
    shuffled = _generator("ties", seed).permutation(len(credits))
    order = np.lexsort((shuffled, -credits))
    coalitions = {}
    for action in ACTIONS:
        member = np.full(len(credits), action.leave)
        member[order[: share_count(action.percent, len(credits))]] = not action.leave
        coalitions[action.name] = member
    return coalitions


def all_removals(contenders: Sequence[Contender], draws: int, seed: int) -> dict[str, list[dict[str, BoolArray]]]:
    """Return the removals by each contender's credits, and by ``draws`` random rankings under the name `RANDOM`; the
    first of these do not depend on how many there are."""
    n = len(contenders[0].credits)
    found = {contender.name: [removals(contender.credits, seed)] for contender in contenders}
    orders = [_generator("ranking", seed, draw).permutation(n).astype(np.float64) for draw in range(draws)]
    rankings = [removals(order, seed) for order in orders]
    return found | ({RANDOM: rankings} if draws else {})


def counterfactual_coalitions(contenders: Sequence[Contender], *, draws: int, seed: int = 0) -> BoolArray:
    """Return the coalitions (k, n) that `compare_removals` needs retrained from scratch, all contributors first."""
    rows = [np.ones(len(contenders[0].credits), np.bool_)]
    rows += [row for some in all_removals(contenders, draws, seed).values() for found in some for row in found.values()]
    return np.array(list({encode(row): row for row in rows}.values()))


def pooled_noise(samples: Sequence[FloatArray]) -> TrainingNoise:
    """Pool the variance over samples (R,) of seeds: Σ (x − mean of its sample)² / Σ (R − 1)."""
    several = [sample for sample in samples if len(sample) > 1]
    freedom = sum(len(sample) - 1 for sample in several)
    squares = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in several)
    return TrainingNoise(squares / freedom if freedom else np.nan, freedom, len(several))


def change_scale(before: FloatArray, noise: TrainingNoise) -> float | None:
    """Return |mean before|, or None where it is not significantly above 0 (with unknown noise: where it is 0)."""
    mean = abs(float(before.mean()))
    if not noise.freedom:
        return mean or None
    margin = stdtrit(noise.freedom, 0.975) * np.sqrt(noise.variance / len(before))
    return mean if mean > margin else None


def change_of_mean(before: FloatArray, after: FloatArray, noise: TrainingNoise, *, rankings: bool = False) -> Estimate:
    """Return the change of the mean from F ``before`` (R,) to F ``after`` (R',), over independent seeds, relative to
    `change_scale` where there is one.

    The 95 % interval is the delta method's with Satterthwaite's degrees of freedom, from the ``noise`` of one seed.
    Where ``after`` are ``rankings``, their own spread is used instead, since rankings differ by more than noise. In
    simulations with 10 coalitions, 2 or 3 seeds each and noise up to a fifth of F it covers 95 %, but 83 % for a
    coalition whose models vary twice as much as the others'. Without a coalition of two seeds there are no bounds.
    """
    scale = change_scale(before, noise)
    if scale is None:
        value, weights = float(after.mean() - before.mean()), (1.0, 1.0)
    else:
        # with D = |mean before|: d(after/D) = d after/D − (after/D) dD/D
        value, weights = float(after.mean() - before.mean()) / scale, (1 / scale, float(after.mean()) / scale**2)
    return _estimate(value, (weights[0], after), [(weights[1], before)], noise, rankings=rankings)


def compare_removals(
    contenders: Sequence[Contender],
    values: Mapping[str, ArrayLike],
    *,
    higher_is_better: bool,
    draws: int,
    seed: int = 0,
) -> CounterfactualResult:
    """Compare all actions by the contenders' credits and by ``draws`` random rankings. The other contenders are
    compared with the first; names must differ. ``values`` maps a coalition as text (`encode`) to F (R,) of the models
    retrained from scratch on it, of which those of :func:`counterfactual_coalitions` are used."""
    n, first_name = len(contenders[0].credits), contenders[0].name
    asked = [encode(row) for row in counterfactual_coalitions(contenders, draws=draws, seed=seed)]
    known = {each: np.asarray(values[each], np.float64) for each in asked if each in values}
    before, noise = known.get("1" * n), pooled_noise(list(known.values()))
    if before is None:
        raise UserError("counterfactual: no model retrained on all contributors; at least 1 is needed")
    rankings = all_removals(contenders, draws, seed)
    effects: list[Effect] = []
    missing: list[str] = []
    for action in ACTIONS:
        first: Effect | None = None
        for method, found in rankings.items():
            coalitions = [removal[action.name] for removal in found if encode(removal[action.name]) in known]
            if len(coalitions) < len(found):
                missing.append(f"{method}, {action.name}")
            if not coalitions:
                continue
            samples, chance = [known[encode(row)] for row in coalitions], method == RANDOM
            after = np.array([sample.mean() for sample in samples]) if chance else samples[0]
            change = change_of_mean(before, after, noise, rankings=chance)
            difference = None
            if first is not None and np.array_equal(first.coalitions, coalitions):
                difference = Estimate(0.0, 0.0, 0.0)
            elif first is not None:
                difference = _difference(before, after, first.after, noise, rankings=chance)
            effects.append(Effect(method, action, np.array(coalitions), after, change, difference))
            if method == first_name:
                first = effects[-1]
    if not effects:
        raise UserError("counterfactual: 0 of its coalitions have a retrained model; at least 1 is needed")
    about = (higher_is_better, n, first_name, before, noise, change_scale(before, noise) is not None)
    return CounterfactualResult(*about, tuple(effects), tuple(missing))


def best_of_categories(contenders: Sequence[Contender], scores: Mapping[str, float]) -> tuple[Contender, ...]:
    """Return one contender of each category, categories in the order given: the one with the highest of ``scores``,
    such as the LDS by contender's name (NaN: none), or the first where none has a score."""
    known = {name: score for name, score in scores.items() if np.isfinite(score)}
    best: dict[str, Contender] = {}
    for contender in contenders:
        rival = best.setdefault(contender.category, contender)
        if known.get(contender.name, -np.inf) > known.get(rival.name, -np.inf):
            best[contender.category] = contender
    return tuple(best.values())


def verdict(effect: Effect, higher_is_better: bool) -> str:
    """Say how an action by this method compares with the same by the first method. Leaving out the top should harm F,
    and keeping only the top should not: a method that achieves less of that is weaker. Empty: nothing to compare
    with."""
    difference = effect.from_first
    if difference is None:
        return ""
    if not (difference.low > 0 or difference.high < 0):
        return UNCLEAR
    good = (difference.value > 0) == higher_is_better
    return "weaker" if good == effect.action.leave else "stronger"


def _difference(
    before: FloatArray, after: FloatArray, first: FloatArray, noise: TrainingNoise, *, rankings: bool
) -> Estimate:
    """Subtract two changes from the same ``before``, which cancels except for the scale."""
    gap = float(after.mean() - first.mean())
    scale = change_scale(before, noise)
    size = 1.0 if scale is None else scale
    means = [(1 / size, first), *([] if scale is None else [(gap / scale**2, before)])]
    return _estimate(gap / size, (1 / size, after), means, noise, rankings=rankings)


def _estimate(
    value: float,
    after: tuple[float, FloatArray],
    means: Sequence[tuple[float, FloatArray]],
    noise: TrainingNoise,
    *,
    rankings: bool,
) -> Estimate:
    """Return ``value`` with its interval. It changes as a sum of weights times means over seeds (R,), which all have
    one noise; only ``rankings`` have a variance of their own ``after``."""
    pooled = means if rankings else [after, *means]
    variance = noise.variance * sum(weight**2 / len(sample) for weight, sample in pooled)
    own = [variance_of_mean(*after)] if rankings else []
    return satterthwaite_estimate(value, [(variance, noise.freedom), *own])


def _generator(*parts: int | str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(derive_seed("counterfactual", *parts)))
