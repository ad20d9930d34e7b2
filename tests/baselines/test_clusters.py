import math

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage

from diffcredit.baselines import Evidence, aggregate
from diffcredit.baselines.clusters import ClusterDistance
from diffcredit.errors import UserError
from diffcredit.features.pixels import pixel_features
from diffcredit.properties import Context
from diffcredit.properties.cluster_entropy import ClusterEntropy

from .made_up import contributions, generated, near_copies, permuted


def test_is_minus_the_mean_distance_to_the_means_of_scipys_clusters():
    given, made = contributions(), generated(30)
    seen = pixel_features(made)
    labels = fcluster(linkage(seen, "ward"), 5, "maxclust")
    means = [seen[labels == k].mean(axis=0) for k in np.unique(labels)]
    expected = [-sum(math.dist(x, mean) for mean in means) / 5 for x in pixel_features(given.images)]
    assert len(means) == 5
    scores = ClusterDistance(clusters=5).scores(Evidence(given, made))
    np.testing.assert_allclose(scores, expected, rtol=1e-5)  # features are of float32


def test_the_clusters_are_those_of_the_property():
    """An image that lies at the mean of a cluster of the property's is at distance 0 of it."""
    given = contributions()
    made = np.repeat(near_copies(given, 1, 2), 3, axis=0)
    prop = ClusterEntropy(clusters=2)
    centres = prop.fit(Context(made, given))["centres"]
    given.images[0] = made[0]
    apart = np.linalg.norm(centres[0] - centres[1])
    assert ClusterDistance(clusters=2).scores(Evidence(given, made))[0] == pytest.approx(-apart / 2, rel=1e-5)


@pytest.mark.parametrize("favourite", range(4))
def test_whose_images_are_nearly_copied_comes_first(favourite):
    given, method = contributions(), ClusterDistance(clusters=3)
    scores = method.scores(Evidence(given, near_copies(given, favourite, 12)))
    assert (scores < 0).all()
    for how in method.aggregations:
        assert aggregate(scores, given, how).argmax() == favourite


def test_the_order_of_the_training_images_is_that_of_the_scores():
    given, order = contributions(), np.random.default_rng(1).permutation(20)
    method, made = ClusterDistance(clusters=3), generated(9)
    scores = method.scores(Evidence(given, made))
    turned = method.scores(Evidence(permuted(given, order), made[::-1]))
    np.testing.assert_allclose(turned, scores[order], rtol=1e-9)
    assert len(set(scores)) > 15


def test_black_images_have_finite_scores():
    given = contributions()
    given.images[:] = 0
    scores = ClusterDistance(clusters=2).scores(Evidence(given, np.zeros((3, 8, 8, 3), np.uint8)))
    np.testing.assert_array_equal(scores, 0)


def test_too_few_images_are_refused():
    with pytest.raises(UserError, match=r"cluster_distance\.clusters: 20 clusters of 6 generated images"):
        ClusterDistance().scores(Evidence(contributions(), generated()))
    with pytest.raises(UserError, match="needs generated images"):
        ClusterDistance().scores(Evidence(contributions(), generated(0)))
