"""The policy's entry in the ledger, which fixes it before anybody knows the credits.

A run enters the policy of the study file before it trains anything. As long as there are no evaluations another policy
may follow, and the last one counts. Afterwards none may: who changes a rule after seeing credits decides who gets
money. A first policy may still be entered then, and every page of a payout says so.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffcredit.errors import UserError, located
from diffcredit.execution.tasks import utc_now
from diffcredit.ledger import Entry, Ledger, differences
from diffcredit.study.policy import PolicySection, read_policy
from diffcredit.util.artifacts import fingerprint

if TYPE_CHECKING:
    from diffcredit.study.study import Study

KIND = "policy"


def policy_of(study: "Study", file: Path | None = None) -> tuple[PolicySection, str]:
    """Return the policy in ``file``, or else that of the study file, and where it stands, for messages."""
    stated = study.config.payout
    if file is None and stated is None:
        raise UserError(f"{study.file}: payout: missing; state a policy there, or give the file of one with --policy")
    if file is None and isinstance(stated, PolicySection):
        return stated, f"{study.file}: payout"
    place = file or Path(str(stated))
    return read_policy(place), str(place)


def check_policy(study: "Study", policy: PolicySection, where: str, properties: Collection[str]) -> None:
    """Refuse a policy that does not suit the study, which measures these ``properties``."""
    with located(where):
        key = "property" if policy.mix is None else "mix"
        for name in policy.weights:
            if name not in properties:
                raise UserError(f"{key}: {name!r} is no property of the study; accepted: {', '.join(properties)}")
        if policy.reference not in (None, study.reference.kind):
            raise UserError(
                f"reference: {policy.reference!r} is not the study's, which is {study.reference.kind!r}; state that, "
                "or leave it out"
            )
        if policy.fixed == "lots" and study.config.contributions.lots is None:
            raise UserError("fixed: 'lots' needs contributions that are cut into lots (contributions.lots)")


def enter_policy(study: "Study", ledger: Ledger, policy: PolicySection, where: str) -> Entry:
    """Enter a policy, or check that the one entered already is the same; return its entry."""
    content = _content(study, policy)

    def check(known: list[Entry], evaluated: bool) -> bool:
        if not known:
            return True
        lines = differences(_compared(known[-1].content), _compared(content))
        if lines and evaluated:
            raise UserError(
                f"the policy of {where} is not the one that was entered on {known[-1].entered[:10]}, and there are "
                f"evaluations since: {'; '.join(lines[:3])}; restore it, or start a study with another name"
            )
        return bool(lines)

    ledger.enter(study.name, Entry(KIND, KIND, content, utc_now()), check)
    return ledger.entries(study.name, KIND)[-1]


def enter_stated(study: "Study", ledger: Ledger, properties: Collection[str]) -> None:
    """Enter the study file's policy, if it has one."""
    if study.config.payout is not None:
        policy, where = policy_of(study)
        check_policy(study, policy, where, properties)
        enter_policy(study, ledger, policy, where)


def _content(study: "Study", policy: PolicySection) -> dict[str, Any]:
    stated = {name: value for name, value in study.reference.stated.items() if name in policy.weights}
    reference = {"kind": study.reference.kind, "stated": stated}
    return {"terms": policy.terms, "reference": reference, "hash": fingerprint([policy.terms, reference])}


def _compared(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of an entry that people compare: a hash says nothing."""
    return {**content["terms"], "study's reference": content["reference"]}
