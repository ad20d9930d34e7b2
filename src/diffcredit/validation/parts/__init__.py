"""The parts of a validation, one file each.

A part is three functions. ``work`` returns the evaluations that it needs, ``result`` computes its numbers from a
`ValidationData`, and ``section`` turns these into sentences, tables and figures.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from diffcredit.validation.data import PartWork, ValidationData
from diffcredit.validation.parts import (
    budget,
    contributors,
    convergence,
    counterfactual,
    fidelity,
    lds,
    runtime,
    surrogacy,
    unlearning,
)
from diffcredit.validation.presentation.sections import PartResult, Section


@dataclass(frozen=True)
class Part:
    """One kind of evidence. ``before_lds``, for a part whose work depends on the part ``lds``: the work as far as it is
    known before that part has been computed."""

    work: Callable[[ValidationData], Sequence[PartWork]]
    result: Callable[[ValidationData], PartResult[Any]]
    section: Callable[[Any], Section]
    before_lds: Callable[[ValidationData], Sequence[PartWork]] | None = None


PARTS = {
    "lds": Part(lds.work, lds.result, lds.section),
    "surrogates": Part(surrogacy.work, surrogacy.result, surrogacy.section),
    "counterfactual": Part(
        counterfactual.work, counterfactual.result, counterfactual.section, counterfactual.expected_work
    ),
    "fidelity": Part(fidelity.work, fidelity.result, fidelity.section),
    "convergence": Part(convergence.work, convergence.result, convergence.section),
    "budget": Part(budget.work, budget.result, budget.section),
    "runtime": Part(runtime.work, runtime.result, runtime.section),
    "unlearning": Part(unlearning.work, unlearning.result, unlearning.section),
    "contributors": Part(contributors.work, contributors.result, contributors.section),
}
"""In the order in which they run: a later part may use what an earlier one has evaluated."""
