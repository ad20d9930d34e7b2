"""The verdict: what may be done with a property's credits, and why, in one sentence.

A verdict is the worst of its checks: did the credits stand a test against retrained models, do contributors differ at
all, is a difference large enough to matter, does the estimator's model fit, is there signal. Credits that were never
tested are at most "use with care". How often a verdict is wrong: benchmarks/verdicts.
"""

from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from diffcredit.credit.equality import equality_p
from diffcredit.credit.materiality import Yardstick, matters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diffcredit.credit.credits import Credits

Level = Literal["pay by it", "use with care", "do not use"]
LEVELS: tuple[Level, ...] = get_args(Level)  # from the best to the worst

# The customary level: equal contributors seem different in this part of studies. Credits to pay by must pass a test
# as well, so that far fewer studies of equal contributors come to "pay by it" (benchmarks/verdicts).
SIGNIFICANT = 0.05  # at whatever confidence the credits are printed
# A convention: at half of the reachable rank correlation r, credits explain a quarter (r²) of what can be explained of
# the order of retrained models. Credits that explain less are no ground for a payment.
ENOUGH_OF_CEILING = 0.5
# Variance by contributors over that of noise. At this ratio a correlation of 0.9 with the exact credits takes about a
# hundred evaluations for each contributor (`planning.evaluations_needed`), which few studies can pay for.
LEAST_SIGNAL = 0.1
LEAST_UNITS = 16  # coalitions, each with its complement, from which random signs show a difference


@dataclass(frozen=True)
class Check:
    """One reason for a verdict: its subject, the best level it allows, and a sentence for people."""

    subject: str
    level: Level
    sentence: str


@dataclass(frozen=True)
class Tested:
    """The result of validation: the rank correlation of the credits' predictions with retrained models, with its
    interval (NaN: unknown), over ``coalitions`` with ``seeds`` each. ``ceiling``: what a perfect prediction would
    reach."""

    score: float
    low: float
    high: float
    ceiling: float | None
    coalitions: int
    seeds: int


@dataclass(frozen=True)
class Verdict:
    """A level of use for a property's credits. ``reason`` is the sentence of the first of the worst checks."""

    level: Level
    reason: str
    checks: tuple[Check, ...]


def verdict(
    credits: "Credits",
    *,
    yardstick: Yardstick,
    tested: Tested | None,
    higher_is_better: bool | None = None,
    untested: str = "",
    signal: float | None = None,
    misfit: str = "",
) -> Verdict:
    """Return the verdict on a property's credits.

    yardstick: the help from which a contributor matters.
    tested: what validation found; None if there was none, and then ``untested`` says what it would cost.
    higher_is_better: None for the credits' own direction.
    signal: the pilot's or the estimator's variance between coalitions over that between seeds.
    misfit: a sentence, if the estimator's model does not fit the evaluations.
    """
    checks = (
        _tested(tested, untested),
        _distinguishable(credits),
        _material(credits, yardstick, higher_is_better),
        *_fit(misfit, signal),
    )
    worst = max(checks, key=lambda check: LEVELS.index(check.level))  # the first of equals
    return Verdict(worst.level, worst.sentence, checks)


def _tested(tested: Tested | None, untested: str) -> Check:
    subject = "tested"
    if tested is None:
        return Check(subject, "use with care", untested or "The credits were never tested against retrained models.")
    ceiling = 1.0 if tested.ceiling is None else tested.ceiling
    reachable = "" if tested.ceiling is None else f"; a perfect prediction would reach about {ceiling:.2f}"
    interval = f"{_minus(tested.low)} to {_minus(tested.high)}" if isfinite(tested.low) else "interval unknown"
    seeds = "1 seed" if tested.seeds == 1 else f"{tested.seeds} seeds"
    score = _minus(tested.score) if isfinite(tested.score) else "none"  # where all credits or all models are equal
    found = (
        f"rank correlation {score} ({interval}{reachable}) with {tested.coalitions} retrained models of {seeds} each"
    )
    sure, good = tested.low > 0, tested.score >= ENOUGH_OF_CEILING * ceiling
    if sure and good:
        return Check(subject, "pay by it", f"The credits passed their test: {found}.")
    if good or not isfinite(tested.low):  # such as by ten models, which show little
        return Check(subject, "use with care", f"The test is too small to say whether the credits are right: {found}.")
    if sure:
        return Check(subject, "use with care", f"The credits did poorly in their test: {found}.")
    return Check(subject, "do not use", f"The credits failed their test: {found}.")


def _minus(value: float) -> str:
    """Return ``value`` with a true minus sign; a number that rounds to zero has none."""
    text = f"{value:.2f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def _distinguishable(credits: "Credits") -> Check:
    """Ask whether contributors differ at all: by the test of `equality`, or from few coalitions, whose signs have too
    few patterns to show anything, by all contributors' intervals at once (Bonferroni)."""
    if credits.table.units.max(initial=-1) + 1 < LEAST_UNITS:
        at_once = replace(credits, confidence=1 - SIGNIFICANT / len(credits.values))
        differ, how = bool(at_once.distinguishable.any()), "by all intervals at once"
    else:
        p = equality_p(credits.table)
        differ, how = p < SIGNIFICANT, f"p = {p:.2g}"
    if differ:
        return Check("distinguishable", "pay by it", f"Contributors differ ({how}).")
    sentence = f"The evaluations do not show that contributors differ at all ({how})."
    return Check("distinguishable", "do not use", sentence)


def _material(credits: "Credits", yardstick: Yardstick, higher_is_better: bool | None) -> Check:
    subject = "material"
    if not isfinite(yardstick.value):
        unknown = "How much another training seed changes the model is unknown; raise design.full_replicates to 3."
        return Check(subject, "use with care", unknown)
    sure = replace(credits, confidence=1 - SIGNIFICANT).distinguishable
    found = sure & matters(credits, yardstick)
    limit = f"{yardstick.words}, {yardstick.value:.3g}"
    if not found.any():
        return Check(subject, "use with care", f"Nobody surely differs from the average by more than {limit}.")
    help_ = credits.help(higher_is_better)
    first = int(np.argmax(np.where(found, np.abs(help_), -1)))
    more = "more" if help_[first] > 0 else "less"
    sentence = (
        f"{int(found.sum())} of {len(help_)} contributors surely differ from the average by more than {limit}; "
        f"{credits.names[first]} helps {abs(help_[first]):.3g} {more}."
    )
    return Check(subject, "pay by it", sentence)


def _fit(misfit: str, signal: float | None) -> "Iterator[Check]":
    if misfit:
        yield Check("fit", "use with care", misfit)
    if signal is not None:
        enough = signal >= LEAST_SIGNAL
        sentence = f"Signal {signal:.2g} times the noise of one evaluation (least: {LEAST_SIGNAL:g})."
        yield Check("signal", "pay by it" if enough else "use with care", sentence)
