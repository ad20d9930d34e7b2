"""A pilot: a handful of evaluations that tell noise and signal before the money is spent.

Coalitions of half the contributors, each with several seeds. They are kept in the ledger with the purpose ``pilot``
and never enter an estimate.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from diffcredit.coalitions import encode, make_design
from diffcredit.credit import Credits
from diffcredit.credit.correlations import correlation
from diffcredit.credit.estimate import DEFAULT
from diffcredit.credit.pilot import Pilot, read_pilot
from diffcredit.credit.planning import signal_to_noise
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.execution import Executor, Task
from diffcredit.ledger import Evaluation
from diffcredit.ledger.purposes import PILOT_REPLICATE
from diffcredit.study.config import StudyConfig, ValidationSection
from diffcredit.util.seeds import derive_seed

if TYPE_CHECKING:
    from diffcredit.study.study import Study

COALITIONS, REPLICATES = 4, 3

QUIET_ENOUGH = 0.1  # signal/noise under which credits take too many evaluations
LEAST_ALIKE = 4  # coalitions that a correlation is told of
ENOUGH = 40  # evaluations that tell more than a pilot


def pilot_tasks(config: StudyConfig, n: int, coalitions: int = COALITIONS, replicates: int = REPLICATES) -> list[Task]:
    """``replicates`` seeds of each of ``coalitions``; all of that size where there are fewer. More of either only
    add."""
    design = make_design("subset(0.5)", derive_seed(config.seed, "pilot"))
    drawn = design.draw(n, 0, min(coalitions, comb(n, pilot_size(n))))
    return [
        Task(encode(coalition), PILOT_REPLICATE + replicate, "pilot")
        for replicate in range(replicates)
        for coalition in drawn
    ]


def pilot_size(n: int) -> int:
    """How many members the pilot's coalitions have."""
    return int(make_design("subset(0.5)").size_probabilities(n).argmax()) + 1


def run_pilot(study: "Study", executor: Executor, coalitions: int, replicates: int) -> Iterator[Evaluation]:
    """Evaluates what the ledger lacks of the pilot, and yields each evaluation once it is recorded."""
    if coalitions < 2 or replicates < 2:
        raise UserError(f"pilot: {coalitions} coalitions with {replicates} replicates; at least 2 of each are accepted")
    tasks = pilot_tasks(study.config, study.contributions.n, coalitions, replicates)
    yield from study.evaluate(executor, tasks, "evaluating the pilot")


def others(study: "Study") -> list["Study"]:
    """The study by each other retraining that validation compares with its own, and from scratch."""
    validation = study.config.validation or ValidationSection()
    sections = {section.recipe: section for section in (*validation.retrainings, validation.truth)}
    return [study.by(section, 1) for name, section in sections.items() if name != study.recipe]


def truth_of(studies: Sequence["Study"]) -> "Study":
    """That of ``studies``, a study with its :func:`others`, which retrains from scratch."""
    validation = studies[0].config.validation or ValidationSection()
    return next(each for each in studies if each.recipe == validation.truth.recipe)


def pilot_evaluations(study: "Study") -> list[Evaluation]:
    """The pilot's evaluations that are done; none where there is no ledger yet."""
    return study.evaluations(status="done", purpose="pilot")


def pilots(study: "Study") -> dict[str, Pilot]:
    """What the pilot tells of each property; a property with too few values is left out."""
    errors: dict[str, list[float]] = {}
    for evaluation in pilot_evaluations(study):
        for value in evaluation.values:
            if value.standard_error is not None:
                errors.setdefault(value.property, []).append(value.standard_error)
    found = {}
    for name, groups in _values(study).items():
        with suppress(UserError):
            found[name] = read_pilot(list(groups.values()), errors.get(name, ()))
    return found


def likeness(study: "Study", truth: "Study") -> dict[str, float]:
    """Each property's correlation, over the pilot's coalitions, of their mean values by the retrainings of both."""
    found, true = _values(study), _values(truth)
    alike = {}
    for name in found.keys() & true.keys():
        both = found[name].keys() & true[name].keys()
        if len(both) >= LEAST_ALIKE:
            means = [[np.mean(each[name][coalition]) for coalition in sorted(both)] for each in (found, true)]
            alike[name] = correlation(*np.array(means), "pearson")
    return alike


def _values(study: "Study") -> dict[str, dict[str, list[float]]]:
    """The pilot's values by property and coalition, in the order of their seeds."""
    values: dict[str, dict[str, list[float]]] = {}
    for evaluation in sorted(pilot_evaluations(study), key=lambda e: e.key):
        for value in evaluation.values:
            if value.value is not None:
                values.setdefault(value.property, {}).setdefault(evaluation.coalition, []).append(value.value)
    return values


def signals(study: "Study") -> dict[str, float]:
    """Each property's signal/noise: by the evaluations once they are enough, or else by the pilot; nothing where there
    is neither."""
    evaluated = study.schedule().evaluated()
    credits: dict[str, Credits] = {}
    if len(evaluated) >= ENOUGH:
        with suppress(UserError):  # values may all be lacking
            credits = study.credits(DEFAULT, corrected=False)
    if not credits:
        return {name: pilot.ratio for name, pilot in pilots(study).items()}
    sizes = [evaluation.coalition.count("1") for evaluation in evaluated]
    return {
        name: signal_to_noise(each.diagnostics["tau"], each.diagnostics["sigma"], sizes, len(each.values))
        for name, each in credits.items()
    }


def warn_of_noise(signals: Mapping[str, float]) -> None:
    """Warns of every property whose signal/noise is too low for credits."""
    for name, ratio in signals.items():
        if ratio < QUIET_ENOUGH:
            warnings.warn(
                f"{name}: signal/noise {ratio:.2g} is under {QUIET_ENOUGH}: contributors make that little of a value's "
                "variance; look for quieter retraining before evaluating more",
                DiffcreditWarning,
                stacklevel=2,
            )
