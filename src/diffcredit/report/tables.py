"""Credit tables of a study, from its ledger alone: no image is read and no model loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffcredit.credit import Credits
from diffcredit.ledger import Evaluation, PropertyRecord, game_of
from diffcredit.report.records import CreditTable

if TYPE_CHECKING:
    from diffcredit.study.study import Study


def credit_tables(study: "Study", method: str | None = None, confidence: float = 0.95) -> tuple[CreditTable, ...]:
    """Return the credits of every property with evaluations, by ``method`` or, by default, by the design's own."""
    credits, record = study.credits(method, confidence), _Record.of(study)
    return tuple(
        record.table(each, each.method, prop.name, prop.name, prop.higher_is_better, record.missing(prop.name))
        for prop in record.properties
        if (each := credits.get(prop.name)) is not None
    )


def mixed_table(study: "Study", mixed: Credits, method: str) -> CreditTable:
    """Return the table of a mix of properties (``diffcredit.credit.mix``), each by ``method``; higher is better."""
    weights = {key.removeprefix("weight_"): weight for key, weight in mixed.diagnostics.items()}
    record = _Record.of(study)
    terms = " ".join(f"{'−' if weight < 0 else '+'} {abs(weight):.12g} × {name}" for name, weight in weights.items())
    return record.table(
        mixed,
        method,
        property=",".join(f"{name}={weight:.12g}" for name, weight in weights.items()),
        title=terms.removeprefix("+ "),
        higher_is_better=True,
        missing=max(map(record.missing, weights)),
    )


@dataclass(frozen=True)
class _Record:
    """The parts of a study's ledger besides the values; ``images`` is the number of each contributor's images."""

    images: Mapping[str, int]
    properties: list[PropertyRecord]
    evaluations: list[Evaluation]

    @classmethod
    def of(cls, study: "Study") -> "_Record":
        with study.ledger(create=False) as ledger:
            recipe = next(recipe for recipe in ledger.recipes(study.name) if recipe.name == study.recipe.name)
            evaluations = ledger.evaluations(study.name, study.recipe.name)
            return cls(recipe.settings["data"]["images"], ledger.properties(study.name), evaluations)

    def missing(self, prop: str) -> int:
        """Return how many done evaluations have no value of this property."""
        return game_of(self.evaluations, prop).missing

    def table(
        self, credits: Credits, method: str, property: str, title: str, higher_is_better: bool, missing: int
    ) -> CreditTable:
        done = {e.key for e in self.evaluations if e.status == "done"}
        failed = len({e.key for e in self.evaluations} - done)
        rank_low, rank_high = credits.rank_intervals(higher_is_better)
        share_low, share_high = credits.share_intervals()
        return CreditTable(
            property=property,
            title=title,
            explanation="",
            higher_is_better=higher_is_better,
            unit="",
            contributors=tuple(self.images),
            images=tuple(self.images.values()),
            credit=tuple(credits.values.tolist()),
            low=tuple(credits.low.tolist()),
            high=tuple(credits.high.tolist()),
            rank_low=tuple(rank_low.tolist()),
            rank_high=tuple(rank_high.tolist()),
            share_low=tuple(share_low.tolist()),
            share_high=tuple(share_high.tolist()),
            contrast_half_width=tuple(credits.contrast_half_width.tolist()),
            confidence=credits.confidence,
            empty=credits.empty,
            full=credits.full,
            evaluations=credits.evaluations,
            failed=failed + missing,
            method=method,
            diagnostics=credits.diagnostics,
        )
