"""``diffcredit check``: check a statement by itself, without the payer's ledger.

It needs typer and PyYAML, ``cryptography`` for a signature, Pillow and numpy for images, and nothing else.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.console import say
from diffcredit.errors import DiffcreditError, UserError
from diffcredit.util.sanitize import single_line

if TYPE_CHECKING:
    from diffcredit.proofs.statements import Checked

HEAD = 64  # digits


def check(
    statement: Annotated[Path, typer.Argument(metavar="STATEMENT", help="The statement's JSON file.")],
    key: Annotated[
        Path | None, typer.Option(metavar="PUBLIC_KEY", help="The payer's public key, with which it must be signed.")
    ] = None,
    head: Annotated[
        str | None, typer.Option(metavar="HEAD", help="The head that others have of this payout: it must be the same.")
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Your originals: which of the images that were used are among them?"),
    ] = None,
) -> None:
    """Check a statement by itself: its sums, and that its numbers are part of the payer's ledger.

    Example: diffcredit check ada.json --key payer.key.pub --images my_originals
    """
    from diffcredit.proofs.documents import read_document
    from diffcredit.proofs.statements import check_statement

    checked = check_statement(read_document(statement), statement)
    _check_head(checked, head, statement)
    signed = _check_signer(checked, key, statement)
    files = None if images is None else _files(checked, images, statement)
    _print(checked, head)
    _say(signed)
    if files is not None:
        for name, digest in checked.images.items():
            _say(f"  {name} is {files.get(digest, 'not among your files')}")
    _print_limits(checked, head)
    if files is not None and (missing := len(set(checked.images.values()) - files.keys())):
        raise DiffcreditError(f"{statement}: {missing:,} of the {len(checked.images):,} images are not in {images}")


def _check_head(checked: "Checked", head: str | None, where: Path) -> None:
    if head is None:
        return
    wanted = head.strip().lower()
    if len(wanted) != HEAD or set(wanted) - set("0123456789abcdef"):
        raise UserError(f"--head: {head!r} is not a head; accepted: the 64 digits 0 to 9 and a to f")
    if checked.head != wanted:
        raise DiffcreditError(
            f"{where}: leads to the head {checked.head}, not to {wanted}: it is of another payout, or the payer keeps "
            "two ledgers"
        )


def _check_signer(checked: "Checked", key: Path | None, where: Path) -> str:
    """Refuse a statement that the ``key`` did not sign; return what to say of its signature."""
    if checked.signature is None:
        if key is not None:
            raise DiffcreditError(f"{where}: is not signed")
        return "It is not signed."
    by = f"Signed on {checked.signature.signed.time} by the key {checked.signature.key.fingerprint}"
    if key is None:
        return f"{by}. Whose key that is remains to be seen: give the payer's public key with --key."
    from diffcredit.proofs.signing import check_signer

    check_signer(checked.signature, key, where)
    return f"{by}, which is that of {key}."


def _files(checked: "Checked", folder: Path, where: Path) -> dict[str, Path]:
    """Return the files in the ``folder`` for those images on the statement that are there, by their hashes."""
    if not folder.is_dir():
        raise UserError(f"--images: {folder} is no folder")
    if not checked.images:
        raise UserError(
            f"{where}: lists no images; ask the payer to write it again where the images are, or leave --images out"
        )
    try:
        from diffcredit.contributions.works import files_by_hash
    except ModuleNotFoundError as error:
        raise UserError(f"--images needs the package {error.name}; pip install pillow numpy") from None
    return files_by_hash(folder, checked.payout["resolution"], set(checked.images.values()))


def _print(checked: "Checked", head: str | None) -> None:
    """Print what was found to be right."""
    row, payout = checked.row, checked.payout
    _say(f"Statement of {checked.contributor}: study {payout['study']}, period {payout['period']}.")
    _say(
        f"Its sums come out: opening balance {row['opening']} + earned {row['amount']} = paid {row['paid']} + carried "
        f"forward {row['carried']} {payout['currency']}."
    )
    works = f", whose hash is {row['works']}" if row["works"] else ""
    _say(
        f"The ledger has these numbers: a pool of {payout['pool']} among {payout['contributors']:,} contributors, the "
        f"policy {payout['policy_hash']} entered on {payout['entered']}, your help {row['help']:.6g}, your "
        f"{row['images_used']:,} images{works}, and all else under payout and row in the file. Compare them with the "
        "page."
    )
    same = " That is the head you gave." if head else ""
    _say(f"The ledger's head after this payout is {checked.head}.{same}")


def _print_limits(checked: "Checked", head: str | None) -> None:
    """Print what the check does not show."""
    beside = ["the tax"] * checked.tax + ["the names of image files"] * bool(checked.images)
    if beside and checked.signature is None:
        _say(f"Not in the ledger, and so not covered: {' and '.join(beside)}.")
    if head is None:
        _say(
            "A payer could keep two ledgers and show you one of them. Compare the head with other contributors', or "
            "with one that was published or timestamped, and give it with --head."
        )
    if not checked.images:
        covered = "only the hash of all of them is covered" if checked.row["works"] else "which ones were used is open"
        _say(f"It lists no images: {covered}.")
    _say("Whether the measurements behind the numbers are right is not shown: diffcredit verify checks the ledger.")


def _say(text: str) -> None:
    """Print one line: what a payer wrote in a statement cannot begin another one."""
    say(single_line(text))
