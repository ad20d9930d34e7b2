"""Text of strangers, such that it can be shown: names of files, errors of other programs, addresses of databases.

A terminal obeys control characters: a file's name could rewrite what was printed before it, or what is typed next.
"""

import re
import unicodedata

HIDDEN = "***"
LONGEST_VALUE = 80  # characters of a value that a message repeats

# control characters, halves of characters, and what breaks a line or turns its direction without being seen
_CATEGORIES = {"Cc", "Cs", "Zl", "Zp"}
_TURNING = {*"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}
# rather too much than too little: a password may hold anything, spaces and a second @ as well
_USER = re.compile(r"(//[^\s:/?#@]*:)[^@\n]*(?:@\S*)?(?=@)")
_OPTION = re.compile(r"((?:password|passwd|pwd)=)(?:'(?:[^'\\]|\\.)*'|[^\s&]*)", re.IGNORECASE)


def visible(text: str) -> str:
    """``text`` with control characters written as Python writes them, ``\\x1b``; line breaks and tabs stay."""
    if text.isprintable():
        return text
    return "".join(_escaped(character) if _is_control(character) else character for character in text)


def in_one_line(name: str) -> str:
    """The same with line breaks and tabs written out too: a name must not make a line of its own."""
    return visible(name).replace("\n", "\\n").replace("\t", "\\t")


def last_line(error: str | None) -> str:
    """Of a traceback: what was raised."""
    return ((error or "").strip().splitlines() or [""])[-1]


def _is_control(character: str) -> bool:
    if character in "\n\t":
        return False
    return unicodedata.category(character) in _CATEGORIES or character in _TURNING


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def without_passwords(text: str) -> str:
    """``text`` with the passwords of all addresses in it hidden: ``scheme://user:***@host`` and ``?password=***``."""
    return _OPTION.sub(rf"\g<1>{HIDDEN}", _USER.sub(rf"\g<1>{HIDDEN}", text))


def truncated(text: str, longest: int = LONGEST_VALUE) -> str:
    """Return at most ``longest`` characters of ``text``, the last an ellipsis where it was cut."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def shortened(value: object) -> str:
    """Return a value as Python writes it, for a message: without passwords and cut where it is long."""
    return truncated(without_passwords(repr(value)))
