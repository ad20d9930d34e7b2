"""``diffcredit payout``: divide a pool of money among contributors."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.console import Bars, console, say, stopping_gently, table
from diffcredit.cli.opened import opened
from diffcredit.cli.options import StudyArgument
from diffcredit.cli.signing import SignOption, key_of, sign_results
from diffcredit.errors import DiffcreditError, UserError

if TYPE_CHECKING:
    from diffcredit.payout.records import Payout
    from diffcredit.study.study import Study

PolicyOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The policy, such as payout.yaml. Default: payout: in the study file."),
]
PoolOption = Annotated[
    str | None, typer.Option(metavar="AMOUNT", help="The amount to divide, such as 10000.00. Default: the policy's.")
]


def payout(
    study: StudyArgument,
    policy: PolicyOption = None,
    pool: PoolOption = None,
    period: Annotated[
        str | None, typer.Option(help="The period that is paid, such as 2026-Q1; each is paid once. Default: study.")
    ] = None,
    balance: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Opening balances: columns contributor and balance, or an earlier payouts.csv. Default: what the "
            "ledger's last payout carried forward.",
        ),
    ] = None,
    despite: Annotated[
        str,
        typer.Option(
            metavar="REASON",
            help="Pay although the verdict on the credits is below what the policy asks for; every page repeats why.",
        ),
    ] = "",
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="CHANGE",
            help="Estimate what a manipulation would change, and pay nothing: split=NAME:3, copy=A:B or leave=NAME. "
            "May be given several times.",
        ),
    ] = None,
    sign: SignOption = None,
) -> None:
    """Divide a pool of money by a policy: payouts.csv, a page with how sure each amount is, a record in the ledger.

    Example: diffcredit payout study.yaml --policy payout.yaml --pool 10000.00
    """
    key = key_of(sign)
    with stopping_gently(), Bars() as bars, opened(study, bars, logged=not what_if) as loaded:
        if what_if:
            if period or balance or despite:
                raise UserError(
                    "--what-if: pays nothing, so --period, --balance and --despite are not accepted with it"
                )
            _estimate(loaded, policy, pool, what_if)
        else:
            page = _pay(loaded, policy, pool, period, balance, despite)
            sign_results(loaded, key, [page])


def _pay(
    study: "Study", policy: Path | None, pool: str | None, period: str | None, balance: Path | None, despite: str
) -> Path:
    """Pay, write the payer's files, and return the page."""
    from diffcredit.payout.paying import recorded_payout
    from diffcredit.report.payouts import write_payout

    made = study.payout(policy, pool=pool, period=period, balances=balance, despite=despite)
    _print(made)
    try:
        files = write_payout(study.folder, recorded_payout(study, made.period))
    except OSError as error:
        raise DiffcreditError(
            f"{study.folder}: the payout is recorded, but its files cannot be written ({error.strerror}); mend that, "
            "then diffcredit statements writes them"
        ) from error
    for file in files:
        say(str(file))
    say(f"diffcredit statements {study.file} writes a page for each contributor.")
    return files[-1]


def _print(made: "Payout") -> None:
    """Print who gets how much, with the sentences that a payer must not miss."""
    settled = any(row.opening or row.carried for row in made.rows)  # else everybody is simply paid their amount
    rows = [
        (
            *(row.contributor, str(row.images_used), f"{row.amount:,}"),
            f"{row.amount_low:,} to {row.amount_high:,}",
            *((f"{row.carried:,}", f"{row.paid:,}") if settled else ()),
        )
        for row in sorted(made.rows, key=lambda row: (-row.amount, row.rank, row.contributor))
    ]
    columns = ("contributor", "images", f"amount ({made.currency})", "could be")
    columns += ("carried", "paid") if settled else ()
    console.print(table(columns, rows, title=f"{made.pool:,} {made.currency} for {made.title}, period {made.period}"))
    say(f"{made.r:%} of the pool follows merit. {made.r_words}")
    say(f"Repeated with other random seeds, about {made.moved:,} {made.currency} would go to other people.")
    say(f"Verdict: {made.level}. {made.verdict}")
    if made.against_verdict:
        say(f"Paid despite the verdict: {made.despite}")
    if made.before_evaluations:
        say("The policy was entered before the ledger's first evaluation.")
    else:
        say("The policy was entered after the first evaluations. Every page says so.")
    if not made.finished:
        say("The study is not finished: more evaluations would change the credits.")


def _estimate(study: "Study", policy: Path | None, pool: str | None, changes: list[str]) -> None:
    """Print what manipulations would change."""
    from diffcredit.payout.basis import basis_of
    from diffcredit.payout.manipulation import RESTS_ON, what_if
    from diffcredit.payout.paying import pool_of

    basis = basis_of(study, policy)
    amount = pool_of(basis.policy, basis.where, pool)
    for change in changes:
        say(str(what_if(basis, amount, change)))
    say(RESTS_ON)
