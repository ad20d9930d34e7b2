import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.stats import entropy

from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.properties import Context
from diffcredit.properties.cluster_entropy import ClusterEntropy
from diffcredit.properties.features import pixel_features

K = 4


def images(count: int, seed: int, kinds: int = 6) -> np.ndarray:
    """Noisy images of a few kinds that overlap, so that clusters are of unequal sizes and no two linkages agree."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).integers(0, 40, (kinds, 1, 1, 3))
    noise = rng.integers(0, 200, (count, 2, 2, 3)).repeat(4, axis=1).repeat(4, axis=2)
    return (centres[rng.choice(kinds, count, p=np.arange(1, kinds + 1) / (kinds * (kinds + 1) / 2))] + noise).astype(
        np.uint8
    )


def context(generated: np.ndarray) -> Context:
    nothing = np.zeros((2, 8, 8, 3), dtype=np.uint8)
    return Context(generated, Contributions(nothing, np.array([0, 1]), ("a", "b"), ("1", "2"), nothing[:0]))


def fitted(generated: np.ndarray, clusters: int = K) -> ClusterEntropy:
    prop = ClusterEntropy(clusters)
    prop.restore(prop.fit(context(generated)))
    return prop


def ward(points: np.ndarray, clusters: int) -> set[frozenset[int]]:
    """Ward's clusters by definition: merge whichever two raise the sum of squares least, until K are left."""
    parts = [[i] for i in range(len(points))]
    while len(parts) > clusters:
        costs = {}
        for i, one in enumerate(parts):
            for j, other in enumerate(parts[:i]):
                gap = points[one].mean(axis=0) - points[other].mean(axis=0)
                costs[i, j] = len(one) * len(other) / (len(one) + len(other)) * gap @ gap
        i, j = min(costs, key=costs.get)
        parts[j] += parts.pop(i)
    return {frozenset(part) for part in parts}


def sorted_rows(array: np.ndarray) -> np.ndarray:
    return array[np.lexsort(array.T[::-1])]


def test_clusters_are_wards():
    generated = images(24, seed=1)
    features = pixel_features(generated)
    centres = np.array([features[sorted(part)].mean(axis=0) for part in ward(features, K)])
    np.testing.assert_allclose(sorted_rows(fitted(generated).centres), sorted_rows(centres), atol=1e-12)


def test_the_entropy_is_that_of_nearest_centroids_of_scipys_clusters():
    reference, new = images(80, seed=1), images(50, seed=2)
    features = pixel_features(reference)
    labels = fcluster(linkage(features, "ward"), K, "maxclust")
    centres = [features[labels == k].mean(axis=0) for k in range(1, K + 1)]
    counts = np.zeros(K)
    for feature in pixel_features(new):
        counts[min(range(K), key=lambda k: ((feature - centres[k]) ** 2).sum())] += 1
    assert (counts > 0).sum() > 1
    assert fitted(reference).measure(new) == pytest.approx(entropy(counts))


def test_the_bounds_are_reached():
    reference = np.stack([np.full((8, 8, 3), 80 * k, dtype=np.uint8) for k in range(K) for _ in range(3)])
    prop = fitted(reference)
    assert prop.measure(reference) == pytest.approx(np.log(K))
    assert prop.measure(reference[:3]) == 0
    # two kinds, one of them three times as frequent
    assert prop.measure(reference[[0, 1, 2, 3]]) == pytest.approx(-0.75 * np.log(0.75) - 0.25 * np.log(0.25))
    assert set(prop.assign(reference[:3])) | set(prop.assign(reference[3:6])) == set(prop.assign(reference[:6]))


@pytest.mark.parametrize("seed", range(5))
def test_lies_between_zero_and_log_k(seed):
    prop = fitted(images(40, seed=7))
    noise = np.random.default_rng(seed).integers(0, 256, (10, 8, 8, 3), dtype=np.uint8)
    for pictures in (images(10, seed), noise, noise[:1]):
        assert 0 <= prop.measure(pictures) <= np.log(K) + 1e-12


def test_more_clusters_than_images_are_refused():
    with pytest.raises(UserError, match=r"cluster_entropy\.clusters: 5 clusters of 4 generated images"):
        fitted(images(4, seed=0), clusters=5)


def test_images_that_cannot_be_divided_are_refused():
    with pytest.raises(UserError, match="multiples of 4"):
        ClusterEntropy(2).fit(context(np.zeros((8, 6, 6, 3), dtype=np.uint8)))


def test_the_standard_error_is_the_spread_over_other_images():
    """Images of four kinds in known shares: the spread of the entropy over many sets, and its delta-method limit."""
    reference = np.stack([np.full((8, 8, 3), 80 * k, dtype=np.uint8) for k in range(K) for _ in range(3)])
    prop = fitted(reference)
    rng, shares, m = np.random.default_rng(0), np.array([0.55, 0.25, 0.15, 0.05]), 400
    sets = [reference[3 * rng.choice(K, size=m, p=shares)] for _ in range(200)]
    spread = np.std([prop.measure(pictures) for pictures in sets])
    errors = [prop.standard_error(pictures) for pictures in sets[:30]]
    assert np.mean(errors) == pytest.approx(spread, rel=0.15)
    limit = np.sqrt(((shares * np.log(shares) ** 2).sum() - entropy(shares) ** 2) / m)
    assert np.mean(errors) == pytest.approx(limit, rel=0.15)
    assert prop.standard_error(sets[0]) == errors[0]
    assert prop.standard_error(reference[:3]) == 0
