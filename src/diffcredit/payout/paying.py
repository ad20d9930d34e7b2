"""A payout, step by step: the basis, the verdict, the division, the balances, the record.

    from diffcredit import Study

    payout = Study.load("study.yaml").payout(pool="10000.00")

The ledger keeps the payout with all that it follows from; its files can be written again at any time
(:mod:`diffcredit.report.payouts`).
"""

import re
import secrets
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffcredit.errors import UserError, located
from diffcredit.execution.tasks import utc_now
from diffcredit.ledger import Entry, Ledger
from diffcredit.payout.balances import opening_balances, read_balances, settle
from diffcredit.payout.basis import Basis, basis_of
from diffcredit.payout.certainty import Certainty, certainty
from diffcredit.payout.earnings import Earnings, earnings, exact
from diffcredit.payout.merit import merits_of
from diffcredit.payout.reasons import reasons
from diffcredit.payout.recorded import KIND, Proof, Recorded, payouts
from diffcredit.payout.records import Payout, Row
from diffcredit.payout.works import Given, given_works
from diffcredit.study.entered import enter_policy
from diffcredit.study.manifest import enter_terms
from diffcredit.study.policy import PolicySection, money, plain_text
from diffcredit.study.published import publish
from diffcredit.util.decimals import exactly
from diffcredit.util.sanitize import shortened

if TYPE_CHECKING:
    from diffcredit.study.study import Study

UNTESTED = "Nobody has tested these estimates against models that were retrained from scratch."
ONE = "study"  # the period of a study that pays once
_PERIOD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
SALT = 16  # bytes
MOST_COINS = 10**11  # of a pool; see `earnings`


@exactly
def pay(
    study: "Study",
    policy: Path | None = None,
    *,
    pool: Decimal | str | None = None,
    period: str | None = None,
    balances: Path | None = None,
    despite: str = "",
) -> Payout:
    """Divide a pool by the policy, record the payout in the ledger and return it; see :meth:`.Study.payout`."""
    period = ONE if period is None else period
    if not _PERIOD.fullmatch(period):
        raise UserError(
            f"period: {shortened(period)} is not accepted; up to 40 letters, digits, dashes and underscores are, "
            "such as 2026-Q1"
        )
    try:
        plain_text(despite)
    except ValueError as error:
        raise UserError(f"--despite: {shortened(despite)} is not accepted; {error}") from None
    basis = basis_of(study, policy)
    amount = pool_of(basis.policy, basis.where, pool)
    with study.ledger() as ledger:
        before = payouts(study, ledger)
        _refuse_paid(period, before)
        _refuse_verdict(basis, despite)
        names = basis.contributors.names
        given = None if balances is None else read_balances(balances, basis.policy.currency, names)
        opening = opening_balances(before[-1].payout if before else None, given, names)
        earned = divide_pool(basis, amount)
        sure = certainty(
            basis.credits,
            basis.contributors,
            basis.policy,
            basis.sign,
            basis.followed.r,
            amount,
            basis.cut,
        )
        works = given_works(study, names)
        rows = tuple(_row(basis, i, earned, sure, opening[name], works[name]) for i, name in enumerate(names))
        # As late as can be: a payout that was interrupted before has fixed nothing.
        entered = enter_policy(study, ledger, basis.policy, basis.where)
        enter_terms(study, ledger)  # those that the credits were estimated by; an older study has none
        publish(study)
        made = _payout(study, basis, entered, period, amount, sure, despite, rows, ledger)
        _enter(study, ledger, made, [each.previous for each in before])
    return made


@exactly
def pool_of(policy: PolicySection, where: str, given: Decimal | str | None) -> Decimal:
    """Return the pool: as given, or as the policy has it, which must agree."""
    if given is None and policy.pool is None:
        raise UserError(f"{where}: pool: missing; state the amount there, or give it with --pool")
    try:
        amount = policy.pool if given is None else money(given)
    except ValueError as error:
        raise UserError(f"--pool: {shortened(str(given))} is not accepted; {error}") from None
    if policy.pool is not None and amount != policy.pool:
        raise UserError(f"--pool: {amount} is not the policy's, which is {policy.pool} ({where})")
    if not amount:
        place = "--pool" if policy.pool is None else f"{where}: pool"
        raise UserError(f"{place}: 0 is not accepted; an amount above 0 is expected")
    if amount % policy.rounding:
        raise UserError(f"--pool: {amount} is no multiple of {policy.rounding}, the smallest amount that is paid")
    if amount / policy.rounding > MOST_COINS:
        raise UserError(
            f"--pool: {amount:,} is more than {MOST_COINS:,} of the smallest amount that is paid, {policy.rounding}; "
            "state a larger one in the policy's rounding"
        )
    if _decimals(amount) == 3 > _decimals(policy.rounding):
        raise UserError(f"--pool: {given} may mean thousands; {amount:.2f} or {amount * 1000:.2f} is accepted")
    return amount + 0 * policy.rounding  # with all the decimals of a coin


@exactly
def divide_pool(basis: Basis, pool: Decimal) -> Earnings:
    """Return what everybody earns, in whole coins."""
    policy, contributors = basis.policy, basis.contributors
    merits = merits_of(basis.credits, contributors, policy, basis.sign)
    with located(basis.where):
        return earnings(
            int(pool / policy.rounding),
            basis.followed.r,
            contributors.fixed_weights(policy.fixed),
            exact(merits),
            contributors.names,
            floor=int(policy.floor / policy.rounding),
            cap=None if policy.cap is None else int(policy.cap / policy.rounding),
            cut=basis.cut.tolist(),
        )


def _decimals(amount: Decimal) -> int:
    return -int(amount.as_tuple().exponent)


def recorded_payout(study: "Study", period: str | None = None) -> Recorded:
    """Return the study's payout of a period; of the last one by default."""
    with study.ledger(create=False) as ledger:
        found = payouts(study, ledger)
    if not found:
        raise UserError(f"{study.file}: nothing was paid yet; diffcredit payout divides a pool")
    if period is None:
        return found[-1]
    for each in found:
        if each.payout.period == period:
            return each
    known = ", ".join(each.payout.period for each in found)
    raise UserError(f"--period: {shortened(period)} was not paid; there are: {known}")


def _refuse_paid(period: str, before: list[Recorded]) -> None:
    for each in before:
        if each.payout.period.lower() == period.lower():  # files of the two would be one where case does not count
            raise UserError(
                f"--period: {each.payout.period!r} was paid on {each.payout.created[:10]} already; name another "
                "period, or write that payout's pages again with diffcredit statements"
            )


def _refuse_verdict(basis: Basis, despite: str) -> None:
    """Refuse a verdict below what the policy asks for, unless the payer states a reason."""
    if basis.verdict_suffices or despite.strip():
        return
    raise UserError(
        f"{basis.title}: the verdict is {basis.verdict.level!r} and the policy asks for {basis.policy.verdict!r}: "
        f"{basis.verdict.reason} To pay all the same, state why with --despite; every page repeats it"
    )


def _enter(study: "Study", ledger: Ledger, made: Payout, before: list[str]) -> None:
    """Record a payout with its proof, unless there are others now than those whose heads stand in ``before``."""

    def check(known: list[Entry], evaluated: bool) -> bool:
        if made.period.lower() in [entry.name.lower() for entry in known]:  # by another process, meanwhile
            raise UserError(f"--period: {made.period!r} was paid already; name another period")
        if [entry.head for entry in known] != before:  # the balances that it carried forward would be paid twice
            raise UserError(f"--period: {known[-1].name!r} was paid at the same time; run this payout again")
        return True

    entry = Entry(KIND, made.period, made.content, made.created)
    ledger.enter(study.name, entry, check, [Proof(made).entry])


def _row(basis: Basis, i: int, earned: Earnings, sure: Certainty, opening: Decimal, works: Given) -> Row:
    policy, found, contributors = basis.policy, basis.standing, basis.contributors
    fixed, merit_, amount = (part[i] * policy.rounding for part in (earned.fixed, earned.merit, earned.amounts))
    opening += 0 * policy.rounding  # with all the decimals of a coin
    settled = settle(opening, amount, policy.minimum, policy.rounding)
    worth = float(merits_of(basis.credits, contributors, policy, basis.sign)[i])
    numbers = ("help", "low", "high", "above", "above_low", "above_high")
    help_, low, high, above, above_low, above_high = (float(getattr(found, name)[i]) for name in numbers)
    ranks = (int(getattr(found, name)[i]) for name in ("rank", "rank_low", "rank_high"))
    return Row(
        contributor=contributors.names[i],
        accounts=tuple(basis.data.get("accounts", {}).get(contributors.names[i], ())),
        images_used=contributors.images[i],
        images_given=works.given,
        excluded=works.excluded,
        works=works.digest,
        lots=None if contributors.lots is None else contributors.lots[i],
        help=help_,
        help_low=low,
        help_high=high,
        **dict(zip(("rank", "rank_low", "rank_high"), ranks, strict=True)),
        above=above,
        above_low=above_low,
        above_high=above_high,
        worth=worth,
        fixed=fixed,
        merit=merit_,
        amount=amount,
        amount_low=min(amount, _coins(sure.low[i], policy.rounding)),
        amount_high=max(amount, _coins(sure.high[i], policy.rounding)),
        opening=opening,
        carried=settled.carried,
        paid=settled.paid,
        overtaken=None if sure.overtaken[i] != sure.overtaken[i] else float(sure.overtaken[i]),
        reason=reasons(basis, i, earned, opening, settled),
        salt=secrets.token_hex(SALT),
    )


def _coins(amount: float, rounding: Decimal) -> Decimal:
    """Return an estimated amount as the nearest whole number of coins."""
    return round(Decimal(max(amount, 0.0)) / rounding) * rounding


def _payout(
    study: "Study",
    basis: Basis,
    entered: Entry,
    period: str,
    pool: Decimal,
    sure: Certainty,
    despite: str,
    rows: tuple[Row, ...],
    ledger: Ledger,
) -> Payout:
    credits, policy = basis.credits, basis.policy
    recipe = next(recipe for recipe in ledger.recipes(study.name) if recipe.name == study.recipe.name)
    texts: dict[str, Any] = policy.statement.model_dump()
    verdict, tested = _verdict_in_words(basis)
    return Payout(
        study=study.name,
        period=period,
        created=utc_now(),
        policy=policy.terms,
        policy_hash=entered.content["hash"],
        entered=entered.entered,
        before_evaluations=entered.before_evaluations,
        texts=texts,
        pool=pool,
        currency=policy.currency,
        title=basis.title,
        explanations=basis.explanations,
        higher_is_better=basis.sign > 0,
        reference=study.reference.words,
        reference_kind=study.reference.kind,
        full=credits.full,
        empty=credits.empty,
        method=credits.method,
        evaluations=credits.evaluations,
        finished=_finished(study),
        confidence=credits.confidence,
        level=basis.verdict.level,
        verdict=verdict,
        tested=tested,
        despite=despite.strip(),
        r=basis.followed.r,
        r_words=basis.followed.words,
        moved=_coins(sure.moved, policy.rounding),
        data=basis.data["fingerprint"],
        resolution=basis.data["resolution"],
        recipe=recipe.fingerprint,
        weights=recipe.weights,
        lot=basis.data.get("lots", {}).get("lot"),
        head=ledger.head(study.name).hash,
        rows=rows,
    )


def _verdict_in_words(basis: Basis) -> tuple[str, str]:
    """Return the verdict's reason, and how the credits were tested. What a test would cost is left out: it is nobody's
    business but the payer's."""
    tested = next(check.sentence for check in basis.verdict.checks if check.subject == "tested")
    if basis.tested is not None:
        return basis.verdict.reason, tested
    return UNTESTED if basis.verdict.reason == tested else basis.verdict.reason, UNTESTED


def _finished(study: "Study") -> bool:
    """Return whether a run would evaluate nothing more."""
    return next(study.schedule().pending(), None) is None
