import math

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage

from diffcredit.baselines import Evidence, aggregate, similarity
from diffcredit.baselines.similarity import ClusterDistance, FeatureSimilarity, PixelSimilarity
from diffcredit.errors import UserError
from diffcredit.features.pixels import Colours, pixel_features

from .made_up import contributions, generated, near_copies, permuted

COSINES = [PixelSimilarity(), FeatureSimilarity("layout"), FeatureSimilarity({"name": "pixels", "size": 8})]
LOCAL = [*COSINES, ClusterDistance(clusters=3)]


def cosine(a, b):
    pairs = [(float(x), float(y)) for x, y in zip(a.ravel(), b.ravel(), strict=True)]
    norms = math.sqrt(sum(x * x for x, _ in pairs)) * math.sqrt(sum(y * y for _, y in pairs))
    return sum(x * y for x, y in pairs) / norms if norms else 0.0


def mean_cosines(training, others):
    return [sum(cosine(x, g) for g in others) / len(others) for x in training]


@pytest.mark.parametrize("numbers_a_block", [2**24, 3 * 192, 1])
def test_pixel_similarity_is_the_mean_of_all_cosines(numbers_a_block, monkeypatch):
    monkeypatch.setattr(similarity, "BLOCK_NUMBERS", numbers_a_block)
    given, made = contributions(), generated(11)
    scores = PixelSimilarity().scores(Evidence(given, made))
    np.testing.assert_allclose(scores, mean_cosines(given.images, made), rtol=1e-12)


def test_feature_similarity_is_the_mean_of_all_cosines_of_what_the_extractor_sees():
    given, made = contributions(), generated()
    scores = FeatureSimilarity({"name": "colours", "bins": 3}).scores(Evidence(given, made))
    seen = [Colours(3).extract(images).vectors for images in (given.images, made)]
    np.testing.assert_allclose(scores, mean_cosines(*seen), rtol=1e-6)  # features are of float32


@pytest.mark.parametrize("method", LOCAL)
@pytest.mark.parametrize("favourite", range(4))
def test_whose_images_are_nearly_copied_comes_first(method, favourite):
    given = contributions()
    scores = method.scores(Evidence(given, near_copies(given, favourite)))
    for how in method.aggregations:
        credits = aggregate(scores, given, how)
        assert credits.argmax() == favourite
        if method in COSINES:
            assert 1 - credits[favourite] < (1 - np.delete(credits, favourite).max()) / 5


@pytest.mark.parametrize("method", [PixelSimilarity(), FeatureSimilarity({"name": "pixels", "size": 8})])
def test_black_images_are_similar_to_nothing(method):
    given, made = contributions(), generated(2)
    given.images[1] = 0
    made[0] = 0
    scores = method.scores(Evidence(given, made))
    assert scores[1] == 0
    assert scores[0] == pytest.approx(cosine(given.images[0], made[1]) / 2)


@pytest.mark.parametrize("method", LOCAL)
def test_the_order_of_the_training_images_is_that_of_the_scores(method):
    given, order = contributions(), np.random.default_rng(1).permutation(20)
    scores = method.scores(Evidence(given, generated()))
    turned = method.scores(Evidence(permuted(given, order), generated()[::-1]))
    np.testing.assert_allclose(turned, scores[order], rtol=1e-9)
    assert len(set(scores)) == 20


@pytest.mark.parametrize("method", LOCAL)
def test_images_are_not_changed(method):
    given, made = contributions(), generated()
    before = given.images.copy(), made.copy()
    method.scores(Evidence(given, made))
    np.testing.assert_array_equal(given.images, before[0])
    np.testing.assert_array_equal(made, before[1])


def test_an_unknown_extractor_is_refused():
    with pytest.raises(UserError, match="'nobody' is unknown"):
        FeatureSimilarity("nobody").scores(Evidence(contributions(), generated()))


def test_cluster_distance_is_minus_the_mean_distance_to_the_means_of_scipys_clusters():
    given, made = contributions(), generated(30)
    seen = pixel_features(made)
    labels = fcluster(linkage(seen, "ward"), 5, "maxclust")
    means = [seen[labels == k].mean(axis=0) for k in np.unique(labels)]
    expected = [-sum(math.dist(x, mean) for mean in means) / 5 for x in pixel_features(given.images)]
    assert len(means) == 5
    scores = ClusterDistance(clusters=5).scores(Evidence(given, made))
    np.testing.assert_allclose(scores, expected, rtol=1e-5)  # features are of float32


def test_clusters_of_black_images_have_finite_distances():
    given = contributions()
    given.images[:] = 0
    scores = ClusterDistance(clusters=2).scores(Evidence(given, np.zeros((3, 8, 8, 3), np.uint8)))
    np.testing.assert_array_equal(scores, 0)


def test_too_few_images_for_the_clusters_are_refused():
    with pytest.raises(UserError, match=r"cluster_distance\.clusters: 20 clusters of 6 generated images"):
        ClusterDistance().scores(Evidence(contributions(), generated()))
