import math

import numpy as np
import pytest

from diffcredit.errors import UserError
from diffcredit.features import Features
from diffcredit.features.extractors import Extractors
from diffcredit.properties import memorisation
from diffcredit.properties.memorisation import MemorisedShare, NearestDistance, distinct_images, nearest_distances
from properties.fake_features import context, fitted, pictures

SMALL = {"name": "pixels", "size": 8}


def seen(images: np.ndarray, option=SMALL) -> Features:
    return Extractors().extract(option, images)


def distance(training: np.ndarray, option=SMALL) -> NearestDistance:
    return fitted(NearestDistance(option), context(training=training))


def memorised(training: np.ndarray, option=SMALL, **options) -> MemorisedShare:
    return fitted(MemorisedShare(option, **options), context(training=training))


def brute_force(images: np.ndarray, training: np.ndarray) -> list[list[float]]:
    """All distances of each image to the training images, nearest first, pixel by pixel on the scale 0 to 1."""
    flat = [(image.astype(float) / 255).ravel().tolist() for image in training]
    return [sorted(math.dist((image / 255).ravel().tolist(), other) for other in flat) for image in images]


def noisy(images: np.ndarray, sigma: float, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, sigma, images.shape)
    return np.clip(np.round(images + noise), 0, 255).astype(np.uint8)


def test_is_the_brute_force_distance():
    training, images = pictures(30, seed=1), pictures(20, seed=2)
    expected = np.array([distances[0] for distances in brute_force(images, training)]) / math.sqrt(8 * 8 * 3)
    prop = distance(training)
    assert prop.measure_features(seen(images)) == pytest.approx(expected.mean(), rel=1e-6)
    assert prop.standard_error(seen(images)) == pytest.approx(expected.std() / math.sqrt(20), rel=1e-5)


@pytest.mark.parametrize("ratio", [1 / 3, 0.95])
def test_is_the_brute_force_share(ratio):
    training = pictures(25, seed=1)
    images = np.concatenate([pictures(10, seed=2), noisy(training[:10], 60), noisy(training[10:], 20)])
    expected = [first < ratio * second for first, second, *_ in brute_force(images, training)]
    prop = memorised(training, ratio=ratio)
    assert prop.measure_features(seen(images)) == np.mean(expected)
    assert prop.standard_error(seen(images)) == pytest.approx(np.std(expected) / math.sqrt(len(images)))
    assert 0 < np.mean(expected) < 1


def test_images_are_looked_for_once(monkeypatch):
    searched, search = [], nearest_distances
    monkeypatch.setattr(
        memorisation,
        "nearest_distances",
        lambda vectors, *given: searched.append(len(vectors)) or search(vectors, *given),
    )
    training, images = pictures(30, seed=1), pictures(20, seed=2)
    prop = distance(training)

    def check(shown: np.ndarray) -> None:
        nearest = np.array([distances[0] for distances in brute_force(shown, training)]).mean()
        assert prop.measure_features(seen(shown)) == pytest.approx(nearest / math.sqrt(8 * 8 * 3), rel=1e-6)

    check(images)
    prop.standard_error(seen(images))
    assert searched == [20]
    check(np.concatenate([images[5:10], images[:5], pictures(3, seed=3), images[:2]]))  # some of them new
    assert searched == [20, 3]
    monkeypatch.setattr(memorisation, "MOST_CACHED", 30)
    check(pictures(12, seed=4))
    check(images)
    assert searched == [20, 3, 12, 20]


def test_copies_have_no_distance_even_far_from_the_origin():
    """Where ‖x‖² − 2x·y + ‖y‖² cancels to rounding errors."""
    rng = np.random.default_rng(0)
    training = (1000 + rng.normal(size=(40, 300))).astype(np.float32)
    found = nearest_distances(training[::-1], training, 2)
    assert (found[:, 0] == 0).all()
    gaps = np.linalg.norm(training[:, None].astype(float) - training, axis=2) + np.diag(np.full(40, np.inf))
    np.testing.assert_allclose(found[:, 1], gaps.min(axis=1)[::-1], rtol=1e-9)


def test_an_image_at_the_ratio_itself_is_not_memorised():
    prop = MemorisedShare()
    prop.restore({"training": np.array([[0], [4], [100]], np.float32)})
    for x, expected in ((0.99, 1), (1, 0), (1.01, 0), (3, 0), (3.01, 1)):
        assert prop.measure_features(Features(np.array([[x]], np.float32))) == expected


def test_planted_copies_are_found():
    training = pictures(40, seed=1)
    images = np.concatenate([training[:3], noisy(training[3:6], 8), pictures(6, seed=2)])
    assert memorised(training).measure_features(seen(images)) == 6 / 12
    assert memorised(training).measure_features(seen(training)) == 1
    assert memorised(training).measure_features(seen(pictures(6, seed=2))) == 0
    assert distance(training).measure_features(seen(training)) == 0


def test_copies_by_several_contributors_count_once():
    """Without that the second nearest image of a copy would be another copy, and nothing memorised."""
    training = pictures(20, seed=1)
    twice = np.concatenate([training, training[:12], training[:5]])
    images = np.concatenate([training[:12], pictures(4, seed=2)])
    assert memorised(twice).measure_features(seen(images)) == 12 / 16
    assert memorised(twice).measure_features(seen(images)) == memorised(training).measure_features(seen(images))
    assert distance(twice).measure_features(seen(images)) == distance(training).measure_features(seen(images))
    assert distinct_images(twice).tolist() == list(range(20))
    assert distinct_images(twice[[3, 3, 23, 4, 24]]).tolist() == [0, 3]


def test_fewer_than_two_distinct_training_images_are_refused():
    one = pictures(1)
    with pytest.raises(UserError, match="memorised_share: 1 distinct training images; at least 2"):
        MemorisedShare().check(context(training=one).contributions, 6)
    with pytest.raises(UserError, match="memorised_share: 1 distinct training images; at least 2"):
        MemorisedShare().check(context(training=np.repeat(one, 4, axis=0)).contributions, 6)
    assert distance(np.repeat(one, 4, axis=0)).measure_features(seen(one)) == 0
