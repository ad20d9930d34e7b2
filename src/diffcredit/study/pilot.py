"""A pilot: a few evaluations that show noise and signal before the whole study is paid for.

It evaluates coalitions of half the contributors, each with several seeds. Values differ between seeds by noise, and
between coalitions by signal too. The ledger records pilots with the purpose ``pilot``; they never enter an estimate.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from diffcredit.coalitions import encode, make_design
from diffcredit.credit import Credits
from diffcredit.credit.correlations import correlation
from diffcredit.credit.estimate import DEFAULT
from diffcredit.credit.planning import Pilot, evaluations_needed, read_pilot, signal_to_noise
from diffcredit.credit.verdicts import LEAST_SIGNAL
from diffcredit.errors import UserError
from diffcredit.execution import Executor, Task
from diffcredit.ledger import Evaluation
from diffcredit.ledger.purposes import PILOT_REPLICATE
from diffcredit.study.config import StudyConfig
from diffcredit.study.evaluating import evaluate_tasks
from diffcredit.study.sections import ValidationSection
from diffcredit.util.seeds import derive_seed

if TYPE_CHECKING:
    from diffcredit.study.recipe import Recipe
    from diffcredit.study.study import Study

COALITIONS, REPLICATES = 4, 3

LEAST_ALIKE = 4  # coalitions that a reported correlation needs
ENOUGH = 40  # evaluations from which signal and noise are better known than from a pilot
TARGET = 0.9  # the correlation with the exact credits for which evaluations are estimated
UNKNOWN = 20  # times the expected number of evaluations: a bound beyond that is none
REMEDIES = (
    "annealing and tail averaging, if they are off (retraining.schedule: cosine, retraining.average_tail: 0.25); more "
    "fine-tuning steps; a base model trained for longer"
)


def pilot_tasks(config: StudyConfig, n: int, coalitions: int = COALITIONS, replicates: int = REPLICATES) -> list[Task]:
    """Return the tasks of a pilot: ``replicates`` seeds of each of ``coalitions`` coalitions of half the contributors,
    or of all such coalitions if there are fewer. Asking for more of either only adds tasks."""
    design = make_design("subset(0.5)", derive_seed(config.seed, "pilot"))
    drawn = design.draw(n, 0, min(coalitions, comb(n, pilot_size(n))))
    return [
        Task(encode(coalition), PILOT_REPLICATE + replicate, "pilot")
        for replicate in range(replicates)
        for coalition in drawn
    ]


def pilot_size(n: int) -> int:
    """Return how many members the pilot's coalitions have."""
    return int(make_design("subset(0.5)").size_probabilities(n).argmax()) + 1


def run_pilot(recipe: "Recipe", executor: Executor, coalitions: int, replicates: int) -> Iterator[Evaluation]:
    """Evaluate the pilot's missing tasks, and yield each evaluation once it is recorded."""
    if coalitions < 2 or replicates < 2:
        raise UserError(f"pilot: {coalitions} coalitions with {replicates} replicates; at least 2 of each are accepted")
    tasks = pilot_tasks(recipe.study.config, recipe.study.contributions.n, coalitions, replicates)
    yield from evaluate_tasks(recipe, executor, tasks, "evaluating the pilot")


def other_recipes(study: "Study") -> list["Recipe"]:
    """Return the recipes that validation compares with the study's own, and that of models retrained from scratch."""
    validation = study.config.validation or ValidationSection()
    sections = {section.recipe: section for section in (*validation.retrainings, validation.truth)}
    return [study.recipe_with(section, 1) for name, section in sections.items() if name != study.recipe.name]


def truth_of(recipes: Sequence["Recipe"]) -> "Recipe":
    """Return the one of ``recipes``, a study's own with its :func:`other_recipes`, that retrains from scratch."""
    validation = recipes[0].study.config.validation or ValidationSection()
    return next(each for each in recipes if each.name == validation.truth.recipe)


def pilot_evaluations(recipe: "Recipe") -> list[Evaluation]:
    """Return the pilot's evaluations that are done; none where there is no ledger yet."""
    return recipe.evaluations(status="done", purpose="pilot")


def pilots(recipe: "Recipe") -> dict[str, Pilot]:
    """Return the noise and signal of each property by the pilot; a property with too few values is left out."""
    values = [value for evaluation in pilot_evaluations(recipe) for value in evaluation.values]
    found = {}
    for name, groups in _values(recipe).items():
        errors = [each.standard_error for each in values if each.property == name and each.standard_error is not None]
        with suppress(UserError):
            found[name] = read_pilot(list(groups.values()), errors)
    return found


def likeness(recipe: "Recipe", truth: "Recipe") -> dict[str, float]:
    """Return how both recipes' mean values correlate over the pilot's coalitions, for each property."""
    found, true = _values(recipe), _values(truth)
    alike = {}
    for name in found.keys() & true.keys():
        both = found[name].keys() & true[name].keys()
        if len(both) >= LEAST_ALIKE:
            means = [[np.mean(each[name][coalition]) for coalition in sorted(both)] for each in (found, true)]
            alike[name] = correlation(*np.array(means), "pearson")
    return alike


def _values(recipe: "Recipe") -> dict[str, dict[str, list[float]]]:
    """Return the pilot's values by property and coalition, in the order of their seeds."""
    values: dict[str, dict[str, list[float]]] = {}
    for evaluation in sorted(pilot_evaluations(recipe), key=lambda e: e.key):
        for name, value in evaluation.measured.items():
            values.setdefault(name, {}).setdefault(evaluation.coalition, []).append(value)
    return values


@dataclass(frozen=True)
class Signal:
    """One property's signal beside its noise, and what they ask for: the one source of what ``pilot``, ``plan``,
    ``run`` and the report say of them.

    ``ratio``: of the variance that contributors explain to that of the noise, with the pilot's interval from ``low`` to
    ``high`` (NaN: not known). ``source``: what it is from, in words; ``piloted``: whether that is a pilot. ``needed``
    evaluations should reach a correlation of :data:`TARGET`, at least ``least``, at most ``most``. ``from_images``:
    whether most of the noise comes from the images.
    """

    ratio: float
    low: float
    high: float
    source: str
    piloted: bool
    needed: float
    least: float
    most: float
    from_images: bool = False

    @property
    def too_noisy(self) -> bool:
        """Whether the signal seems too weak for credits."""
        return self.ratio < LEAST_SIGNAL

    def sentence(self) -> str:
        """Return the ratio, what it is from, and what to do."""
        interval = f" ({self.low:.2g} to {_up_to(self.high)})" if math.isfinite(self.low) else ""
        found = f"signal/noise {self.ratio:.2g}{interval} by {self.source}"
        larger = "; diffcredit pilot --coalitions 8 narrows this" if self.piloted else ""
        helps = f"What helps: {'more sampling.images, since most noise is theirs; ' * self.from_images}{REMEDIES}"
        if not self.too_noisy:
            unknown = self.most > UNKNOWN * self.needed
            bounds = f"at least {_count(self.least)}" + ("" if unknown else f", at most {_count(self.most)}")
            return (
                f"{found}: about {_count(self.needed)} evaluations should reach a correlation of {TARGET:g} with the "
                f"exact credits{f' ({bounds}{larger * unknown})' * math.isfinite(self.low)}"
            )
        if self.piloted and self.high >= LEAST_SIGNAL:
            return (
                f"{found}: too few evaluations to say whether it is above {LEAST_SIGNAL}, which credits need"
                f"{larger}. {helps}"
            )
        return f"{found} is under {LEAST_SIGNAL}: contributors explain little of a value's variance. {helps}"


def signals(study: "Study", credits: Mapping[str, Credits] | None = None) -> dict[str, float]:
    """Return each property's signal/noise: by the evaluations once there are enough, or else by the pilot. ``credits``
    of the study serve where they are those of the evaluations alone by the default method."""
    found = read_signals(study.recipe, credits if credits and all(map(_uncorrected, credits.values())) else None)
    return {name: signal.ratio for name, signal in found.items()}


def _uncorrected(credits: Credits) -> bool:
    """Return whether credits are by the default method, without surrogates, and no mix."""
    return credits.method == DEFAULT and not credits.parts and "anchor_1" not in credits.diagnostics


def read_signals(recipe: "Recipe", credits: Mapping[str, Credits] | None = None) -> dict[str, Signal]:
    """Return each property's signal: by the evaluations once there are enough, or else by the pilot. ``credits``: by
    the default method from the evaluations alone, where the caller has them."""
    study, found = recipe.study, {}
    for name, each in (_own_credits(recipe) if credits is None else credits).items():
        if each.evaluations >= ENOUGH:
            tau, sigma, n = each.diagnostics["tau"], each.diagnostics["sigma"], len(each.values)
            sizes = np.repeat(each.table.sizes, each.table.replicates)
            needed = _needed(study.config, n, signal_to_noise(tau, sigma, [pilot_size(n)], n))
            source = f"{each.evaluations} evaluations"
            ratio = signal_to_noise(tau, sigma, sizes, n)
            found[name] = Signal(ratio, math.nan, math.nan, source, False, needed, needed, needed)
    if found:
        return found
    n = next((len(each.coalition) for each in pilot_evaluations(recipe)), 0)  # the images may be elsewhere
    return {name: _of_pilot(study.config, n, pilot) for name, pilot in pilots(recipe).items()}


def _own_credits(recipe: "Recipe") -> dict[str, Credits]:
    """Return the credits of the study's own recipe by the evaluations alone; none of others, and none while a pilot
    knows more."""
    if recipe is recipe.study.recipe and len(recipe.evaluations("done", "estimate")) >= ENOUGH:
        with suppress(UserError):  # all values may be missing
            return recipe.study.credits(DEFAULT, corrected=False)
    return {}


def signal_sentences(recipe: "Recipe") -> list[str]:
    """Return a sentence for each property: its signal and noise, and what they ask for."""
    return [f"{name}: {signal.sentence()}" for name, signal in read_signals(recipe).items()]


def noise_warnings(study: "Study") -> list[str]:
    """Return the sentences of the properties whose signal is too weak for credits, for the report and for runs."""
    found = read_signals(study.recipe)
    return [f"{name}: {signal.sentence()}" for name, signal in found.items() if signal.too_noisy]


def _of_pilot(config: StudyConfig, n: int, pilot: Pilot) -> Signal:
    least, needed, most = (_needed(config, n, ratio) for ratio in (pilot.high, pilot.ratio, pilot.low))
    from_images = pilot.images is not None and pilot.images**2 > pilot.within**2 / 2
    source = f"a pilot of {pilot.evaluations} evaluations"
    return Signal(pilot.ratio, pilot.low, pilot.high, source, True, needed, least, most, from_images)


def _needed(config: StudyConfig, n: int, ratio: float) -> float:
    """Return how many evaluations a ratio at the pilot's size asks for; even without noise, n contributors need n."""
    return max(n, evaluations_needed(ratio, pilot_size(n), n, config.design.distribution, TARGET))


def _up_to(ratio: float) -> str:
    return f"{ratio:.2g}" if math.isfinite(ratio) else "any"


def _count(evaluations: float) -> str:
    """Return a number of evaluations with two digits; more are not known."""
    if not math.isfinite(evaluations):
        return "very many"
    if evaluations < 100:
        return f"{max(1, math.ceil(evaluations))}"
    return f"{int(float(f'{evaluations:.1e}')):,}"
