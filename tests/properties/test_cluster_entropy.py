import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.stats import entropy

from diffcredit.errors import UserError
from diffcredit.features import Features
from diffcredit.features.extractors import Extractors
from diffcredit.features.pixels import pixel_features
from diffcredit.properties.classes import ClusterEntropy
from properties.fake_features import FAKE, context, fitted

K = 4


def images(count: int, seed: int, kinds: int = 6) -> np.ndarray:
    """Noisy images of a few kinds that overlap, so that clusters are of unequal sizes and no two linkages agree."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).integers(0, 40, (kinds, 1, 1, 3))
    noise = rng.integers(0, 200, (count, 2, 2, 3)).repeat(4, axis=1).repeat(4, axis=2)
    return (centres[rng.choice(kinds, count, p=np.arange(1, kinds + 1) / (kinds * (kinds + 1) / 2))] + noise).astype(
        np.uint8
    )


def clusters_of(generated: np.ndarray, clusters: int = K, **options) -> ClusterEntropy:
    return fitted(ClusterEntropy(clusters, **options), context(generated))


def seen(pictures: np.ndarray) -> Features:
    return Features(pixel_features(pictures).astype(np.float32))


def solid() -> np.ndarray:
    """Three images each of K kinds."""
    return np.stack([np.full((8, 8, 3), 80 * k, dtype=np.uint8) for k in range(K) for _ in range(3)])


@pytest.mark.parametrize("option", ["layout", {"name": FAKE, "width": 12}])
def test_the_entropy_is_that_of_nearest_centroids_of_scipys_clusters(option):
    reference, new = images(80, seed=1), images(50, seed=2)
    extractors = Extractors()
    vectors = extractors.extract(option, reference).vectors.astype(np.float64)
    labels = fcluster(linkage(vectors, "ward"), K, "maxclust")
    centres = [vectors[labels == k].mean(axis=0) for k in range(1, K + 1)]
    features, counts = extractors.extract(option, new), np.zeros(K)
    for vector in features.vectors.astype(np.float64):
        counts[min(range(K), key=lambda k: ((vector - centres[k]) ** 2).sum())] += 1
    assert (counts > 0).sum() > 1
    assert clusters_of(reference, features=option).measure_features(features) == pytest.approx(entropy(counts))


def test_the_bounds_are_reached():
    reference = solid()
    prop = clusters_of(reference)
    assert prop.measure_features(seen(reference)) == pytest.approx(np.log(K))
    assert prop.measure_features(seen(reference[:3])) == 0
    # two kinds, one of them three times as frequent
    mixed = seen(reference[[0, 1, 2, 3]])
    assert prop.measure_features(mixed) == pytest.approx(-0.75 * np.log(0.75) - 0.25 * np.log(0.25))
    assert prop.range == (0, pytest.approx(np.log(K)))


def test_few_images_make_it_too_low_by_the_miller_madow_term():
    """Uniform over K kinds: the mean over many sets falls short of log K by what the property tells its readers."""
    reference, rng, m = solid(), np.random.default_rng(0), 50
    prop = clusters_of(reference)
    vectors = seen(reference).vectors
    values = [prop.measure_features(Features(vectors[3 * rng.integers(K, size=m)])) for _ in range(1000)]
    assert np.log(K) - np.mean(values) == pytest.approx((K - 1) / (2 * m), rel=0.1)
    assert f"{(K - 1) / 2:g} nats divided by the number of images" in prop.bias


def test_more_clusters_than_images_are_refused():
    with pytest.raises(UserError, match=r"cluster_entropy\.clusters: 5 clusters of 4 generated images"):
        clusters_of(images(4, seed=0), clusters=5)


def test_the_standard_error_is_the_spread_over_other_images():
    """Images of four kinds in known shares: the spread of the entropy over many sets, and its delta-method limit."""
    reference = solid()
    prop = clusters_of(reference)
    rng, shares, m = np.random.default_rng(0), np.array([0.55, 0.25, 0.15, 0.05]), 400
    vectors = seen(reference).vectors
    sets = [Features(vectors[3 * rng.choice(K, size=m, p=shares)]) for _ in range(200)]
    spread = np.std([prop.measure_features(features) for features in sets])
    errors = [prop.standard_error(features) for features in sets[:30]]
    assert np.mean(errors) == pytest.approx(spread, rel=0.15)
    limit = np.sqrt(((shares * np.log(shares) ** 2).sum() - entropy(shares) ** 2) / m)
    assert np.mean(errors) == pytest.approx(limit, rel=0.15)
    assert prop.standard_error(sets[0]) == errors[0]
    assert prop.standard_error(seen(reference[:3])) == 0
