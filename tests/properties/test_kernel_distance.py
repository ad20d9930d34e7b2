import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from diffcredit.errors import UserError
from diffcredit.features import Features
from diffcredit.features.extractors import Extractors
from diffcredit.properties import PROPERTIES, kernel_distance
from diffcredit.properties.kernel_distance import KernelDistance, pairs
from diffcredit.util.plugins import build
from properties.fake_features import context, pictures

D = 5
PIXELS = {"name": "pixels", "size": 2}


def fitted(reference: np.ndarray) -> KernelDistance:
    rows, _ = pairs(reference, np.zeros(len(reference)))
    prop = KernelDistance()
    prop.restore({"vectors": reference, "within": np.array([rows.mean()])})
    return prop


def drawn(rng: np.random.Generator, images: int, shift: float = 0.0, scale: float = 1.0) -> np.ndarray:
    return (scale * rng.normal(size=(images, D)) + shift).astype(np.float32)


def by_definition(x: np.ndarray, y: np.ndarray) -> float:
    """Pair by pair."""

    def k(a, b):
        return (sum(p * q for p, q in zip(a, b, strict=True)) / len(a) + 1) ** 3

    x, y = x.tolist(), y.tolist()
    own = np.mean([k(a, b) for i, a in enumerate(x) for j, b in enumerate(x) if i != j])
    theirs = np.mean([k(a, b) for i, a in enumerate(y) for j, b in enumerate(y) if i != j])
    return own + theirs - 2 * np.mean([k(a, b) for a in x for b in y])


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(kernel_distance, "BLOCK", 16)


@pytest.mark.usefixtures("small_blocks")
def test_is_the_definition():
    rng = np.random.default_rng(0)
    x, y = drawn(rng, 40, shift=0.3), drawn(rng, 53)
    assert fitted(y).measure_features(Features(x)) == pytest.approx(by_definition(x, y), rel=1e-9)


@pytest.mark.usefixtures("small_blocks")
def test_means_and_variance_over_pairs():
    rng = np.random.default_rng(6)
    x, c = drawn(rng, 40), rng.normal(size=40)
    h = [[(float(a @ b) / D + 1) ** 3 - c[i] - c[j] for j, b in enumerate(x) if j != i] for i, a in enumerate(x)]
    means, variance = pairs(x, c)
    np.testing.assert_allclose(means, np.mean(h, axis=1), rtol=1e-5)
    assert variance == pytest.approx(np.var(h), rel=1e-5)


@pytest.mark.usefixtures("small_blocks")
def test_is_that_of_torchmetrics():
    from torchmetrics.image.kid import KernelInceptionDistance

    rng = np.random.default_rng(1)
    x, y = drawn(rng, 70, shift=0.3), drawn(rng, 70)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = KernelInceptionDistance(feature=torch.nn.Identity(), subsets=1, subset_size=70)
    theirs.update(torch.from_numpy(y).double(), real=True)
    theirs.update(torch.from_numpy(x).double(), real=False)
    assert fitted(y).measure_features(Features(x)) == pytest.approx(float(theirs.compute()[0]), rel=1e-9)


def test_a_closed_form():
    """One dimension, x from {−1, 1} with means μ and ν: E (x y + 1)³ = 4 + 4 E x E y, so the distance is 4 (μ − ν)²."""
    rng = np.random.default_rng(2)

    def signs(images: int, mean: float) -> np.ndarray:
        return np.where(rng.random((images, 1)) < (1 + mean) / 2, 1, -1).astype(np.float32)

    prop = fitted(signs(1500, -0.2))
    values = [prop.measure_features(Features(signs(500, 0.4))) for _ in range(50)]
    errors = [prop.standard_error(Features(signs(500, 0.4))) for _ in range(20)]
    # 4 (μ − ν)² with the reference's own mean; the mean of 50 is known to a seventh of a standard error
    own = 4 * (0.4 - prop.vectors.mean(dtype=float)) ** 2
    assert np.mean(values) == pytest.approx(own, abs=0.01 * own + 4 * np.mean(errors) / np.sqrt(50))
    # to the first order of x̄: 8 (μ − ν) σ(x)/√m
    assert np.mean(errors) == pytest.approx(np.sqrt(own) * 4 * np.sqrt(1 - 0.4**2) / np.sqrt(500), rel=0.05)


def test_has_no_bias_and_what_is_farther_is_farther():
    rng = np.random.default_rng(3)
    prop = fitted(drawn(rng, 2000))

    def mean_and_error(images: int, **options: float) -> tuple[float, float]:
        values = [prop.measure_features(Features(drawn(rng, images, **options))) for _ in range(144)]
        return float(np.mean(values)), float(np.std(values) / 12)

    (few, few_error), (many, many_error) = (mean_and_error(images, shift=0.2) for images in (10, 100))
    assert few == pytest.approx(many, abs=4 * np.hypot(few_error, many_error))
    same, _ = mean_and_error(100)
    assert same == pytest.approx(0, abs=0.1 * many)
    assert same < many < mean_and_error(100, shift=0.5)[0]
    assert same < mean_and_error(100, scale=1.5)[0]


@pytest.mark.parametrize(("shift", "scale"), [(0.3, 1), (0, 1.4), (0, 1)])
def test_the_standard_error_is_the_spread_over_other_images(shift, scale):
    """Also where both sets are alike, and the Hájek projection alone is √2 too large."""
    rng = np.random.default_rng(4)
    prop = fitted(drawn(rng, 2000))
    sets = [Features(drawn(rng, 100, shift, scale)) for _ in range(300)]
    spread = np.std([prop.measure_features(features) for features in sets])
    errors = [prop.standard_error(features) for features in sets[:60]]
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(spread, rel=0.15)


def test_is_fitted_to_the_reference():
    given = context(training=pictures(20, seed=1))
    prop = KernelDistance(PIXELS)
    prop.restore(prop.fit(given))
    x, y = (Extractors().extract(PIXELS, images) for images in (pictures(15, seed=2), given.contributions.images))
    assert prop.measure_features(x) == pytest.approx(by_definition(x.vectors, y.vectors), rel=1e-6)


def test_says_what_it_needs():
    assert KernelDistance().least(2048) == 2
    assert build("kid", {"features": "pixels"}, PROPERTIES, where="", beside=Path()).title == (
        "Kernel distance, KID (pixels)"
    )
    with pytest.raises(UserError, match=r"^reference: 1 images in 'contributions'; at least 2 are needed"):
        KernelDistance().check(context(training=pictures(1)).contributions, 100)
