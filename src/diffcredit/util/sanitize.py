"""Strangers' text made safe to show: names of files and contributors, errors of other programs, database addresses.

- A terminal obeys control characters: a file's name could rewrite what was printed before it, or what is typed next.
  :func:`escape_controls` and :func:`single_line` write them out.
- A spreadsheet runs a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line break as a formula.
  :func:`escape_formula` and :func:`csv_text` prevent that.
- An address may contain a password. :func:`without_passwords` hides it.
"""

import csv
import io
import math
import re
import unicodedata
from collections.abc import Iterable
from numbers import Integral

HIDDEN = "***"
LONGEST_VALUE = 80  # characters of a value that a message repeats

# control characters, lone surrogates, and characters that break a line or turn its direction invisibly
_CATEGORIES = {"Cc", "Cs", "Zl", "Zp"}
_TURNING = {*"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}
# these hide rather too much than too little: a password may contain anything, even spaces and a second @
_USER = re.compile(r"(//[^\s:/?#@]*:)[^@\n]*(?:@\S*)?(?=@)")
_OPTION = re.compile(r"((?:password|passwd|pwd)=)(?:'(?:[^'\\]|\\.)*'|[^\s&]*)", re.IGNORECASE)
# the full-width signs too: some spreadsheets treat them as the ordinary ones
_FORMULA = re.compile(r"[\s']*[=+\-@＝＋－＠\t\r\n]")


def escape_controls(text: str) -> str:
    """Return ``text`` with control characters written as Python writes them, ``\\x1b``; line breaks and tabs stay."""
    if text.isprintable():
        return text
    escaped = (character.encode("unicode_escape").decode("ascii") for character in text)
    return "".join(new if _is_control(old) else old for old, new in zip(text, escaped, strict=True))


def _is_control(character: str) -> bool:
    return character not in "\n\t" and (unicodedata.category(character) in _CATEGORIES or character in _TURNING)


def single_line(name: str) -> str:
    """Return ``name`` with control characters, line breaks and tabs written out: it cannot start a line of its own."""
    return escape_controls(name).replace("\n", "\\n").replace("\t", "\\t")


def last_line(error: str | None) -> str:
    """Return the last line of a traceback, which states what was raised."""
    return ((error or "").strip().splitlines() or [""])[-1]


def escape_formula(text: str) -> str:
    """Return ``text`` such that no spreadsheet runs it as a formula.

    A text that looks like a formula, also behind white space or apostrophes, gets one leading apostrophe. Two texts
    never become one: to undo, drop the first apostrophe wherever a formula follows it.
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unescape_formula(text: str) -> str:
    """Return the text that :func:`escape_formula` made this one of."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text[1:]) else text


def csv_text(rows: Iterable[Iterable[str | float | None]], line_end: str = "\r\n") -> str:
    """Write ``rows`` as CSV (RFC 4180): all digits of a number, nothing for None or a number that is not finite, and
    texts that no spreadsheet runs as formulae."""

    def text(cell: str | float | None) -> str:
        if isinstance(cell, str):
            return escape_formula(cell)
        if isinstance(cell, Integral):
            return str(int(cell))
        return "" if cell is None or not math.isfinite(cell) else repr(float(cell))

    file = io.StringIO(newline="")
    csv.writer(file, lineterminator=line_end).writerows(map(text, row) for row in rows)
    return file.getvalue()


def without_passwords(text: str) -> str:
    """Hide the passwords of all addresses in ``text``: ``scheme://user:***@host`` and ``?password=***``."""
    return _OPTION.sub(rf"\g<1>{HIDDEN}", _USER.sub(rf"\g<1>{HIDDEN}", text))


def truncated(text: str, longest: int = LONGEST_VALUE) -> str:
    """Return at most ``longest`` characters of ``text``, the last an ellipsis where it was cut."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def shortened(value: object) -> str:
    """Return a value as Python writes it, for a message: without passwords, and cut where it is long."""
    return truncated(without_passwords(repr(value)))
