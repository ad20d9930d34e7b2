"""Players of equally many images instead of one for each name."""

import hashlib
import random

import numpy as np
import pytest

from diffcredit.contributions import HOUSE, Contributions, load_contributions, with_copies
from diffcredit.contributions.lots import in_lots
from diffcredit.errors import UserError

from .pictures import paint_many

GIVEN = {"Ada": 47, "Bob": 20, "Cyd": 7}


def contributions(given=GIVEN, house=3, seed=0):
    """Random images; the last of them are the house's."""
    images = np.random.default_rng(seed).integers(0, 256, (sum(given.values()) + house, 4, 4, 3), dtype=np.uint8)
    people = sorted(given)
    owner = [people.index(name) for name in given for _ in range(given[name])] + [HOUSE] * house
    names = tuple(f"{index:04d}" for index in range(len(images)))
    return Contributions(images, np.array(owner), tuple(people), names, images[:0])


def players(found):
    return dict(zip(found.contributors, found.counts.tolist(), strict=True))


def parts(found):
    """Every player's images, as a set of sets: whatever the players are called."""
    return {frozenset(found.images[row].tobytes() for row in np.flatnonzero(found.owner == i)) for i in range(found.n)}


def test_everybody_is_cut_into_whole_lots_and_a_rest():
    found = in_lots(contributions(), 10, seed=1)
    lots = {f"Ada · lot {i}": 10 for i in range(1, 5)} | {"Bob · lot 1": 10, "Bob · lot 2": 10}
    assert players(found) == {**lots, "Ada · rest": 7, "Cyd · rest": 7}
    assert found.contributors == tuple(sorted(found.contributors))
    assert found.whose == {player: player[:3] for player in found.contributors}
    assert found.givers == ("Ada", "Bob", "Cyd")
    assert found.lot == 10
    assert dict(zip(found.contributors, found.whole_lots.tolist(), strict=True)) == {
        player: "lot" in player for player in found.contributors
    }
    assert found.house.tolist() == contributions().house.tolist()
    assert found.summary == "74 images of 3 contributors in 6 lots of 10 and 2 smaller rests and 3 house images"


def test_numbers_sort_as_numbers():
    found = in_lots(contributions({"Ada": 100, "Bob": 20}), 5, seed=0)
    assert found.contributors[:3] == ("Ada · lot 01", "Ada · lot 02", "Ada · lot 03")
    assert [name for name in found.contributors if name.startswith("Bob")] == [f"Bob · lot {i}" for i in range(1, 5)]


def test_the_place_of_an_image_follows_from_the_seed_and_its_pixels_alone():
    given = contributions()
    found = in_lots(given, 10, seed=3)
    own = [i for i in range(len(given.images)) if given.owner[i] == 0]
    expected = sorted(own, key=lambda i: hashlib.sha256(b"lots:3:" + given.images[i].tobytes()).digest())
    for number in range(4):
        player = found.contributors.index(f"Ada · lot {number + 1}")
        assert set(np.flatnonzero(found.owner == player)) == set(expected[10 * number : 10 * number + 10])
    assert parts(in_lots(given, 10, seed=4)) != parts(found)
    order = random.Random(0).sample(range(len(given.images)), len(given.images))
    shuffled = Contributions(given.images[order], given.owner[order], ("Xa", "Yb", "Zc"), given.names, given.heldout)
    assert parts(in_lots(shuffled, 10, seed=3)) == parts(found)


def test_splitting_an_account_makes_no_more_whole_lots_than_rests_allow():
    one = contributions({"Ada": 60, "Bob": 60})
    assert in_lots(one, 20, 0).whole_lots.sum() == 6
    owner = one.owner.copy()
    owner[owner == 1] = 3
    owner[:60] = np.arange(60) % 3  # three accounts of equal size, of the very same images
    split = Contributions(one.images, owner, ("Ada 1", "Ada 2", "Ada 3", "Bob"), one.names, one.heldout)
    assert players(in_lots(split, 20, 0)) == {
        **{f"Ada {i} · lot 1": 20 for i in (1, 2, 3)},
        **{f"Bob · lot {i}": 20 for i in (1, 2, 3)},
    }
    owner[:60] = np.arange(60) % 2  # of 30 images each: the whole lots only become fewer
    uneven = Contributions(one.images, owner, ("Ada 1", "Ada 2", "Ada 3", "Bob"), one.names, one.heldout)
    uneven = in_lots(uneven, 20, 0)
    assert uneven.whole_lots.sum() == 2 + 3
    assert uneven.counts.sum() == 120  # nobody's images are lost


def test_people_stay_the_givers():
    found = in_lots(contributions(), 10, seed=1)
    assert {found.giver(row) for row in np.flatnonzero(found.owner != HOUSE)} == {"Ada", "Bob", "Cyd"}
    doubled = Contributions(
        np.concatenate([found.images[:2], found.images[:2]]), np.zeros(4, int), ("Ada", "Bob"), tuple("abcd"),
        found.heldout,
    )  # fmt: skip
    assert in_lots(doubled, 2, 0).duplicates() == []  # in two lots of one contributor
    planted = with_copies(found, of="Bob · lot 1", name="Eve")
    assert planted.whose["Eve"] == "Eve"
    assert planted.givers == ("Ada", "Bob", "Cyd", "Eve")


def test_works_are_those_of_all_lots_together():
    given = contributions()
    hashes = sorted(hashlib.sha256(image.tobytes()).hexdigest() for image in given.images[given.owner == 0])
    digest = hashlib.sha256("\n".join(hashes).encode()).hexdigest()
    for found in (given, in_lots(given, 10, 0)):
        works = found.works("Ada")
        assert works.digest == digest
        assert [name for name, _ in works.images] == list(given.names[:47])
        assert sorted(sha for _, sha in works.images) == hashes
    with pytest.raises(UserError, match="'Ada · lot 1' is no contributor; there are: Ada, Bob, Cyd"):
        in_lots(given, 10, 0).works("Ada · lot 1")


@pytest.mark.parametrize(
    ("given", "lot", "message"),
    [
        (GIVEN, 1, "lots: 1; a number of images from 2"),
        (GIVEN, True, "lots: True; a number"),
        (GIVEN, 10.0, r"lots: 10\.0; a number"),
        (GIVEN, 48, "lots: 48, but nobody has more than 47 training images; at most 47"),
        ({"Ada · lot 1": 10, "Bob": 10}, 5, "'Ada · lot 1' reads like the name of a lot"),
        ({"Ada · rest": 10, "Bob": 10}, 5, "'Ada · rest' reads like the name of a lot"),
    ],
)
def test_refused(given, lot, message):
    with pytest.raises(UserError, match=message):
        in_lots(contributions(given), lot, 0)


def test_lots_are_not_cut_again():
    with pytest.raises(UserError, match="cut into lots already"):
        in_lots(in_lots(contributions(), 10, 0), 5, 0)


def test_loading(tmp_path):
    paint_many(tmp_path, [f"{who}/{i:02d}.png" for who in ("a1", "a2", "bob") for i in range(10)])
    options = {"resolution": 4, "identities": {"ada": ["a1", "a2"]}, "holdout": 0.1, "seed": 5}
    found = load_contributions(tmp_path, lots=4, **options)
    assert players(found) == {
        **{f"ada · lot {i}": 4 for i in range(1, 5)}, "ada · rest": 2,
        "bob · lot 1": 4, "bob · lot 2": 4, "bob · rest": 1,
    }  # fmt: skip
    assert (found.given, found.withheld) == ((20, 10), (2, 1))
    whole = load_contributions(tmp_path, **options)
    assert parts(in_lots(whole, 4, 5)) == parts(found)
    assert whole.names == found.names
