from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from diffcredit.errors import UserError
from diffcredit.features import Features
from diffcredit.features.extractors import Extractors
from diffcredit.properties import PROPERTIES, frechet
from diffcredit.properties.frechet import FrechetDistance, moments, square_root
from diffcredit.util.plugins import build
from properties.fake_features import context, pictures

D = 6
PIXELS = {"name": "pixels", "size": 2}


def fitted(reference: np.ndarray) -> FrechetDistance:
    mean, covariance = moments(reference)
    prop = FrechetDistance()
    prop.restore({"mean": mean, "root": square_root(covariance)})
    return prop


def seen(vectors: np.ndarray) -> Features:
    return Features(vectors.astype(np.float32))


def drawn(rng: np.random.Generator, images: int, shift: float = 0.0, scale: float = 1.0) -> np.ndarray:
    """Of one fixed normal distribution with correlated dimensions, shifted along the first and scaled."""
    mixing = np.random.default_rng(77).normal(size=(D, D)) / np.sqrt(D)
    vectors = scale * rng.normal(size=(images, D)) @ mixing
    vectors[:, 0] += shift
    return vectors.astype(np.float32)


def by_definition(x: np.ndarray, y: np.ndarray) -> float:
    """As pytorch-fid computes it, with scipy's square root of the product of the covariances."""
    x, y = x.astype(float), y.astype(float)
    one, other = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    gap = x.mean(axis=0) - y.mean(axis=0)
    return float(gap @ gap + np.trace(one) + np.trace(other) - 2 * np.trace(sqrtm(one @ other).real))


class Vectors(torch.nn.Module):
    """Images that are their own features."""

    num_features = D

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.double()


def test_is_that_of_scipy_and_torchmetrics(monkeypatch):
    from torchmetrics.image.fid import FrechetInceptionDistance

    monkeypatch.setattr(frechet, "BLOCK", 64)  # so that there are several
    rng = np.random.default_rng(0)
    x, y = drawn(rng, 150, shift=1, scale=1.4), drawn(rng, 200)
    value = fitted(y).measure_features(seen(x))
    assert value == pytest.approx(by_definition(x, y), rel=1e-9)
    theirs = FrechetInceptionDistance(feature=Vectors())
    theirs.update(torch.from_numpy(y), real=True)
    theirs.update(torch.from_numpy(x), real=False)
    assert value == pytest.approx(float(theirs.compute()), rel=1e-9)


def test_closed_forms():
    rng = np.random.default_rng(1)
    y = drawn(rng, 100)
    prop = fitted(y)
    assert prop.measure_features(seen(y)) == pytest.approx(0, abs=1e-6)
    # a shift by v alone is |v|² away, a stretch by s about the mean (s − 1)² tr Σ
    shifted = y + np.arange(D, dtype=np.float32)
    assert prop.measure_features(seen(shifted)) == pytest.approx((np.arange(D) ** 2).sum(), rel=1e-5)
    stretched = y.mean(axis=0) + 2 * (y - y.mean(axis=0))
    assert prop.measure_features(seen(stretched)) == pytest.approx(np.cov(y, rowvar=False).trace(), rel=1e-5)
    # independent dimensions: Σ (σ − σ')²
    z = rng.normal(size=(100, D))
    z = np.linalg.qr(z - z.mean(axis=0))[0] * np.sqrt(99)  # of mean 0 and covariance 1
    deviations = np.array([1, 2, 3, 4, 5, 0])
    expected = np.square(deviations - 1).sum()
    assert fitted(z).measure_features(seen(z * deviations)) == pytest.approx(expected, rel=1e-5)


def test_a_dimension_that_is_always_the_same_changes_nothing():
    rng = np.random.default_rng(2)
    x, y = drawn(rng, 80, shift=1), drawn(rng, 90)
    prop = fitted(np.hstack([y, np.zeros((90, 2))]))
    with_nothing = seen(np.hstack([x, np.zeros((80, 2))]))
    assert prop.measure_features(with_nothing) == pytest.approx(fitted(y).measure_features(seen(x)), rel=1e-6)
    assert prop.standard_error(with_nothing) == pytest.approx(fitted(y).standard_error(seen(x)), rel=1e-6)


def test_what_is_farther_is_farther():
    rng = np.random.default_rng(3)
    prop = fitted(drawn(rng, 400))
    same, little, much = (prop.measure_features(seen(drawn(rng, 400, shift=shift))) for shift in (0, 0.5, 1.5))
    assert same < little < much
    assert prop.measure_features(seen(drawn(rng, 400, scale=0.5))) > same
    # fewer images are farther, as the property says: by 1/m
    few = np.mean([prop.measure_features(seen(drawn(rng, 50))) for _ in range(300)])
    many = np.mean([prop.measure_features(seen(drawn(rng, 100))) for _ in range(300)])
    most = np.mean([prop.measure_features(seen(drawn(rng, 4000))) for _ in range(5)])
    assert (few - most) / (many - most) == pytest.approx(2, rel=0.2)


def test_the_standard_error_is_the_bootstraps():
    """Of 500 resamples, which know it to 3 %; the first order is what is left for many images."""
    rng = np.random.default_rng(4)
    prop, x = fitted(drawn(rng, 500)), drawn(rng, 2000, shift=0.7, scale=1.3)
    resampled = [prop.measure_features(seen(x[rng.integers(2000, size=2000)])) for _ in range(500)]
    assert prop.standard_error(seen(x)) == pytest.approx(np.std(resampled), rel=0.1)


@pytest.mark.parametrize(("shift", "scale", "largest"), [(1, 1, 1.1), (0.5, 0.6, 1.1), (0, 1, 1.5)])
def test_the_standard_error_is_the_spread_over_other_images(shift, scale, largest):
    """Where both sets are alike it may be too large, as the property says, but not too small."""
    rng = np.random.default_rng(5)
    prop = fitted(drawn(rng, 500))
    sets = [seen(drawn(rng, 200, shift, scale)) for _ in range(300)]
    spread = np.std([prop.measure_features(features) for features in sets])
    error = np.mean([prop.standard_error(features) for features in sets[:50]])
    assert 0.9 < error / spread < largest


def test_is_fitted_to_the_reference():
    given = context(training=pictures(40, seed=1))
    prop = FrechetDistance(PIXELS)
    prop.restore(prop.fit(given))
    x, y = (Extractors().extract(PIXELS, images) for images in (pictures(30, seed=2), given.contributions.images))
    assert prop.measure_features(x) == pytest.approx(by_definition(x.vectors, y.vectors), rel=1e-9)


def test_too_few_images_are_refused():
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
        ({"name": "inception_v3"}, "FID"),
        ({"name": "inception_v3", "variant": "fid"}, "FID"),
        ({"name": "inception_v3", "variant": "torchvision"}, "Fréchet distance (Inception-v3)"),
        ("pixels", "Fréchet distance (pixels)"),
    ],
)
def test_only_inceptions_distance_is_called_fid(option, title):
    assert build("fid", {"features": option}, PROPERTIES, where="", beside=Path()).title == title
