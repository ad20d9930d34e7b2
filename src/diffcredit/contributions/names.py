"""Contributors' names: their spelling, and names that look alike.

Whoever is paid is known by a name, and two names that a reader cannot tell from each other are one name to him. What
nobody sees is therefore refused, except where a script or an emoji needs it. Names that look alike otherwise, such as
with a Cyrillic а, are accepted, since both may be real; commands warn of them.
"""

import unicodedata
from collections.abc import Iterable
from functools import cache

from diffcredit.errors import UserError

LONGEST = 255  # characters, like a file's name

_CONTROLS = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # these also change the direction of what follows
_NOT_JOINER, _JOINER = "\u200c", "\u200d"
_BLANKS = {*"\u034f\u115f\u1160\u17b4\u17b5\u2065\u2800\u3164\uffa0\U0001d159"}
_SELECTORS = {*map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))}  # of variants
_RESERVED = (range(0xFFF0, 0xFFF9), range(0xE0000, 0xE1000))  # invisible in whatever Unicode is to come
# whose letters join, or form one sign together: the joiners decide whether they do
_JOINING = frozenset(
    {
        *("ADLAM", "ARABIC", "BALINESE", "BENGALI", "BRAHMI", "CHAKMA", "DEVANAGARI", "GRANTHA", "GUJARATI"),
        *("GURMUKHI", "HANIFI", "JAVANESE", "KANNADA", "KHMER", "MALAYALAM", "MANDAIC", "MANICHAEAN", "MEETEI"),
        *("MODI", "MONGOLIAN", "MYANMAR", "NEWA", "NKO", "ORIYA", "PHAGS-PA", "SAURASHTRA", "SHARADA", "SINHALA"),
        *("SOGDIAN", "SUNDANESE", "SYRIAC", "TAKRI", "TAMIL", "TELUGU", "TIBETAN", "TIRHUTA"),
    }
)
_VARIED = {"CJK", "MONGOLIAN", "MYANMAR", "PHAGS-PA"}  # scripts with variants of signs


def contributor_name(value: str, where: str) -> str:
    """Return ``value`` stripped and NFC-normalised; refuse, naming ``where``, what is blank, long or not visible."""
    name = unicodedata.normalize("NFC", value.strip())
    if not name:
        raise UserError(f"{where}: an image without contributor: the contributor's name is blank")
    if len(name) > LONGEST:
        raise UserError(
            f"{where}: contributor {name[:20]!a}… has {len(name):,} characters; at most {LONGEST} are accepted"
        )
    for place, character in enumerate(name):
        if kind := _unseen(name[:place], character, name[place + 1 :]):
            found = f"contributor {name!a} contains the {kind} character {_code_point(character)}"
            raise UserError(f"{where}: {found}; printable characters are accepted")
    return name


def names_alike(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the groups of different names that look alike, by Unicode's table of confusable characters
    (https://www.unicode.org/reports/tr39/#Confusable_Detection)."""
    groups: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        groups.setdefault(_skeleton(name), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def names_alike_in_words(group: tuple[str, ...]) -> str:
    """Return a sentence on one of the groups, with the characters in which its names differ."""
    shared = set.intersection(*map(set, group))
    strange = sorted({character for name in group for character in name} - shared)
    shown = ", ".join(map(_code_point, strange[:4])) + (", …" if len(strange) > 4 else "")
    differ = f"they differ in {shown}" if strange else "they differ in how often a character is there"
    return f"contributors' names look alike: {', '.join(map(repr, group))}; {differ}; are these different people?"


def _code_point(character: str) -> str:
    return f"U+{ord(character):04X} ({unicodedata.name(character, 'without a name')})"


def _unseen(before: str, character: str, after: str) -> str | None:
    """Return what kind of character this is where nobody sees it in its place; None where it is seen."""
    previous, following = before[-1:], after[:1]
    if character in (_JOINER, _NOT_JOINER):
        return None if _joins(previous, character, following) else "invisible"
    if character in _SELECTORS:
        return None if _varies(previous, character, following) else "invisible"
    if character in _BLANKS or character == "\u200b" or any(ord(character) in each for each in _RESERVED):
        return "invisible"
    category = unicodedata.category(character)
    return "invisible" if category == "Cf" else "control" if category in _CONTROLS else None


def _joins(previous: str, joiner: str, following: str) -> bool:
    """Return whether a joiner acts on what is beside it: letters of some scripts, or the parts of an emoji."""
    if joiner == _JOINER and _in_emoji(previous) and _in_emoji(following):
        return True
    # at the end of a word, a joiner gives the last letter another shape
    ends = joiner == _JOINER and (not following or following.isspace())
    return _script(previous) in _JOINING and (ends or _script(following) in _JOINING)


def _varies(previous: str, selector: str, following: str) -> bool:
    """Return whether a selector chooses between variants of the character before it."""
    if selector in "\ufe0e\ufe0f":  # text or emoji
        symbol = bool(previous) and unicodedata.category(previous) in ("So", "Sm", "Po", "Pd")
        return symbol or following == "\u20e3"  # a key
    return _script(previous) in _VARIED


def _in_emoji(character: str) -> bool:
    tone = "\U0001f3fb" <= character <= "\U0001f3ff"
    return character == "\ufe0f" or tone or (bool(character) and unicodedata.category(character) == "So")


def _script(character: str) -> str:
    """Return the script of a letter or of a mark on one; "" of anything else."""
    if not character or unicodedata.category(character)[0] not in "LM":
        return ""
    return unicodedata.name(character, "").partition(" ")[0]


def _skeleton(name: str) -> str:
    """Return a text that names share which look alike."""
    seen = [
        " " if each.isspace() else each
        for each in unicodedata.normalize("NFKD", name)
        if each not in _SELECTORS and each not in (_JOINER, _NOT_JOINER)
    ]
    prototypes = _prototypes()
    once = "".join(prototypes.get(each, each) for each in " ".join("".join(seen).split()))
    return "".join(prototypes.get(each, each) for each in once)  # what looks like two characters, each by its own


@cache
def _prototypes() -> dict[str, str]:
    """Return one text for all characters that look like it, by character."""
    from confusable_homoglyphs.confusables import confusables_data

    parents: dict[str, str] = {}

    def first(text: str) -> str:
        while parents.setdefault(text, text) != text:
            text = parents[text]
        return text

    for character, homoglyphs in confusables_data.items():
        for each in homoglyphs:
            one, two = (first(text.replace("\u200e", "")) for text in (character, each["c"]))
            parents[max(one, two, key=_preference)] = min(one, two, key=_preference)
    return {text: first(text) for text in parents if len(text) == 1}


def _preference(text: str) -> tuple[int, str]:
    return -len(text), text
