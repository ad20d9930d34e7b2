from itertools import product

import numpy as np
import pytest

from diffcredit.errors import UserError
from diffcredit.features.extractors import Extractors
from diffcredit.properties import as_property
from diffcredit.properties.prompted import for_prompts
from diffcredit.retraining import soup
from diffcredit.surrogates import SurrogateValues, Work
from diffcredit.surrogates.existing_images import RealImages, Reweighting
from diffcredit.surrogates.pools import Conditional, Pools, Soup, shared_out
from diffcredit.util.progress import silent

from .made_up import COUNTS, LEVELS, Models, material, other_sampling


@pytest.fixture(autouse=True)
def models(monkeypatch):
    monkeypatch.setattr(soup, "ContributorModels", Models)
    monkeypatch.setattr(Models, "made", 0)
    return Models


def prepared(one):
    pools = Pools()
    pools.prepare(one)
    return pools


def brightness(images):
    return images[:, 0, 0, 0].astype(int)


def test_every_noise_once_from_a_members_pool(tmp_path):
    pools = prepared(material(tmp_path))
    coalition = np.array([True, False, True, True])
    levels = brightness(pools.images(coalition)) - np.arange(20)  # image j is the member's level + j
    assert set(levels) == {LEVELS[0], LEVELS[2], LEVELS[3]}
    np.testing.assert_array_equal(brightness(pools.images(np.arange(4) == 1)), LEVELS[1] + np.arange(20))


@pytest.mark.parametrize("prompts", [2, 3, 4])
def test_the_images_for_some_prompts_are_shared_out_among_themselves(tmp_path, prompts):
    """Image j follows prompt j mod k; the first prompt's images are every second, third or fourth."""
    pools = prepared(material(tmp_path, images=40))
    prop = for_prompts(as_property(lambda images: float(images.mean())), ["prompt 0"])
    prop.choose([f"prompt {j % prompts}" for j in range(40)])
    values = SurrogateValues("pools", [prop.name], {}, lambda *_: None, lambda: (pools, [prop], Extractors()), silent)
    assert values.stands_in_for(prop.name)
    seeds = np.arange(0, 40, prompts)
    for coalition in np.array(list(product([False, True], repeat=4)))[1:]:
        library = brightness(pools.library[pools.rows_for(coalition, seeds)])
        found = library - seeds  # the members' levels
        (value,) = values.game(prop.name)(coalition[None])
        assert value == library.mean()
        share = np.array(COUNTS) * coalition / (np.array(COUNTS) @ coalition)
        for level, wanted in zip(LEVELS, len(seeds) * share, strict=True):
            assert abs((found == level).sum() - wanted) <= 1 + np.log2(len(seeds)) / 3


def test_only_surrogates_with_the_images_of_the_seeds_stand_in_for_prompts(tmp_path):
    prop = for_prompts(as_property(lambda images: float(images.mean())), ["prompt 0"])
    prop.choose(["prompt 0", "prompt 1"] * 10)
    for surrogate, expected in ((prepared(material(tmp_path)), True), (RealImages(), False), (Reweighting(), False)):
        loaded = (surrogate, [prop], Extractors())
        values = SurrogateValues("one", [prop.name], {}, lambda *_: None, lambda loaded=loaded: loaded, silent)
        assert values.stands_in_for(prop.name) == expected


@pytest.mark.parametrize("images", [1, 7, 64, 1000])
def test_members_share_the_images_as_they_share_the_data(images):
    counts = np.array([3, 1, 2, 400, 17, 90])
    for coalition in np.random.default_rng(0).random((30, 6)) < 0.5:
        if not coalition.any():
            continue
        owners = shared_out(coalition, counts, images)
        wanted = images * np.where(coalition, counts, 0) / counts[coalition].sum()
        # the discrepancy of van der Corput's sequence: 1 + log₂(m)/3 over any interval
        assert np.abs(np.bincount(owners, minlength=6) - wanted).max() <= 1 + np.log2(images) / 3
        assert coalition[owners].all()


def test_pools_are_sampled_once_and_taken_up_again(tmp_path, models):
    one = material(tmp_path)
    prepared(one)
    files = sorted(tmp_path.iterdir())
    assert len(files) == len(COUNTS)
    before = [file.stat().st_mtime_ns for file in files]
    prepared(one)
    assert models.made == 1
    files[2].unlink()
    prepared(one)
    assert models.made == 2
    after = [file.stat().st_mtime_ns for file in files]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, True, False, True]
    prepared(other_sampling(one, seed=5))
    assert len(list(tmp_path.iterdir())) == 2 * len(COUNTS)


def test_a_soups_images_are_of_the_members_average_weighted_by_data(tmp_path):
    soup = Soup()
    soup.prepare(material(tmp_path, images=3))
    images = soup.images(np.array([True, False, False, True]))
    level = (COUNTS[0] * LEVELS[0] + COUNTS[3] * LEVELS[3]) / (COUNTS[0] + COUNTS[3])
    np.testing.assert_array_equal(brightness(images), round(level) + np.arange(3))


@pytest.mark.parametrize(
    ("surrogate", "work"), [(Pools(), Work(7, 7)), (Soup(), Work(7, 500)), (Conditional(), Work(0, 7))]
)
def test_costs(surrogate, work):
    assert surrogate.work(7, 500) == work


@pytest.mark.parametrize("surrogate", [Pools(), Soup()])
def test_coalitions_must_start_from_a_model(tmp_path, surrogate):
    with pytest.raises(UserError, match=r"surrogate '(pools|soup)' fine-tunes .* accepted: a retraining such as fine_"):
        surrogate.prepare(material(tmp_path, weights=""))
