import math
from pathlib import Path

import numpy as np
import pytest

from diffcredit.errors import UserError
from diffcredit.features import Features
from diffcredit.features.extractors import Extractors
from diffcredit.properties import PROPERTIES, manifolds
from diffcredit.properties.manifolds import Coverage, Density, Precision, Recall, distances, squared_radii
from diffcredit.util.plugins import build
from properties.fake_features import context, pictures
from properties.fake_features import fitted as fitted_to

ALL = (Precision, Recall, Density, Coverage)
PIXELS = {"name": "pixels", "size": 2}


def fitted(kind, reference: np.ndarray, **options):
    prop = kind(**options)
    prop.restore({"vectors": reference, "radii": squared_radii(reference, prop.neighbours)})
    return prop


def value(kind, x: np.ndarray, y: np.ndarray, **options) -> float:
    return fitted(kind, y, **options).measure_features(Features(x))


def drawn(rng: np.random.Generator, images: int, dimensions: int = 3, shift: float = 0.0) -> np.ndarray:
    return (rng.normal(size=(images, dimensions)) + shift).astype(np.float32)


def radii(points: list, k: int) -> list[float]:
    return [sorted(math.dist(a, b) for j, b in enumerate(points) if j != i)[k - 1] for i, a in enumerate(points)]


def by_definition(kind, x: np.ndarray, y: np.ndarray, k: int) -> float:
    """Loops over pairs, after the authors' papers and code."""
    x, y = x.tolist(), y.tolist()
    real, fake = radii(y, k), radii(x, k)
    if kind is Precision:
        return np.mean([any(math.dist(a, b) <= r for b, r in zip(y, real, strict=True)) for a in x])
    if kind is Recall:
        return np.mean([any(math.dist(a, b) <= r for a, r in zip(x, fake, strict=True)) for b in y])
    if kind is Density:
        return np.mean([sum(math.dist(a, b) < r for b, r in zip(y, real, strict=True)) for a in x]) / k
    return np.mean([min(math.dist(a, b) for a in x) < r for b, r in zip(y, real, strict=True)])


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(manifolds, "PAIRS", 200)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("k", [1, 4])
def test_is_the_definition(kind, k):
    rng = np.random.default_rng(k)
    x, y = drawn(rng, 60, shift=0.8), drawn(rng, 75)
    expected = by_definition(kind, x, y, k)
    assert value(kind, x, y, neighbours=k) == pytest.approx(expected, rel=1e-12)
    assert 0 < expected != 1


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("offset", [0, 1e4])
def test_distances_keep_their_digits(offset):
    """Of vectors far from 0 and close to each other too."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 300)) + offset
    x[10:20] = x[:10] + 1e-5 * (1 + offset) * rng.normal(size=(10, 300))
    x[20:] = x[:10]
    x = x.astype(np.float32)
    found = np.concatenate([squared for _, squared in distances(x, x)])
    exact = np.array([[math.dist(a, b) ** 2 for b in x.tolist()] for a in x.tolist()])
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=0)
    assert (found[np.arange(10), np.arange(20, 30)] == 0).all()


def modes(rng: np.random.Generator, counts: tuple[int, ...]) -> np.ndarray:
    """Images of kinds that are far from each other."""
    return np.concatenate([drawn(rng, count, shift=50 * kind) for kind, count in enumerate(counts)])


def test_a_dropped_mode_costs_diversity_and_no_fidelity():
    rng = np.random.default_rng(3)
    y = modes(rng, (100, 100, 100, 100))
    whole, dropped = modes(rng, (100, 100, 100, 100)), modes(rng, (133, 133, 134))
    for kind in (Recall, Coverage):
        # by about the quarter of the reference that is missing
        assert value(kind, dropped, y) / value(kind, whole, y) == pytest.approx(0.75, abs=0.06)
    for kind in (Precision, Density):
        assert value(kind, dropped, y) == pytest.approx(value(kind, whole, y), abs=0.12)
        assert value(kind, whole, y) > 0.8


def test_outliers_cost_fidelity_and_no_diversity():
    rng = np.random.default_rng(4)
    y, good = modes(rng, (200, 200)), modes(rng, (200, 200))
    outliers = rng.uniform(-1000, -500, size=(100, 3)).astype(np.float32)
    mixed = np.concatenate([good, outliers])
    for kind in (Precision, Density):
        assert value(kind, mixed, y) == pytest.approx(0.8 * value(kind, good, y), rel=1e-9)
    assert value(Coverage, mixed, y) == value(Coverage, good, y)
    assert value(Recall, mixed, y) >= value(Recall, good, y)
    # one outlier among the real images makes a ball that holds nearly everything: precision is fooled, density not
    far = np.concatenate([y, np.full((1, 3), 3000, np.float32)])
    between = (200 + rng.normal(size=(50, 3))).astype(np.float32)
    assert value(Precision, between, y) == 0
    assert value(Precision, between, far) == 1
    assert value(Density, between, far) == pytest.approx(1 / 5)


def test_expectations_of_like_sets():
    """Naeem et al. (2020), lemma 2: density has the mean 1, coverage 1 − Π_{i=1..k} (n − i)/(n + m − i)."""
    rng = np.random.default_rng(5)
    n, m, k = 60, 40, 5
    pairs = [(drawn(rng, m), drawn(rng, n)) for _ in range(150)]
    densities, coverages = ([value(kind, x, y) for x, y in pairs] for kind in (Density, Coverage))
    assert np.mean(densities) == pytest.approx(1, abs=4 * np.std(densities) / np.sqrt(150))
    expected = 1 - math.prod((n - i) / (n + m - i) for i in range(1, k + 1))
    assert np.mean(coverages) == pytest.approx(expected, abs=4 * np.std(coverages) / np.sqrt(150))


def test_copies_make_balls_without_extent():
    """A contribution that was given six times: closed balls hold further copies, open ones nothing."""
    rng = np.random.default_rng(6)
    copied = np.repeat(drawn(rng, 1, shift=30), 6, axis=0)
    y = np.concatenate([drawn(rng, 40), copied])
    assert value(Precision, copied, y) == 1
    assert value(Precision, copied + np.float32(0.01), y) == 0
    assert value(Density, copied, y) == 0
    assert value(Coverage, y, y) == pytest.approx(40 / 46)
    assert value(Recall, y, y) == 1


@pytest.mark.parametrize(
    ("kind", "images", "shift", "dimensions"),
    [(Recall, 100, 0, 2), (Recall, 100, 0, 16), (Coverage, 100, 0.4, 2)],
)
def test_the_standard_error_of_a_share_of_the_reference(kind, images, shift, dimensions):
    """Within what the properties promise; the spread of 80 sets is known to 8 %."""
    rng = np.random.default_rng(8)
    prop = fitted(kind, drawn(rng, 200, dimensions))
    sets = [Features(drawn(rng, images, dimensions, shift)) for _ in range(80)]
    spread = np.std([prop.measure_features(features) for features in sets])
    error = np.sqrt(np.mean(np.square([prop.standard_error(features) for features in sets[:8]])))
    assert 0.75 < error / spread < 1.4


@pytest.mark.usefixtures("small_blocks")
def test_the_standard_errors_are_their_definitions():
    """Coverage without each of twenty groups, recall of 32 pairs of halves: measured on those images alone."""
    rng = np.random.default_rng(9)
    x, y = drawn(rng, 50, shift=0.5), drawn(rng, 60)
    without = [by_definition(Coverage, np.delete(x, np.s_[g::20], axis=0), y, 5) for g in range(20)]
    expected = math.sqrt(19 / 20 * np.square(without - np.mean(without)).sum())
    assert fitted(Coverage, y).standard_error(Features(x)) == pytest.approx(expected)

    def covered(some: np.ndarray) -> list[bool]:
        balls = list(zip(some.tolist(), radii(some.tolist(), 3), strict=True))
        return [any(math.dist(a, b) <= r for a, r in balls) for b in y.tolist()]

    one, other = (
        np.array([covered(x[half]) for half in side]) for side in (manifolds.halves(50), ~manifolds.halves(50))
    )
    both = np.square(one.mean(axis=1) - other.mean(axis=1)).mean() / 2
    alone = (one != other).mean() / 2 / 60
    assert fitted(Recall, y).standard_error(Features(x)) == pytest.approx(math.sqrt((both + alone) / 2))


@pytest.mark.parametrize("kind", ALL)
def test_is_fitted_to_the_reference(kind):
    y = pictures(20, seed=1)
    prop = fitted_to(kind(PIXELS), context(training=y))
    seen, real = (Extractors().extract(PIXELS, images) for images in (pictures(15, seed=2), y))
    expected = by_definition(kind, seen.vectors, real.vectors, prop.neighbours)
    assert prop.measure_features(seen) == pytest.approx(expected)


def test_says_what_it_needs():
    names = {kind: kind.name for kind in ALL}
    for kind, name in names.items():
        prop = build(name, {"features": "pixels", "neighbours": 4}, PROPERTIES, where="", beside=Path())
        assert type(prop) is kind
        assert prop.title == f"{name.capitalize()} (pixels)"
    with pytest.raises(UserError, match=r"^reference: 4 images in 'contributions'; at least 6 are needed"):
        Coverage().check(context(training=pictures(4)).contributions, 100)
    with pytest.raises(UserError, match=r"properties\.0\.neighbours: 0 is not accepted"):
        build("recall", {"neighbours": 0}, PROPERTIES, where="properties.0", beside=Path())
