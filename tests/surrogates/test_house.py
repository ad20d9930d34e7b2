"""Surrogates where there are house images."""

import dataclasses
import itertools

import numpy as np
import pytest

from diffcredit.contributions import HOUSE
from diffcredit.retraining import soup
from diffcredit.surrogates import Work
from diffcredit.surrogates.existing_images import RealImages, Reweighting
from diffcredit.surrogates.pools import Conditional, Pools, Soup

from .made_up import Models, material
from .test_conditional import Followed, given


@pytest.mark.parametrize("kind", [Pools, Soup, Conditional, Reweighting, RealImages])
def test_the_house_is_a_contributor_in_every_coalition(kind, tmp_path, monkeypatch):
    """The images are those of an ordinary game with the house's images as a fourth contributor's, who is always in."""
    monkeypatch.setattr(soup, "ContributorModels", Models)
    ordinary = given()
    house = dataclasses.replace(
        ordinary, owner=np.where(ordinary.owner == 3, HOUSE, ordinary.owner), contributors=("a", "b", "c")
    )
    made = []
    for name, contributions in (("house", house), ("ordinary", ordinary)):
        generated = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3)).astype(np.uint8)
        one = material(tmp_path / name, generated=generated, base=Followed())
        surrogate = kind()
        surrogate.prepare(dataclasses.replace(one, contributions=contributions))
        made.append(surrogate)
    for coalition in itertools.product([False, True], repeat=3):
        mine, theirs = made[0].images(np.array(coalition)), made[1].images(np.array([*coalition, True]))
        np.testing.assert_array_equal(mine, theirs)


def test_a_study_counts_the_houses_own_model(tmp_path):
    from diffcredit.study.study import Study
    from tiny_study import write_small

    house = {"contributions.house": ["bob"], "surrogates": [{"name": "pools", "coalitions": 30}]}
    work = Study.load(write_small(tmp_path, house, "ada bob cem dan eve")).surrogates.work(4, 8)
    assert work == Work(5, 5)
