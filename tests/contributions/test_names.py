import pytest

from diffcredit.contributions.names import contributor_name
from diffcredit.errors import UserError


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("  Ada\t", "Ada"),
        ("Jose\u0301", "José"),
        ("李小龍", "李小龍"),
        ("نیم\u200cفاصله", "نیم\u200cفاصله"),
        ("👩\u200d🎨", "👩\u200d🎨"),
        ("Ada Lovelace & Co. #1", "Ada Lovelace & Co. #1"),
    ],
)
def test_one_spelling_for_one_contributor(given, name):
    assert contributor_name(given, "here") == name


@pytest.mark.parametrize("blank", ["", "  ", "\t\n", "\u00a0"])
def test_blank_is_no_contributor(blank):
    with pytest.raises(UserError, match="here: an image without contributor"):
        contributor_name(blank, "here")


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\n", "\u202e", "\u200b", "\u2028", "\ud800"])
def test_control_and_invisible_characters_are_refused(character):
    with pytest.raises(UserError, match=f"here: .*U\\+{ord(character):04X}") as caught:
        contributor_name(f"a{character}b", "here")
    assert character not in str(caught.value)
