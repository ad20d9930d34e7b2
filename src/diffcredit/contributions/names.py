"""Contributor names: one spelling for one contributor, safe to print in a table or on a payout."""

import unicodedata

from diffcredit.errors import UserError

# invisible or direction-changing characters let two names look alike; the joiners are part of real spellings
_REFUSED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = {"\u200c", "\u200d"}
LONGEST = 255  # characters, like a file's name


def contributor_name(value: str, where: str) -> str:
    """Return ``value`` stripped and NFC-normalised; any printable Unicode is accepted.

    :param where: the file, line or row that a ``UserError`` names where the name is blank, too long or contains a
        control or invisible character.
    """
    name = unicodedata.normalize("NFC", value.strip())
    if not name:
        raise UserError(f"{where}: an image without contributor: the contributor's name is blank")
    if len(name) > LONGEST:
        raise UserError(
            f"{where}: contributor {name[:20]!a}… has {len(name):,} characters; at most {LONGEST} are accepted"
        )
    for character in name:
        if unicodedata.category(character) in _REFUSED and character not in _JOINERS:
            raise UserError(
                f"{where}: contributor {name!a} contains the control character U+{ord(character):04X}; "
                "printable characters are accepted"
            )
    return name
