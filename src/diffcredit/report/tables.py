"""Credit tables of a study, from its ledger alone: no image is read and no model loaded."""

from typing import TYPE_CHECKING

from diffcredit.credit import Credits
from diffcredit.ledger import Evaluation, PropertyRecord, game_of
from diffcredit.report.records import INTERVALS, CreditTable

if TYPE_CHECKING:
    from diffcredit.study.study import Study


def credit_tables(study: "Study", method: str | None = None, confidence: float = 0.95) -> tuple[CreditTable, ...]:
    """Return the credits of every property with evaluations, by ``method`` or, by default, by the design's own."""
    credits = study.credits(method, confidence)
    images, properties, evaluations = _read_ledger(study)
    return tuple(
        _table(images, evaluations, [prop.name], each, each.method, prop.name, prop.name, prop.higher_is_better)
        for prop in properties
        if (each := credits.get(prop.name)) is not None
    )


def mixed_table(study: "Study", mixed: Credits, method: str) -> CreditTable:
    """Return the table of a mix of properties (``diffcredit.credit.mix``), each by ``method``; higher is better."""
    weights = {key.removeprefix("weight_"): weight for key, weight in mixed.diagnostics.items()}
    images, _, evaluations = _read_ledger(study)
    name = ",".join(f"{name}={weight:.12g}" for name, weight in weights.items())
    terms = " ".join(f"{'−' if weight < 0 else '+'} {abs(weight):.12g} × {name}" for name, weight in weights.items())
    return _table(images, evaluations, list(weights), mixed, method, name, terms.removeprefix("+ "), True)


def _read_ledger(study: "Study") -> tuple[dict[str, int], list[PropertyRecord], list[Evaluation]]:
    with study.ledger(create=False) as ledger:
        recipe = next(recipe for recipe in ledger.recipes(study.name) if recipe.name == study.recipe.name)
        evaluations = ledger.evaluations(study.name, study.recipe.name)
        return recipe.settings["data"]["images"], ledger.properties(study.name), evaluations


def _table(
    images: dict[str, int],
    evaluations: list[Evaluation],
    measured: list[str],
    credits: Credits,
    method: str,
    property: str,
    title: str,
    higher_is_better: bool,
) -> CreditTable:
    """Return the table of ``credits`` from the properties ``measured``; evaluations without a value count as failed."""
    done = {e.key for e in evaluations if e.status == "done"}
    failed = len({e.key for e in evaluations} - done)
    names = ("credit", "low", "high", *INTERVALS)
    intervals = (*credits.rank_intervals(higher_is_better), *credits.share_intervals(), credits.contrast_half_width)
    columns = zip(names, (credits.values, credits.low, credits.high, *intervals), strict=True)
    return CreditTable(
        property=property,
        title=title,
        explanation="",
        higher_is_better=higher_is_better,
        unit="",
        contributors=tuple(images),
        images=tuple(images.values()),
        **{name: tuple(column.tolist()) for name, column in columns},
        confidence=credits.confidence,
        empty=credits.empty,
        full=credits.full,
        evaluations=credits.evaluations,
        failed=failed + max(game_of(evaluations, name).missing for name in measured),
        method=method,
        diagnostics=credits.diagnostics,
    )
