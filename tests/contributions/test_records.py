import hashlib
import json

import numpy as np
import pytest

from diffcredit.contributions import HOUSE, Contributions, Duplicate
from diffcredit.contributions.names import contributor_name
from diffcredit.errors import UserError


def build(**changes) -> Contributions:
    images = np.arange(5 * 4 * 4 * 3, dtype=np.uint8).reshape(5, 4, 4, 3)
    fields = {
        "images": images,
        "owner": np.array([0, 2, 1, 2, 0]),
        "contributors": ("ada", "bob", "cyd"),
        "names": ("1", "2", "3", "4", "5"),
        "heldout": images[:2] + 100,
        "captions": ("", "a", "b", "c", "d"),
    }
    return Contributions(**(fields | changes))


def test_images_of_a_coalition():
    assert build(contributors=("ada", "bob", "cyd", "dan")).counts.tolist() == [2, 1, 2, 0]
    for coalition, indices in ([0, 0, 0], []), ([1, 0, 0], [0, 4]), ([0, 1, 1], [1, 2, 3]):
        found = build().of(np.array(coalition, dtype=bool))
        assert found.tolist() == indices
        assert found.dtype == np.int64
    for wrong in (np.ones(2, bool), np.ones((1, 3), bool), np.array([0, 1, 2])):
        with pytest.raises(ValueError, match=r"expected booleans of shape \(3,\)"):
            build().of(wrong)


def test_house_images_are_in_every_coalition_and_nobodys():
    """The third contributor's index is not mistaken for the house's, which numpy takes for the last."""
    given = build(owner=np.array([0, HOUSE, 1, 2, HOUSE]))
    assert given.counts.tolist() == [1, 1, 1]
    assert given.house.tolist() == [False, True, False, False, True]
    for coalition, inside, outside in (
        ([0, 0, 0], [1, 4], [0, 2, 3]),
        ([0, 0, 1], [1, 3, 4], [0, 2]),
        ([1, 1, 0], [0, 1, 2, 4], [3]),
        ([1, 1, 1], [0, 1, 2, 3, 4], []),
    ):
        members = np.array(coalition, dtype=bool)
        assert (given.of(members).tolist(), given.outside(members).tolist()) == (inside, outside)
        assert given.groups_of(members).tolist() == [*members, True]
        together = [
            row for group, there in zip(given.groups, given.groups_of(members), strict=True) if there for row in group
        ]
        assert sorted(together) == inside
        assert np.array_equal(build().groups_of(members), members)
        assert given.groups_of(members).dtype == build().groups_of(members).dtype == np.bool_
    assert given.summary == "3 images of 3 contributors and 2 house images"
    assert build().summary == "5 images of 3 contributors"
    assert given.fingerprint != build().fingerprint
    copied = given.images.copy()
    copied[3] = copied[1]
    assert build(images=copied, owner=given.owner).duplicates() == [Duplicate(("2", "4"), ("cyd", "the house"))]


def test_fingerprint_is_the_contents():
    base = build()
    assert len(base.fingerprint) == 64
    assert build().fingerprint == base.fingerprint
    assert build(skipped=("x.png: why",)).fingerprint == base.fingerprint
    assert build(left_out=("eve (1 image)",)).fingerprint == base.fingerprint
    assert build(images=np.asfortranarray(base.images)).fingerprint == base.fingerprint
    other = base.images.copy()
    other[3, 1, 1, 1] ^= 1
    held = base.heldout.copy()
    held[0, 0, 0, 0] ^= 1
    changed = [
        build(images=other),
        build(heldout=held),
        build(heldout=held[:0]),
        build(owner=np.array([0, 2, 1, 2, 1])),
        build(names=("1", "2", "3", "4", "6")),
        build(contributors=("ada", "bob", "dan")),
        build(captions=None),
        build(captions=("a", "a", "b", "c", "d")),
        build(captions=("", "", "", "", "")),
        build(heldout_captions=("", "")),
        build(heldout_captions=("", "x")),
    ]
    assert len({base.fingerprint, *(c.fingerprint for c in changed)}) == len(changed) + 1


def test_fingerprints_without_held_out_captions_stay_what_they_were():
    """By the formula that ledgers were written with: the canonical JSON's SHA-256, arrays by theirs."""
    for base in (build(), build(heldout=build().heldout[:0], heldout_captions=())):
        arrays = hashlib.sha256()
        for name in ("heldout", "images", "owner"):
            array = getattr(base, name)
            arrays.update(f"{name}\x1f{array.dtype.str}\x1f{array.shape}\x1f".encode() + array.tobytes())
        fields = {
            "arrays": arrays.hexdigest(),
            "captions": list(base.captions or ()),
            "contributors": list(base.contributors),
            "names": list(base.names),
        }
        text = json.dumps(fields, separators=(",", ":"))
        assert base.fingerprint == hashlib.sha256(text.encode()).hexdigest()


def test_duplicates_across_contributors_only():
    base = build()
    assert base.duplicates() == []
    copied = base.images.copy()
    copied[4] = copied[0]  # ada's own twice: nobody else's business
    assert build(images=copied).duplicates() == []
    copied[3] = copied[0]
    copied[2] = copied[1]
    assert build(images=copied).duplicates() == [
        Duplicate(names=("1", "4", "5"), contributors=("ada", "cyd")),
        Duplicate(names=("2", "3"), contributors=("bob", "cyd")),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((5, 4, 4), np.uint8)}, "images"),
        ({"images": np.zeros((5, 4, 5, 3), np.uint8)}, "images"),
        ({"images": np.zeros((5, 4, 4, 3), np.float32)}, "images"),
        ({"heldout": np.zeros((1, 8, 8, 3), np.uint8)}, "heldout"),
        ({"owner": np.array([0, 1])}, "owner"),
        ({"owner": np.array([0, 1, 2, 3, 0])}, "owner"),
        ({"owner": np.array([0, 1, 2, -2, 0])}, "owner"),
        ({"owner": np.array([0.0, 1, 2, 1, 0])}, "owner"),
        ({"names": ("1", "2", "3", "4", "4")}, "names"),
        ({"contributors": ("ada", "bob", "bob")}, "contributors"),
        ({"captions": ("a",)}, "captions"),
        ({"heldout_captions": ("a",)}, "heldout_captions"),
    ],
)
def test_records_that_contradict_themselves(change, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        build(**change)


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
