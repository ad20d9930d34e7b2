"""How many evaluations surrogates save: the LDS of their own credits, and of credits corrected by evaluations, against
that of evaluations alone."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from diffcredit.credit import KnownSurrogate
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.statistics.datamodeling import LDSResult, compare_lds
from diffcredit.validation.statistics.records import Contender, Estimate, RecipeGame, Truth, game_credits

COUNTS = (20, 50, 100, 200, 500, 1000)
NONE, ALL = "no surrogate", "all surrogates"
CONTROL = "real_data"
"""The property of the coalition's own training images. A surrogate that is no better than this needs no model."""
NEAR, SHARE = 0.05, 0.1
"""A surrogate passes if it is significantly better than the control and its LDS is at most NEAR below that of all
evaluations, at no more than this SHARE of their cost."""


@dataclass(frozen=True)
class Worth:
    """The worth of credits from a ``surrogate`` (or `ALL`, or `NONE`) and a number of ``evaluations``. ``cost``, in
    evaluations, includes the surrogate's own. ``less_evaluated`` is the LDS minus that of all evaluations, and
    ``less_control`` minus the control's (None: no control, or this is it), both over the same coalitions."""

    surrogate: str
    evaluations: int
    cost: float
    lds: Estimate
    less_evaluated: Estimate | None
    less_control: Estimate | None


@dataclass(frozen=True)
class SurrogacyResult:
    """``worths`` by surrogate and number of evaluations, at the ``share`` nearest to ½."""

    share: float
    evaluations: int
    worths: tuple[Worth, ...]

    def of(self, surrogate: str) -> tuple[Worth, ...]:
        """The worths of one surrogate, fewest evaluations first."""
        return tuple(each for each in self.worths if each.surrogate == surrogate)

    @property
    def surrogates(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.surrogate for each in self.worths if each.surrogate != NONE))

    @property
    def evaluated(self) -> Worth:
        """The worth of all evaluations without a surrogate."""
        return self.of(NONE)[-1]

    @property
    def enough(self) -> Worth:
        """The fewest evaluations without a surrogate from which on credits stay near to those of all."""
        every = self.of(NONE)
        far = [place for place, each in enumerate(every[:-1]) if not _near(each)]
        return every[far[-1] + 1 if far else 0]

    def passing(self, surrogate: str) -> Worth | None:
        """The worth with the fewest evaluations that make a surrogate pass; None if none does."""
        for each in self.of(surrogate):
            few = each.cost <= SHARE * self.evaluations
            better = each.less_control is not None and each.less_control.low > 0
            if few and better and _near(each):
                return each
        return None


def _near(worth: Worth) -> bool:
    return worth.less_evaluated is not None and worth.less_evaluated.value >= -NEAR


def compare_surrogates(
    game: RecipeGame,
    known: Mapping[str, KnownSurrogate],
    truths: Sequence[Truth],
    price: Callable[[Sequence[str]], float],
    counts: Sequence[int] = COUNTS,
) -> SurrogacyResult:
    """Compare ``known`` surrogates, whose values are at the game's coalitions, with 0 and ``counts`` evaluations each.
    ``price`` returns the cost of surrogates, by their names, in evaluations. Whatever the estimator refuses is left
    out. Raises UserError where there is nothing to compare."""
    if not known:
        raise UserError("no surrogate stands in for it")
    if not truths:
        raise UserError("no truth coalitions, so no LDS")
    every = len(game.values)
    steps = [*(count for count in counts if count < every), every]
    sets = {NONE: (), **{name: (name,) for name in known}, **({ALL: tuple(known)} if len(known) > 1 else {})}
    found: dict[str, tuple[str, int, FloatArray]] = {}
    for label, names in sets.items():
        if len(names) == 1:
            found[f"{label}, 0"] = label, 0, np.asarray(known[label].credits, np.float64)
        for count in steps:
            some = [replace(known[name], values=np.asarray(known[name].values)[:count]) for name in names]
            with suppress(UserError):
                found[f"{label}, {count}"] = label, count, game_credits(game, "shapley", slice(count), some or None)
    everything, control = f"{NONE}, {every}", f"{CONTROL}, 0"
    if everything not in found:
        raise UserError(f"{every} evaluations are too few for credits without a surrogate")
    truth = min(truths, key=lambda each: abs(each.share - 0.5))
    contenders = [Contender(name, "", "", credits) for name, (_, _, credits) in found.items()]
    result = compare_lds([truth], contenders, against=everything)
    scores, less_evaluated = {each.contender.name: each.spearman for each in result.scores}, _differences(result)
    less_control: dict[str, Estimate] = {}
    if control in found:
        less_control = _differences(compare_lds([truth], contenders, against=control))
        if not isfinite(scores[control].value):  # a control that orders nothing counts as chance, 0
            less_control = {name: score for name, score in scores.items() if name != control}
    prices = {label: price(names) if names else 0.0 for label, names in sets.items()}
    worths = [
        Worth(label, count, prices[label] + count, scores[name], less_evaluated.get(name), less_control.get(name))
        for name, (label, count, _) in found.items()
    ]
    return SurrogacyResult(truth.share, every, tuple(worths))


def _differences(result: LDSResult) -> dict[str, Estimate]:
    return {each.contender: each.spearman for each in result.differences}
