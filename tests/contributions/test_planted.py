import dataclasses

import numpy as np
import pytest

from diffcredit.contributions import HOUSE, Contributions, Duplicate, with_copies, with_noise
from diffcredit.errors import UserError


@pytest.fixture
def base() -> Contributions:
    images = np.random.default_rng(3).integers(0, 256, (6, 16, 16, 3), dtype=np.uint8)
    return Contributions(
        images=images,
        owner=np.array([2, 0, 1, 2, 0, 2]),
        contributors=("ada", "mia", "zoe"),
        names=tuple("abcdef"),
        heldout=images[:1],
        captions=tuple("ABCDEF"),
    )


def owners(contributions):
    names = (contributions.contributors[index] for index in contributions.owner)
    return dict(zip(contributions.names, names, strict=True))


def test_noise_joins_and_leaves_the_others_alone(base):
    grown = with_noise(base, name="noise", count=300, seed=1)
    assert grown.contributors == ("ada", "mia", "noise", "zoe")
    assert grown.counts.tolist() == [2, 1, 300, 3]
    assert owners(base).items() <= owners(grown).items()
    assert np.array_equal(grown.images[:6], base.images)
    assert np.array_equal(grown.heldout, base.heldout)
    assert grown.captions == (*base.captions, *[""] * 300)
    assert base.n == 3


def test_house_images_stay_the_houses(base):
    house = dataclasses.replace(base, owner=np.array([1, 0, HOUSE, 1, 0, HOUSE]), contributors=("ada", "zoe"))
    house = dataclasses.replace(house, given=(2, 3), withheld=(0, 1))  # not known of those who are planted
    grown = with_copies(with_noise(house, name="noise"), of="zoe", name="bea")
    assert grown.contributors == ("ada", "bea", "noise", "zoe")
    assert grown.counts.tolist() == [2, 2, 2, 2]
    assert grown.given == grown.withheld == ()
    assert [grown.giver(row) for row in range(6)] == ["zoe", "ada", "the house", "zoe", "ada", "the house"]
    assert np.array_equal(grown.images[grown.owner == 1], base.images[[0, 3]])


def test_noise_is_uniform_and_independent(base):
    images = with_noise(base, count=300).images[6:].astype(float)
    # 230,400 uniform values on 0..255: mean 127.5 (standard error 0.154), variance (256² − 1)/12 = 5461
    assert abs(images.mean() - 127.5) < 5 * 0.154
    assert images.var() == pytest.approx((256**2 - 1) / 12, rel=0.01)
    neighbours = np.corrcoef(images[:, :, :-1].ravel(), images[:, :, 1:].ravel())[0, 1]
    assert abs(neighbours) < 5 / images[:, :, 1:].size ** 0.5


def test_noise_follows_from_its_seed(base):
    assert with_noise(base, seed=1).fingerprint == with_noise(base, seed=1).fingerprint
    assert with_noise(base, seed=1).fingerprint != with_noise(base, seed=2).fingerprint
    assert with_noise(base).counts.tolist() == [2, 1, 2, 3]  # (2 + 1 + 3) / 3 of its own


def test_copies(base):
    grown = with_copies(base, of="zoe", name="bob")
    assert grown.contributors == ("ada", "bob", "mia", "zoe")
    assert owners(base).items() <= owners(grown).items()
    copies = grown.of(np.array([False, True, False, False]))
    originals = grown.of(np.array([False, False, False, True]))
    assert np.array_equal(grown.images[copies], grown.images[originals])
    assert [grown.captions[index] for index in copies] == ["A", "D", "F"]
    assert {duplicate.contributors for duplicate in grown.duplicates()} == {("bob", "zoe")}
    assert grown.duplicates()[0] == Duplicate(("a", "bob/a"), ("bob", "zoe"))


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (lambda c: with_noise(c, "ada"), "'ada' is a contributor already"),
        (lambda c: with_noise(c, " "), "blank"),
        (lambda c: with_noise(c, count=0), "count: 0"),
        (lambda c: with_copies(c, of="eve", name="x"), "'eve' is no contributor; there are: ada, mia, zoe"),
        (lambda c: with_copies(c, of="ada", name="zoe"), "'zoe' is a contributor already"),
    ],
)
def test_what_cannot_be_planted(base, plant, message):
    with pytest.raises(UserError, match=message):
        plant(base)
