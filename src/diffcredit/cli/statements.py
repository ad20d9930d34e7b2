"""``diffcredit statements``: a page for each contributor about a payout."""

from typing import Annotated

import typer

from diffcredit.cli.console import say
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

    loaded = Study.load(study)
    recorded = recorded_payout(loaded, period)
    pages = write_study_statements(loaded, recorded, only)
    if only is None:  # the payer's own files too, as they were
        write_payout(loaded.folder, recorded)
    say(f"{len(pages)} statements of period {recorded.payout.period}: {pages[0].parent}")
