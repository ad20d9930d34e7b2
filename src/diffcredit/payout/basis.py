"""The basis of a payout: a policy, the credits that it pays by, and all that is known about how good they are.

Only the ledger is read. What a payout does with it is in :mod:`.paying`, what a manipulation would change in
:mod:`.manipulation`.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from diffcredit.credit import Credits
from diffcredit.credit import mix as mixed
from diffcredit.credit.verdicts import LEVELS, Tested, Verdict
from diffcredit.errors import UserError, located
from diffcredit.payout.measures import title_of, titles
from diffcredit.payout.merit import Contributors, Standing, cut_off, standing
from diffcredit.payout.reliability import Followed, followed
from diffcredit.study.entered import check_policy, policy_of
from diffcredit.study.policy import PolicySection
from diffcredit.util.arrays import BoolArray
from diffcredit.util.decimals import exactly
from diffcredit.validation.verdicts import score_against_truth, study_verdicts

if TYPE_CHECKING:
    from diffcredit.study.study import Study


@dataclass(frozen=True, eq=False)
class Basis:
    """What a payout follows from. ``where`` names the policy's place, ``sign`` is −1 where a lower value is paid for,
    ``cut`` (n,) says who is cut off, ``data`` are the recipe's settings of the data.
    ``title`` is what contributors are paid for, and ``explanations`` what each property is, by its title."""

    policy: PolicySection
    where: str
    credits: Credits
    contributors: Contributors
    sign: int
    standing: Standing
    cut: BoolArray
    verdict: Verdict
    tested: Tested | None
    followed: Followed
    data: dict[str, Any]
    title: str
    explanations: dict[str, str]

    @property
    def verdict_suffices(self) -> bool:
        """Whether the verdict is at least what the policy asks for."""
        return LEVELS.index(self.verdict.level) <= LEVELS.index(self.policy.verdict)


@exactly
def basis_of(study: "Study", policy_file: Path | None = None) -> Basis:
    """Return the basis of a study's payout by the policy in ``policy_file``, or by the study file's."""
    policy, where = policy_of(study, policy_file)
    credits = study.credits()
    with study.ledger(create=False) as ledger:
        recipe = next(recipe for recipe in ledger.recipes(study.name) if recipe.name == study.recipe.name)
        check_policy(study, policy, where, [record.name for record in study.measured(ledger)])
    credit = _paid_for(policy, where, credits)
    data = recipe.settings["data"]
    lots = data.get("lots", {})
    images = {name: data["images"][name] for name in credit.names}
    contributors = Contributors.of(images, lots.get("whose", {}), lots.get("lot"))
    higher = credit.higher_is_better if policy.direction is None else policy.direction == "higher"
    found = standing(credit, contributors, 1 if higher else -1)
    named = replace(credit, method=next(iter(credits.values())).method, higher_is_better=higher)
    (verdict,) = study_verdicts(study, {named.property_name: named}).values()
    tested = score_against_truth(study, {named.property_name: named}).get(named.property_name)
    words = titles(study, policy.weights)
    return Basis(
        policy=policy,
        where=where,
        credits=named,
        contributors=contributors,
        sign=1 if higher else -1,
        standing=found,
        cut=cut_off(found, policy),
        verdict=verdict,
        tested=tested,
        followed=followed(policy, named, tested),
        data=data,
        title=title_of(policy, words),
        explanations=dict(words.values()),
    )


def _paid_for(policy: PolicySection, where: str, credits: dict[str, Credits]) -> Credits:
    """Return the credits that the policy pays by."""
    for name in policy.weights:
        if name not in credits:
            raise UserError(f"{where}: {name!r} has no credits yet; there are credits for: {', '.join(credits)}")
    if policy.mix is None:
        found = credits[str(policy.property)]
    else:
        with located(f"{where}: mix"):
            # a weight says by its sign which way its property is better
            weights = {name: float(weight) for name, weight in policy.mix.items()}
            found = replace(mixed(credits, weights), higher_is_better=True)
    if not np.isfinite(found.standard_error).all():
        raise UserError(
            f"{where}: the credits' intervals are not known from {found.evaluations} evaluations; run more before "
            "anybody is paid"
        )
    return found
