"""Credit tables of a study, from its ledger alone: no image is read, no model loaded."""

from typing import TYPE_CHECKING

from diffcredit.ledger import game_of
from diffcredit.report.records import CreditTable

if TYPE_CHECKING:
    from diffcredit.study import Study


def credit_tables(study: "Study", method: str = "shapley", confidence: float = 0.95) -> tuple[CreditTable, ...]:
    """The credits of every property for which there are evaluations."""
    credits = study.credits(method, confidence)
    with study.ledger(create=False) as ledger:
        evaluations = ledger.evaluations(study.name, study.recipe)
        properties = ledger.properties(study.name)
        recipe = next(recipe for recipe in ledger.recipes(study.name) if recipe.name == study.recipe)
    images = recipe.settings["data"]["images"]
    done = {(e.coalition, e.replicate) for e in evaluations if e.status == "done"}
    failed = len({(e.coalition, e.replicate) for e in evaluations} - done)
    return tuple(
        CreditTable(
            property=prop.name,
            title=prop.name,
            explanation="",
            higher_is_better=prop.higher_is_better,
            unit="",
            contributors=tuple(images),
            images=tuple(images.values()),
            credit=tuple(credits[prop.name].values.tolist()),
            low=tuple(credits[prop.name].low.tolist()),
            high=tuple(credits[prop.name].high.tolist()),
            confidence=confidence,
            empty=credits[prop.name].empty,
            full=credits[prop.name].full,
            evaluations=credits[prop.name].evaluations,
            failed=failed + game_of(evaluations, prop.name).lacking,
            method=method,
            diagnostics=credits[prop.name].diagnostics,
        )
        for prop in properties
        if prop.name in credits
    )
