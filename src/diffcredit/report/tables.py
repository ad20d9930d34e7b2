"""Credit tables of a study, from its ledger alone: no image is read and no model loaded."""

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from diffcredit.credit import Credits
from diffcredit.credit.intervals import half_width as half_widths_of
from diffcredit.credit.materiality import matters
from diffcredit.credit.verdicts import Verdict
from diffcredit.ledger import Evaluation, PropertyRecord, values_missing
from diffcredit.report.records import INTERVALS, CreditTable, Reference, Step
from diffcredit.study.reference import ADAPTED
from diffcredit.validation.verdicts import study_verdicts, yardstick

if TYPE_CHECKING:
    from diffcredit.study.study import Study

STEPS = 8  # contributors that the waterfall names
COLUMNS = ("credit", "low", "high", *INTERVALS)


def credit_tables(
    study: "Study", method: str | None = None, confidence: float = 0.95, *, shares: bool = False
) -> tuple[CreditTable, ...]:
    """Return the credits of every property with evaluations, by ``method`` or, by default, by the design's own.
    ``shares``: also where the reference is an untrained network."""
    credits = study.credits(method, confidence)
    verdicts = study_verdicts(study, credits)
    images, properties, evaluations = _read_ledger(study)
    return tuple(
        _table(study, images, evaluations, [prop.name], each, verdicts[prop.name], shares=shares)
        for prop in properties
        if (each := credits.get(prop.name)) is not None
    )


def mixed_table(study: "Study", mixed: Credits, method: str, *, shares: bool = False) -> CreditTable:
    """Return the table of a mix of properties (``diffcredit.credit.mix``), each by ``method``."""
    weights = {key.removeprefix("weight_"): weight for key, weight in mixed.diagnostics.items()}
    name = ",".join(f"{name}={weight:.12g}" for name, weight in weights.items())
    terms = " ".join(f"{'−' if weight < 0 else '+'} {abs(weight):.12g} × {name}" for name, weight in weights.items())
    named = replace(mixed, property_name=name, method=method)
    (found,) = study_verdicts(study, {name: named}).values()
    images, _, evaluations = _read_ledger(study)
    table = _table(study, images, evaluations, list(weights), named, found, shares=shares)
    return replace(table, title=terms.removeprefix("+ "))


def _read_ledger(study: "Study") -> tuple[dict[str, int], list[PropertyRecord], list[Evaluation]]:
    with study.ledger(create=False) as ledger:
        recipe = next(recipe for recipe in ledger.recipes(study.name) if recipe.name == study.recipe.name)
        evaluations = ledger.evaluations(study.name, study.recipe.name)
        return recipe.settings["data"]["images"], study.measured(ledger), evaluations


def _table(
    study: "Study",
    images: Mapping[str, int],
    evaluations: list[Evaluation],
    measured: list[str],
    credits: Credits,
    verdict: Verdict,
    *,
    shares: bool,
) -> CreditTable:
    """Return the table of ``credits`` from the properties ``measured``; evaluations without a value count as failed."""
    done = {e.key for e in evaluations if e.status == "done"}
    failed = len({e.key for e in evaluations} - done)
    reference = _reference(study)
    without = why_no_shares(credits, reference, asked=shares)
    unknown = np.full(len(images), nan)
    bounds = (unknown, unknown) if without else credits.share_intervals()
    intervals = (*credits.rank_intervals(), *bounds, credits.contrast_half_width)
    arrays = zip(COLUMNS, (credits.values, credits.low, credits.high, *intervals), strict=True)
    columns: dict[str, Any] = {name: tuple(array.tolist()) for name, array in arrays}
    return CreditTable(
        property=credits.property_name,
        title=credits.property_name,
        explanation="",
        higher_is_better=credits.higher_is_better,
        unit="",
        contributors=tuple(images),
        images=tuple(images.values()),
        **columns,
        confidence=credits.confidence,
        empty=credits.empty,
        full=credits.full,
        evaluations=credits.evaluations,
        failed=failed + max(values_missing(evaluations, name) for name in measured),
        method=credits.method,
        diagnostics=credits.diagnostics,
        reference=reference,
        no_shares=without,
        verdict=verdict,
        matters=_matters(study, credits),
        steps=waterfall_steps(credits) if credits.efficient else (),
    )


def waterfall_steps(credits: Credits) -> tuple[Step, ...]:
    """Return the credits of the most helpful contributors, and of all others together, whose errors are added."""
    order = np.argsort(-credits.help(), kind="stable")
    top = order if len(order) <= STEPS + 1 else order[:STEPS]
    half_widths = credits.high - credits.values
    steps = [Step(credits.names[i], float(credits.values[i]), float(half_widths[i])) for i in top]
    others = order[len(top) :]
    if not len(others):
        return tuple(steps)
    variance = np.array([np.square(credits.influence[others].sum(axis=0)).sum()])
    bias = np.array([np.sqrt(np.square(credits.bias[others]).sum())])
    half_width = float(half_widths_of(variance, bias, credits.degrees, credits.confidence)[0])
    return (*steps, Step(f"{len(others)} others", float(credits.values[others].sum()), half_width))


def _reference(study: "Study") -> Reference:
    found = study.reference
    # a pipeline without adapter comes trained: it may well be somebody's alternative
    trained = found.kind == "untrained" and study.config.model.family == ADAPTED
    return Reference("pretrained" if trained else found.kind, found.words)


def _matters(study: "Study", credits: Credits) -> tuple[bool, ...]:
    least = yardstick(study, credits)
    return tuple(matters(credits, least).tolist()) if isfinite(least.value) else ()


def why_no_shares(credits: Credits, reference: Reference, *, asked: bool) -> str:
    """Return why there are no shares and what to do, in a sentence; nothing where there are."""
    if not credits.efficient:
        return f"No shares: credits by {credits.method} are no parts of a total; compare contributors by help."
    if reference.kind == "untrained" and not asked:
        return (
            "No shares: they would be parts of the way from an untrained network, which is nobody's alternative. State "
            "a reference in the study file (house, pretrained, or the value of the model in use today), or see them "
            "with diffcredit credits --shares."
        )
    if credits.surely_help():
        return ""
    if credits.surely_help(not credits.higher_is_better):
        return (
            f"No shares: all contributors together make the model worse than {reference.words}, so there is nothing to "
            "share. Compare contributors by help, which does not depend on the reference."
        )
    return (
        f"No shares: it is not sure that all contributors together improve on {reference.words}. Compare contributors "
        "by help, which does not depend on the reference, or evaluate everybody's model more often "
        "(design.full_replicates)."
    )
