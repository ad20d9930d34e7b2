"""Names that nobody can tell from each other: what is refused, what is warned of, and real names, which stay."""

import pytest

from diffcredit.cli.near_copies import tell_near_copies
from diffcredit.contributions.names import contributor_name, names_alike, names_alike_in_words
from diffcredit.errors import UserError
from diffcredit.study.study import Study
from tiny_study import write_small

REAL = """
    Ana María Núñez | Zoë | Łukasz Żółć | Nguyễn Thị Minh Khai | Þórður | İbrahim Çağlar | O’Brien | Jean-Luc | N'Ko
    Анна Ахматова | Ћирић | Յակոբ | გიორგი | Ἀριστοτέλης | שרה בן־גוריון | محمد علی | نرگس‌السادات | می‌رود
    श्रीमान् | क्‍ष | क्‌ष | প্র্যাকটিস র‍্যাব | ਗੁਰਪ੍ਰੀਤ | શ્રી | ଶ୍ରୀ | தமிழ்ச்செல்வன் | శ్రీనివాస్ | ಶ್ರೀನಿವಾಸ | അവന്‍ | ശ്രീ
    ශ්‍රී ලංකා | ประเสริฐ | ສົມສັກ | မောင်မောင် | ភក្តី | བསྟན་འཛིན | ᠮᠣᠩᠭᠣᠯ᠋ | 山田　太郎 | 葛󠄀城 | 李小龍 | 김민준 | አበበ
    ߒߞߏ | 𞤀𞤣𞤤𞤢𞤥 | ᏣᎳᎩ | x_ada_99 | 👩‍🎨 | ❤️‍🔥 | 👩🏽‍🚀 | 🏴‍☠️ | 1️⃣ | ana™️
"""


@pytest.mark.parametrize("name", [name.strip(" \n") for line in REAL.strip().split("\n") for name in line.split("|")])
def test_real_names_in_any_script_stay_as_they_are(name):
    assert contributor_name(name, "here") == name


INVISIBLE = {
    "HANGUL FILLER": "ana\u3164",
    "HALFWIDTH HANGUL FILLER": "ana\uffa0",
    "HANGUL JUNGSEONG FILLER": "\u1160ana",
    "ZERO WIDTH JOINER": "a\u200dna",
    "ZERO WIDTH NON-JOINER": "ana\u200c",
    "ZERO WIDTH SPACE": "ana\u200bmaria",
    "ZERO WIDTH NO-BREAK SPACE": "\ufeffana",
    "WORD JOINER": "ana\u2060",
    "INVISIBLE TIMES": "ana\u2062",
    "SOFT HYPHEN": "a\u00adna",
    "COMBINING GRAPHEME JOINER": "a\u034fna",
    "BRAILLE PATTERN BLANK": "\u2800",
    "VARIATION SELECTOR-16": "ana\ufe0f",
    "VARIATION SELECTOR-17": "ana\U000e0100",
    "MONGOLIAN FREE VARIATION SELECTOR ONE": "ana\u180b",
    "TAG LATIN SMALL LETTER A": "ana\U000e0061",
    "RIGHT-TO-LEFT OVERRIDE": "ana\u202e",
    "KHMER VOWEL INHERENT AQ": "ភ\u17b4",
}


@pytest.mark.parametrize("what", INVISIBLE)
def test_what_nobody_sees_is_refused_by_its_name(what):
    with pytest.raises(
        UserError, match=rf"^here: contributor '.*' contains the invisible character U\+\w+ \({what}\);"
    ):
        contributor_name(INVISIBLE[what], "here")


@pytest.mark.parametrize(
    "name",
    [
        "می\u200c",
        "\u200cمی",
        "می\u200c\u200cرود",
        "क\u200d\u200dष",
        "می\u200ca",
        "a\u200dक",
        "👩\u200d",
        "👩\u200da",
        "पिता\u200cx",
    ],
)
def test_joiners_are_refused_where_they_join_nothing(name):
    with pytest.raises(UserError, match=r"invisible character U\+200[CD] \(ZERO WIDTH"):
        contributor_name(name, "here")


ALIKE = [
    ("ana", "\u0430na"),  # Cyrillic
    ("scope", "ѕсоре"),  # all of it
    ("OMEGA", "ОМЕGА"),
    ("Αθηνα", "Aθηνα"),  # Latin A in a Greek name
    ("paypal", "paypaI"),
    ("ann0", "annO"),
    ("rnary", "mary"),
    ("ana maria", "ana\u00a0maria"),
    ("ana maria", "ana  maria"),
    ("می‌رود", "میرود"),
    ("葛城", "葛\U000e0100城"),
    ("❤", "❤️"),
    ("ℂarla", "Carla"),
    ("ａｎａ", "ana"),
]


@pytest.mark.parametrize("pair", ALIKE, ids=lambda pair: ascii(pair))
def test_names_that_look_alike_are_found(pair):
    assert names_alike([*pair, "bob", "Zoë"]) == [tuple(sorted(pair))]


def test_other_names_do_not_look_alike():
    names = [name.strip(" \n") for line in REAL.strip().split("\n") for name in line.split("|")]
    assert names_alike(names) == [("क्\u200cष", "क्\u200dष")]  # two spellings of one conjunct
    assert (
        names_alike(["ana", "Ana", "ania", "anna", "añа", "ben", "bén", "user1", "user2", "user11", "ana", "ana"]) == []
    )
    assert names_alike([f"artist-{index}" for index in range(2000)]) == []


def test_groups_are_named_with_the_characters_that_differ():
    (group,) = names_alike(["ana", "\u0430na", "an\u0430", "bob"])
    said = names_alike_in_words(group)
    assert said.startswith("contributors' names look alike: 'ana', 'an\u0430', '\u0430na'; they differ in ")
    assert "U+0430 (CYRILLIC SMALL LETTER A)" in said
    assert "how often a character is there" in names_alike_in_words(("a b", "a  b"))


def test_commands_warn_of_them(tmp_path, capsys):
    file = write_small(tmp_path, contributors="ana \u0430na ben")
    tell_near_copies(Study.load(file), write=False)
    told = " ".join(capsys.readouterr().err.split())
    assert told.startswith(
        "warning: contributors' names look alike: 'ana', '\u0430na'; they differ in U+0430 (CYRILLIC"
    )
    assert "ben" not in told
