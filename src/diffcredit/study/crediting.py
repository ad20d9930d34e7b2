"""From a ledger's evaluations to the credits of every property."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from diffcredit.credit import Credits, KnownSurrogate, estimate
from diffcredit.credit.estimate import DEFAULT, method_of
from diffcredit.credit.mixed_model import forget_regressions
from diffcredit.errors import UserError
from diffcredit.ledger import Evaluation, game_of
from diffcredit.study.config import StudyConfig
from diffcredit.study.reference import reference_of
from diffcredit.util.arrays import BoolArray

Surrogates = Callable[[str, BoolArray], Sequence[KnownSurrogate]]
"""A function from a property's name and coalitions (m, n) to the surrogates of that property, known there."""

THROUGH_ENDPOINTS = ("kernelshap", "permutation")
"""Shapley methods that use F(∅) for more than the level of the credits, and so need that of the game itself."""
BESIDE = ("banzhaf", "banzhaf-msr", "leave-one-out", "add-one-in", "datamodel", "datamodel-lasso")
"""Methods whose credits do not sum to F(all) − F(reference): the game itself is all they are about."""


def estimate_all(
    evaluations: Sequence[Evaluation],
    properties: Iterable[str],
    config: StudyConfig,
    method: str | None = None,
    confidence: float = 0.95,
    surrogates: Surrogates | None = None,
    names: Sequence[str] | None = None,
) -> tuple[dict[str, Credits], dict[str, str]]:
    """Return the credits of each property, and for properties without credits the reason. ``method``: None for the
    design's own. Only the default method uses ``surrogates``. ``names`` are the contributors'."""
    reference = reference_of(config)
    method = method or method_of(config.design.distribution)
    credits, reasons = {}, {}
    for name in properties:
        game = game_of(evaluations, name)
        known = surrogates(name, game.coalitions) if surrogates and method == DEFAULT else ()
        try:
            level = reference.value(name, evaluations, game)
            found = estimate(
                game.coalitions,
                game.values,
                empty=reference.nobody(game) if method in THROUGH_ENDPOINTS + BESIDE else level,
                full=game.full,
                method=method,
                size_distribution=config.design.distribution,
                confidence=confidence,
                surrogate=known or None,
                names=names,
            )
            if method in THROUGH_ENDPOINTS and isinstance(level, float):
                found = replace(found, values=found.values + (found.empty - level) / len(found.values), empty=level)
            credits[name] = replace(found, property_name=name)
        except UserError as error:
            reasons[name] = str(error)
    forget_regressions()
    return credits, reasons
