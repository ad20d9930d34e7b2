"""``diffcredit statements``: a page for each contributor about a payout."""

from typing import Annotated

import typer

from diffcredit.cli.console import Bars, say, stopping_gently
from diffcredit.cli.options import StudyArgument


def statements(
    study: StudyArgument,
    period: Annotated[str | None, typer.Option(help="The period. Default: the last one that was paid.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this contributor's. May be given several times.")
    ] = None,
) -> None:
    """Write a page and a JSON file for each contributor about a payout, from the ledger, into statements/.

    Example: diffcredit statements study.yaml --only "Ada Lovelace"
    """
    from diffcredit.payout.paying import recorded_payout
    from diffcredit.report.payouts import write_payout
    from diffcredit.report.statements import write_study_statements
    from diffcredit.study.study import Study

    with stopping_gently(), Bars() as bars:
        loaded = Study.load(study, bars)
        recorded = recorded_payout(loaded, period)
        pages = write_study_statements(loaded, recorded, only or None)
        if not only:  # the payer's own files too, as they were
            write_payout(loaded.folder, recorded, last=recorded.head == recorded_payout(loaded).head)
    which = f" of period {recorded.payout.period}" if period else ""
    say(f"{len(pages)} statement{'s' * (len(pages) > 1)}{which}: {pages[0] if len(pages) == 1 else pages[0].parent}")
