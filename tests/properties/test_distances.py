from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from diffcredit.errors import UserError
from diffcredit.features import Features
from diffcredit.features.extractors import Extractors
from diffcredit.properties import PROPERTIES, distances
from diffcredit.properties.distances import FrechetDistance, KernelDistance, moments, pairs, square_root
from diffcredit.util.plugins import build
from properties.fake_features import context, pictures

DIMENSIONS = 6
PIXELS = {"name": "pixels", "size": 2}


def fitted_fid(reference: np.ndarray) -> FrechetDistance:
    mean, covariance = moments(reference)
    prop = FrechetDistance()
    prop.restore({"mean": mean, "root": square_root(covariance)})
    return prop


def seen(vectors: np.ndarray) -> Features:
    return Features(vectors.astype(np.float32))


def correlated(rng: np.random.Generator, images: int, shift: float = 0.0, scale: float = 1.0) -> np.ndarray:
    """Of one fixed normal distribution with correlated dimensions, shifted along the first and scaled."""
    mixing = np.random.default_rng(77).normal(size=(DIMENSIONS, DIMENSIONS)) / np.sqrt(DIMENSIONS)
    vectors = scale * rng.normal(size=(images, DIMENSIONS)) @ mixing
    vectors[:, 0] += shift
    return vectors.astype(np.float32)


def by_definition_fid(x: np.ndarray, y: np.ndarray) -> float:
    """As pytorch-fid computes it, with scipy's square root of the product of the covariances."""
    x, y = x.astype(float), y.astype(float)
    one, other = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    gap = x.mean(axis=0) - y.mean(axis=0)
    return float(gap @ gap + np.trace(one) + np.trace(other) - 2 * np.trace(sqrtm(one @ other).real))


class Vectors(torch.nn.Module):
    """Images that are their own features."""

    num_features = DIMENSIONS

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.double()


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(distances, "BLOCK", 64)
    monkeypatch.setattr(distances, "PAIRED", 16)


@pytest.mark.usefixtures("small_blocks")
def test_fid_is_that_of_scipy():
    rng = np.random.default_rng(0)
    x, y = correlated(rng, 150, shift=1, scale=1.4), correlated(rng, 200)
    assert fitted_fid(y).measure_features(seen(x)) == pytest.approx(by_definition_fid(x, y), rel=1e-9)


@pytest.mark.slow  # torchmetrics takes seconds to import
@pytest.mark.usefixtures("small_blocks")
def test_fid_is_that_of_torchmetrics():
    from torchmetrics.image.fid import FrechetInceptionDistance

    rng = np.random.default_rng(0)
    x, y = correlated(rng, 150, shift=1, scale=1.4), correlated(rng, 200)
    value = fitted_fid(y).measure_features(seen(x))
    theirs = FrechetInceptionDistance(feature=Vectors())
    theirs.update(torch.from_numpy(y), real=True)
    theirs.update(torch.from_numpy(x), real=False)
    assert value == pytest.approx(float(theirs.compute()), rel=1e-9)


def test_fid_closed_forms():
    rng = np.random.default_rng(1)
    y = correlated(rng, 100)
    prop = fitted_fid(y)
    assert prop.measure_features(seen(y)) == pytest.approx(0, abs=1e-6)
    # a shift by v alone is |v|² away, a stretch by s about the mean (s − 1)² tr Σ
    shifted = y + np.arange(DIMENSIONS, dtype=np.float32)
    assert prop.measure_features(seen(shifted)) == pytest.approx((np.arange(DIMENSIONS) ** 2).sum(), rel=1e-5)
    stretched = y.mean(axis=0) + 2 * (y - y.mean(axis=0))
    assert prop.measure_features(seen(stretched)) == pytest.approx(np.cov(y, rowvar=False).trace(), rel=1e-5)
    # independent dimensions: Σ (σ − σ')²
    z = rng.normal(size=(100, DIMENSIONS))
    z = np.linalg.qr(z - z.mean(axis=0))[0] * np.sqrt(99)  # of mean 0 and covariance 1
    deviations = np.array([1, 2, 3, 4, 5, 0])
    expected = np.square(deviations - 1).sum()
    assert fitted_fid(z).measure_features(seen(z * deviations)) == pytest.approx(expected, rel=1e-5)


def test_fid_what_is_farther_is_farther_and_fewer_images_too():
    rng = np.random.default_rng(3)
    prop = fitted_fid(correlated(rng, 400))
    same, little, much = (prop.measure_features(seen(correlated(rng, 400, shift=shift))) for shift in (0, 0.5, 1.5))
    assert same < little < much
    assert prop.measure_features(seen(correlated(rng, 400, scale=0.5))) > same
    # fewer images are farther, as the property says: by 1/m
    few = np.mean([prop.measure_features(seen(correlated(rng, 50))) for _ in range(200)])
    many = np.mean([prop.measure_features(seen(correlated(rng, 100))) for _ in range(200)])
    most = np.mean([prop.measure_features(seen(correlated(rng, 4000))) for _ in range(5)])
    assert (few - most) / (many - most) == pytest.approx(2, rel=0.25)


@pytest.mark.parametrize(("shift", "scale", "largest"), [(1, 1, 1.1), (0.5, 0.6, 1.1), (0, 1, 1.5)])
def test_fid_the_standard_error_is_the_spread_over_other_images(shift, scale, largest):
    """Where both sets are alike it may be too large, as the property says, but not too small."""
    rng = np.random.default_rng(5)
    prop = fitted_fid(correlated(rng, 500))
    sets = [seen(correlated(rng, 200, shift, scale)) for _ in range(200)]
    spread = np.std([prop.measure_features(features) for features in sets])
    error = np.mean([prop.standard_error(features) for features in sets[:50]])
    assert 0.9 < error / spread < largest


def test_fid_too_few_images_are_refused():
    with pytest.raises(
        UserError, match=r"^reference: 12 images in 'contributions' for features of 12 .*at least 13.*kid"
    ):
        FrechetDistance(PIXELS).fit(context(training=pictures(12)))
    FrechetDistance(PIXELS).fit(context(training=pictures(13)))
    assert FrechetDistance().least(2048) == 2049
    with pytest.raises(UserError, match=r"^reference: 'heldout'"):
        FrechetDistance(reference="heldout").check(context().contributions, 100)


@pytest.mark.parametrize(
    ("option", "title"),
    [
        ("inception_v3", "FID"),
        ({"name": "inception_v3", "variant": "fid"}, "FID"),
        ({"name": "inception_v3", "variant": "torchvision"}, "Fréchet distance (Inception-v3)"),
        ("pixels", "Fréchet distance (pixels)"),
    ],
)
def test_fid_only_inceptions_distance_is_called_fid(option, title):
    assert build("fid", {"features": option}, PROPERTIES, where="", beside=Path()).title == title


D = 5


def fitted_kid(reference: np.ndarray) -> KernelDistance:
    rows, _ = pairs(reference, np.zeros(len(reference)))
    prop = KernelDistance()
    prop.restore({"vectors": reference, "within": np.array([rows.mean()])})
    return prop


def drawn(rng: np.random.Generator, images: int, shift: float = 0.0, scale: float = 1.0) -> np.ndarray:
    return (scale * rng.normal(size=(images, D)) + shift).astype(np.float32)


def by_pairs(x: np.ndarray, y: np.ndarray) -> float:
    """Pair by pair."""

    def k(a, b):
        return (sum(p * q for p, q in zip(a, b, strict=True)) / len(a) + 1) ** 3

    x, y = x.tolist(), y.tolist()
    own = np.mean([k(a, b) for i, a in enumerate(x) for j, b in enumerate(x) if i != j])
    theirs = np.mean([k(a, b) for i, a in enumerate(y) for j, b in enumerate(y) if i != j])
    return own + theirs - 2 * np.mean([k(a, b) for a in x for b in y])


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_kid_is_that_of_torchmetrics():
    from torchmetrics.image.kid import KernelInceptionDistance

    rng = np.random.default_rng(1)
    x, y = correlated(rng, 70, shift=0.3), correlated(rng, 70)
    theirs = KernelInceptionDistance(feature=Vectors(), subsets=1, subset_size=70)
    theirs.update(torch.from_numpy(y), real=True)
    theirs.update(torch.from_numpy(x), real=False)
    assert fitted_kid(y).measure_features(seen(x)) == pytest.approx(float(theirs.compute()[0]), rel=1e-9)


def test_kid_a_closed_form():
    """One dimension, x from {−1, 1} with means μ and ν: E (x y + 1)³ = 4 + 4 E x E y, so the distance is 4 (μ − ν)²."""
    rng = np.random.default_rng(2)

    def signs(images: int, mean: float) -> np.ndarray:
        return np.where(rng.random((images, 1)) < (1 + mean) / 2, 1, -1).astype(np.float32)

    prop = fitted_kid(signs(600, -0.2))
    values = [prop.measure_features(Features(signs(200, 0.4))) for _ in range(50)]
    errors = [prop.standard_error(Features(signs(200, 0.4))) for _ in range(20)]
    # 4 (μ − ν)² with the reference's own mean; the mean of 50 is known to a seventh of a standard error
    own = 4 * (0.4 - prop.vectors.mean(dtype=float)) ** 2
    assert np.mean(values) == pytest.approx(own, abs=0.01 * own + 4 * np.mean(errors) / np.sqrt(50))
    # to the first order of x̄: 8 (μ − ν) σ(x)/√m
    assert np.mean(errors) == pytest.approx(np.sqrt(own) * 4 * np.sqrt(1 - 0.4**2) / np.sqrt(200), rel=0.1)


def test_kid_has_no_bias_and_what_is_farther_is_farther():
    rng = np.random.default_rng(3)
    prop = fitted_kid(drawn(rng, 500))

    def mean_and_error(images: int, **options: float) -> tuple[float, float]:
        values = [prop.measure_features(Features(drawn(rng, images, **options))) for _ in range(100)]
        return float(np.mean(values)), float(np.std(values) / 10)

    (few, few_error), (many, many_error) = (mean_and_error(images, shift=0.2) for images in (10, 100))
    assert few == pytest.approx(many, abs=4 * np.hypot(few_error, many_error))
    same, _ = mean_and_error(100)
    assert same == pytest.approx(0, abs=0.1 * many)
    assert same < many < mean_and_error(100, shift=0.5)[0]
    assert same < mean_and_error(100, scale=1.5)[0]


@pytest.mark.parametrize(("shift", "scale"), [(0.3, 1), (0, 1)])
def test_kid_the_standard_error_is_the_spread_over_other_images(shift, scale):
    """Also where both sets are alike, and the Hájek projection alone is √2 too large."""
    rng = np.random.default_rng(4)
    prop = fitted_kid(drawn(rng, 500))
    sets = [Features(drawn(rng, 100, shift, scale)) for _ in range(200)]
    spread = np.std([prop.measure_features(features) for features in sets])
    errors = [prop.standard_error(features) for features in sets[:30]]
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(spread, rel=0.2)


@pytest.mark.usefixtures("small_blocks")
def test_both_are_fitted_to_the_reference():
    given = context(training=pictures(40, seed=1))
    x, y = (Extractors().extract(PIXELS, images) for images in (pictures(30, seed=2), given.contributions.images))
    for prop, expected in ((FrechetDistance(PIXELS), by_definition_fid), (KernelDistance(PIXELS), by_pairs)):
        prop.restore(prop.fit(given))
        assert prop.measure_features(x) == pytest.approx(expected(x.vectors, y.vectors), rel=1e-6)


def test_kid_says_what_it_needs():
    assert KernelDistance().least(2048) == 2
    assert build("kid", {"features": "pixels"}, PROPERTIES, where="", beside=Path()).title == (
        "Kernel distance, KID (pixels)"
    )
    with pytest.raises(UserError, match=r"^reference: 1 images in 'contributions'; at least 2 are needed"):
        KernelDistance().check(context(training=pictures(1)).contributions, 100)
