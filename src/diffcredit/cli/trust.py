"""``diffcredit trust``: the files of code that may run as plug-ins of this user's studies."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from diffcredit.cli.console import say
from diffcredit.errors import UserError


def trust(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE…", help="Files of Python code, or folders: all such files in them."),
    ] = None,
    shown: Annotated[bool, typer.Option("--list", help="List what is allowed, and whether it is still there.")] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Take consent back: FILE… as they are listed, or the beginnings of hashes.")
    ] = False,
) -> None:
    """Allow files of code to run as plug-ins, by their hashes: read them first. A file that changes is asked about
    again."""
    from diffcredit.util import consent

    if bool(files) == shown or (shown and forget):
        raise UserError("trust: files of code are expected, or --list alone, or --forget with files or hashes")
    if shown:
        for code, name in consent.trusted().items():
            say(f"{code[: consent.SHOWN]}  {name}{_state(Path(name), code)}")
    elif forget:
        codes = [code for text in files or () for code in _listed(text)]
        consent.forget(codes)
        say(f"forgot {len(codes)}")
    else:
        found = [file for text in files or () for file in _code_files(Path(text))]
        consent.trust(found)
        for file in found:
            say(f"allowed: {file} (sha256 {consent.code_hash(file)[: consent.SHOWN]}…)")


def _code_files(place: Path) -> Iterable[Path]:
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    if not files or not all(file.is_file() and file.suffix == ".py" for file in files):
        raise UserError(f"{place}: no file of Python code; a .py file, or a folder with some, is accepted")
    return files


def _listed(text: str) -> list[str]:
    """Return the hashes that ``text`` names: as their beginning, or as their file."""
    from diffcredit.util.consent import trusted

    names = {text, str(Path(text).absolute())}
    same = [code for code, name in trusted().items() if code.startswith(text) or name in names]
    if not same:
        raise UserError(f"--forget: {text!r} is not allowed so far; diffcredit trust --list lists what is")
    return same


def _state(file: Path, code: str) -> str:
    from diffcredit.util.consent import code_hash

    if not file.is_file():
        return " (gone)"
    return "" if code_hash(file) == code else " (changed since)"
