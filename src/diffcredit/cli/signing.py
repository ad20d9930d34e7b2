"""Signing what a command has written, for all commands that do."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.console import say
from diffcredit.cli.keys import signing_key
from diffcredit.util.sanitize import single_line

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from diffcredit.study.study import Study

SignOption = Annotated[
    Path | None,
    typer.Option(
        "--sign",
        metavar="KEY",
        envvar="DIFFCREDIT_KEY",
        show_envvar=False,
        help="Sign what is written with this private key (DIFFCREDIT_KEY).",
    ),
]

SignedByOption = Annotated[
    Path | None,
    typer.Option("--signed-by", metavar="PUBLIC_KEY", help="The public key with which it must be signed."),
]


def key_of(sign: Path | None) -> "Ed25519PrivateKey | None":
    """Return the key to sign with, if there is one. Commands ask for it first, before they work for hours."""
    return None if sign is None else signing_key(sign)


def sign_results(study: "Study", key: "Ed25519PrivateKey | None", reports: Sequence[Path] = ()) -> None:
    """Sign the head of a study's ledger, as ``head.sig`` in its results, and ``reports`` on it, if there is a key."""
    from diffcredit.proofs.signing import Signed, now, sign_file, write_signature

    if key is None:
        return
    with study.ledger(create=False) as ledger:
        head = ledger.head(study.name).hash
    signed = [write_signature(key, study.folder / "head", Signed("head", study.name, head, time=now()))]
    signed += [sign_file(key, file, "report", study.name, head) for file in reports]
    for file in signed:
        say(f"Signed: {file}")


def check_signed(archive: Path, by: Path) -> None:
    """Refuse an archive that was not signed with the public key in the file ``by``, and say when it was."""
    from diffcredit.proofs.signing import read_signature, signature_file

    say(f"{archive}: signed on {single_line(read_signature(signature_file(archive), by, ['archive']).time)}")
