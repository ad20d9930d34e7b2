"""``diffcredit roles``: who may do what with a ledger in PostgreSQL."""

from typing import Annotated

import typer

from diffcredit.cli.console import say
from diffcredit.cli.options import StudyArgument
from diffcredit.errors import UserError


def roles(
    study: StudyArgument,
    writer: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE", help="May run studies: add rows and change claims, nothing else. Repeatable."),
    ] = None,
    reader: Annotated[
        list[str] | None, typer.Option(metavar="ROLE", help="May read everything, as an auditor does. Repeatable.")
    ] = None,
) -> None:
    """Give roles of a PostgreSQL server the rights that a team needs on a study's ledger, as its owner."""
    from diffcredit.ledger import roles as rights
    from diffcredit.study.study import Study

    writers, readers = writer or [], reader or []
    if not writers + readers:
        raise UserError("roles: give --writer ROLE or --reader ROLE; the server's roles are accepted")
    loaded = Study.load(study)
    if loaded.config.ledger is None:
        raise UserError(f"{loaded.file}: ledger: is a file, which has no roles; a PostgreSQL URL is accepted")
    rights.grant(loaded.config.ledger, writers=writers, readers=readers)
    for role in writers:
        say(f"{role}: may add rows and change claims; may change or remove no row of the record")
    for role in readers:
        say(f"{role}: may read everything, and write nothing")
