import numpy as np
import pytest

from diffcredit.baselines import BASELINES, baseline_credits
from diffcredit.errors import UserError
from diffcredit.properties.colourfulness import Colourfulness

from .made_up import COUNTS, contributions, near, permuted

PROPERTY = Colourfulness()


def generated(seed=5):
    return np.random.default_rng(seed).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)


@pytest.mark.parametrize("name", BASELINES)
def test_one_finite_number_a_contributor_whatever_the_order_of_the_images(name):
    given = contributions()
    credits = baseline_credits(name, given, generated(), prop=PROPERTY, seed=3)
    assert credits.shape == (4,)
    assert credits.dtype == np.float64
    assert np.isfinite(credits).all()
    rng = np.random.default_rng(1)
    mixed = baseline_credits(
        name,
        permuted(given, rng.permutation(20)),
        generated()[rng.permutation(6)],
        prop=PROPERTY,
        seed=3,
    )
    np.testing.assert_allclose(mixed, credits, rtol=1e-12)


@pytest.mark.parametrize("name", ["pixel_similarity_mean", "pixel_similarity_max"])
@pytest.mark.parametrize("favourite", range(4))
def test_whose_images_are_nearly_copied_comes_first(name, favourite):
    given = contributions()
    own = given.images[given.owner == favourite]
    copies = near(own[[0, 1, 2, 0, 1, 2]], np.random.default_rng(9))
    credits = baseline_credits(name, given, copies)
    assert credits.argmax() == favourite
    assert credits[favourite] > 0.95 > np.delete(credits, favourite).max()


def test_mean_and_max_differ_where_one_image_is_copied():
    given = contributions()
    odd = np.zeros((8, 8, 3), dtype=np.uint8)
    odd[2:4] = 255  # unlike any pattern
    given.images[0] = odd
    copies = np.repeat(odd[None], 3, axis=0)
    assert baseline_credits("pixel_similarity_max", given, copies)[0] == pytest.approx(1)
    assert baseline_credits("pixel_similarity_mean", given, copies)[0] < 0.8


def test_image_count():
    np.testing.assert_array_equal(baseline_credits("image_count", contributions(), generated()), COUNTS)


def test_random_ranking_is_a_ranking_that_the_seed_chooses():
    given = contributions()
    rankings = [tuple(baseline_credits("random_ranking", given, generated(), seed=seed)) for seed in range(300)]
    assert {tuple(sorted(ranking)) for ranking in rankings} == {(1, 2, 3, 4)}
    assert len(set(rankings)) == 24
    assert rankings[0] == tuple(baseline_credits("random_ranking", given, generated(9), seed=0))


def test_training_property_is_that_of_the_own_images():
    given = contributions()
    grey = given.images.mean(axis=-1, keepdims=True).astype(np.uint8)
    given.images[given.owner == 2] = grey[given.owner == 2]
    credits = baseline_credits("training_property", given, generated(), prop=PROPERTY)
    assert credits[2] == 0  # grey images have no colour
    for i in (0, 1, 3):
        assert credits[i] == PROPERTY.measure(given.images[given.owner == i]) > 0


def test_refusals_say_what_is_accepted():
    with pytest.raises(UserError, match=r"'pixels': unknown; choose one of image_count, random_ranking"):
        baseline_credits("pixels", contributions(), generated())
    with pytest.raises(UserError, match="needs the property"):
        baseline_credits("training_property", contributions(), generated())
