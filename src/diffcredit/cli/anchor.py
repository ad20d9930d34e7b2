"""``diffcredit anchor``: have a head of the ledger timestamped by somebody else."""

from pathlib import Path
from typing import Annotated

import typer

from diffcredit.cli.console import say
from diffcredit.cli.opened import opened
from diffcredit.cli.options import StudyArgument
from diffcredit.errors import UserError
from diffcredit.util.progress import silent


def anchor(
    study: StudyArgument,
    check: Annotated[
        Path | None,
        typer.Option(metavar="RESPONSE", help="Check the authority's response, and enter it in the ledger."),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The authority's root certificate, PEM or DER, with those between. Default: all that this machine "
            "trusts.",
        ),
    ] = None,
) -> None:
    """Write the ledger's head as JSON, and a request for an RFC 3161 timestamp of it; or check the response.

    Example: diffcredit anchor study.yaml --check head.tsr --ca authority.pem
    """
    if ca is not None and check is None:
        raise UserError("--ca: is for checking a response, with --check")
    with opened(study, silent, logged=check is not None) as loaded:
        if check is not None:
            from diffcredit.proofs.anchors import read_certificates
            from diffcredit.study.anchored import enter_anchor

            say(str(enter_anchor(loaded, check, read_certificates(ca))))
            return
        from diffcredit.study.anchored import write_request

        place, request = write_request(loaded)
    say(f"{place}: the head, for whatever keeps or stamps files")
    say(f"{request}: the request for a timestamp authority, such as")
    response = request.with_suffix(".tsr")
    say(f"  curl -H 'Content-Type: application/timestamp-query' --data-binary @{request} -o {response} URL")
    say(f"Then: diffcredit anchor {study} --check {response}")
