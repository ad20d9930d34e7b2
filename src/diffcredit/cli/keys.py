"""``diffcredit keys``: make and show the keys that sign heads, reports, statements and archives."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.console import say

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

keys = typer.Typer(name="keys", help="Make and show keys for signatures.", no_args_is_help=True, rich_markup_mode=None)


@keys.command("new")
def new(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="The private key's file.")] = Path("diffcredit.key"),
    passphrase: Annotated[
        bool, typer.Option("--passphrase", help="Ask for a passphrase, unless DIFFCREDIT_KEY_PASSPHRASE has one.")
    ] = False,
) -> None:
    """Make an Ed25519 key: the private one in FILE, which only you can read, the public one in FILE.pub.

    Example: diffcredit keys new payer.key
    """
    import os

    from diffcredit.proofs.signing import PASSPHRASE, PUBLIC, new_key

    word = os.environ.get(PASSPHRASE, "")
    if passphrase and not word:
        word = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True)
    made = new_key(file, word)
    say(f"{file}: the private key{', encrypted' if word else ''}. Keep it secret, and keep a copy.")
    say(f"{file}{PUBLIC}: the public key. Publish it where the payer cannot quietly replace it.")
    say(f"Fingerprint: {made.fingerprint}")


@keys.command("show")
def show(file: Annotated[Path, typer.Argument(metavar="FILE", help="A private or a public key.")]) -> None:
    """Print a key's public part and its fingerprint.

    Example: diffcredit keys show payer.key.pub
    """
    from diffcredit.proofs.signing import PublicKey, is_private, public_pem, read_public_key

    found = PublicKey.of(signing_key(file)) if is_private(file) else read_public_key(file)
    say(public_pem(found).strip())
    say(f"Fingerprint: {found.fingerprint}")


def signing_key(file: Path) -> "Ed25519PrivateKey":
    """Return the private key in a file; ask for its passphrase where there is somebody to ask."""
    from diffcredit.proofs.signing import load_key

    def ask() -> str:
        return typer.prompt(f"Passphrase of {file}", hide_input=True, err=True) if sys.stdin.isatty() else ""

    return load_key(file, ask)
