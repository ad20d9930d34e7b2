"""A study's cost: every piece of work that its ledger and its artifact cache know of."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from diffcredit.ledger import Evaluation, Ledger
from diffcredit.report.records import CostRow
from diffcredit.study.identity import prepared_identity, recorded_base
from diffcredit.util.cache import artifact_name

if TYPE_CHECKING:
    from diffcredit.study.study import Study

WORK = {
    "estimate": "evaluations of the design, from which credits are estimated",
    "endpoint": "evaluations of the endpoints: everybody, and nobody or the house alone",
    "reference": "evaluations of the reference",
    "pilot": "evaluations of the pilot",
    "truth": "truth evaluations, from which the credits are validated",
    "validation": "other evaluations of validation",
}
"""The use of each purpose's evaluations, in the order of the table."""


def cost(study: "Study", ledger: Ledger, *, trains_base: bool) -> tuple[CostRow, ...]:
    """Return the cost of the base model's training, if the study ``trains_base``, of the retraining's preparation, and
    of all evaluations by recipe and purpose."""
    recipes = ledger.recipes(study.name)
    own = next(recipe for recipe in recipes if recipe.name == study.recipe.name)
    base = artifact_name("base", recorded_base(own.settings))
    mark = artifact_name("retraining", prepared_identity(own.settings))
    rows = [_made(study, "training of the base model", base)] if trains_base else []
    rows.append(_made(study, f"{own.name}: preparation, such as pruning", mark))
    for recipe in sorted(recipes, key=lambda recipe: recipe is not own):
        rows += _evaluations(recipe.name, ledger.evaluations(study.name, recipe.name))
    return tuple(rows)


def _made(study: "Study", what: str, artifact: str) -> CostRow:
    seconds = study.cache.seconds(artifact)
    return CostRow(what, seconds=None if seconds is None else {"training": seconds})


def _evaluations(recipe: str, evaluations: Sequence[Evaluation]) -> list[CostRow]:
    by_purpose = defaultdict(list)
    for evaluation in evaluations:
        by_purpose[evaluation.purpose].append(evaluation)
    return [
        CostRow(
            f"{recipe}: {WORK[purpose]}",
            done=sum(each.status == "done" for each in by_purpose[purpose]),
            failed=sum(each.status == "failed" for each in by_purpose[purpose]),
            seconds=sum((Counter(each.seconds) for each in by_purpose[purpose]), Counter()),
        )
        for purpose in WORK
        if purpose in by_purpose
    ]
