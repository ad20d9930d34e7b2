"""``diffcredit statements``: a page for each contributor about a payout."""

from pathlib import Path
from typing import Annotated

import typer

from diffcredit.cli.console import Bars, say, stopping_gently
from diffcredit.cli.options import StudyArgument
from diffcredit.cli.signing import SignOption, key_of


def statements(
    study: StudyArgument,
    period: Annotated[str | None, typer.Option(help="The period. Default: the last one that was paid.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this contributor's. May be given several times.")
    ] = None,
    tax: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Taxes to show: columns contributor and rate (0.30 or 30 %), and if wanted residence, form_on_file "
            "and form_to_issue. They are not entered in the ledger.",
        ),
    ] = None,
    sign: SignOption = None,
) -> None:
    """Write a page and a JSON file for each contributor about a payout, from the ledger, into statements/.

    Example: diffcredit statements study.yaml --only "Ada Lovelace"
    """
    from diffcredit.payout.paying import recorded_payout
    from diffcredit.payout.taxes import read_taxes
    from diffcredit.report.payouts import write_payout
    from diffcredit.report.statements import write_study_statements
    from diffcredit.study.study import Study

    key = key_of(sign)
    with stopping_gently(), Bars() as bars:
        loaded = Study.load(study, bars)
        recorded = recorded_payout(loaded, period)
        taxes = None if tax is None else read_taxes(tax, [row.contributor for row in recorded.payout.rows])
        pages = write_study_statements(loaded, recorded, only or None, taxes, key)
        if not only:  # the payer's own files too, as they were
            write_payout(loaded.folder, recorded, last=recorded.head == recorded_payout(loaded).head)
    which = f" of period {recorded.payout.period}" if period else ""
    say(f"{len(pages)} statement{'s' * (len(pages) > 1)}{which}: {pages[0] if len(pages) == 1 else pages[0].parent}")
