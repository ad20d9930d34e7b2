import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from diffcredit.errors import UserError
from diffcredit.features import Features
from diffcredit.properties import PROPERTIES
from diffcredit.properties.inception_score import InceptionScore
from diffcredit.util.plugins import build


def of_logits(logits: np.ndarray) -> Features:
    return Features(np.zeros((len(logits), 2), np.float32), logits.astype(np.float32))


def drawn(rng: np.random.Generator, images: int, classes: int, sharpness: float) -> Features:
    """Images that each show one class, all equally often, to a classifier of such sharpness."""
    logits = rng.normal(size=(images, classes))
    logits[np.arange(images), rng.integers(classes, size=images)] += sharpness
    return of_logits(logits)


def by_definition(logits: np.ndarray) -> float:
    """exp of the mean of Σ p (log p − log p̄), image by image."""
    log_p = logits.astype(float) - logsumexp(logits.astype(float), axis=1, keepdims=True)
    marginal = np.exp(log_p).mean(axis=0)
    return float(np.exp(np.mean([(np.exp(row) * (row - np.log(marginal))).sum() for row in log_p])))


def torchmetrics_score(logits: np.ndarray, splits: int, order: np.ndarray, monkeypatch) -> float:
    from torchmetrics.image.inception import InceptionScore as Theirs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = Theirs(feature=torch.nn.Identity(), splits=splits)
        theirs.update(torch.from_numpy(logits.astype(np.float64)))
        monkeypatch.setattr(torch, "randperm", lambda count: torch.from_numpy(order))
        return float(theirs.compute()[0])


@pytest.mark.parametrize("sharpness", [0, 3, 30])
def test_is_the_definition(sharpness):
    features = drawn(np.random.default_rng(0), 60, 7, sharpness)
    assert InceptionScore().measure_features(features) == pytest.approx(by_definition(features.logits), rel=1e-9)


@pytest.mark.parametrize("splits", [1, 4])
def test_is_that_of_torchmetrics(splits, monkeypatch):
    features = drawn(np.random.default_rng(1), 5000, 11, 4)  # more than a block
    order = np.concatenate([np.arange(5000)[start::splits] for start in range(splits)])
    expected = torchmetrics_score(features.logits, splits, order, monkeypatch)
    assert InceptionScore(splits=splits).measure_features(features) == pytest.approx(expected, rel=1e-9)


def test_the_bounds_are_reached():
    sure = of_logits(1000 * np.eye(6).repeat(5, axis=0))
    assert InceptionScore().measure_features(sure) == pytest.approx(6)
    assert InceptionScore().measure_features(sure.select(slice(0, 5))) == pytest.approx(1)
    assert InceptionScore().measure_features(of_logits(np.zeros((9, 6)))) == pytest.approx(1)
    # two classes, one of them three times as frequent: exp(H(¾, ¼))
    rows = np.array([0, 1, 2, 5])
    entropy = -0.75 * np.log(0.75) - 0.25 * np.log(0.25)
    assert InceptionScore().measure_features(sure.select(rows)) == pytest.approx(np.exp(entropy))


def test_fewer_images_score_lower():
    """The bias that the property tells of: the same classes, at a tenth of the images."""
    rng = np.random.default_rng(3)
    few = [InceptionScore().measure_features(drawn(rng, 50, 100, 8)) for _ in range(30)]
    many = [InceptionScore().measure_features(drawn(rng, 500, 100, 8)) for _ in range(30)]
    assert np.mean(few) < 0.8 * np.mean(many)
    # each of ten splits has a tenth of the images
    split = [InceptionScore(splits=10).measure_features(drawn(rng, 500, 100, 8)) for _ in range(30)]
    assert np.mean(split) == pytest.approx(np.mean(few), rel=0.05)


@pytest.mark.parametrize(
    ("images", "classes", "splits", "largest"), [(200, 10, 1, 1.15), (300, 10, 3, 1.15), (100, 300, 1, 1.35)]
)
def test_the_standard_error_is_the_spread_over_other_images(images, classes, splits, largest):
    """Where classes are more than images it may be too large, as the property says, but not too small."""
    rng, prop = np.random.default_rng(4), InceptionScore(splits=splits)
    sets = [drawn(rng, images, classes, 5 + classes / 100) for _ in range(400)]
    spread = np.std([prop.measure_features(features) for features in sets])
    error = np.mean([prop.standard_error(features) for features in sets[:40]])
    assert 0.88 < error / spread < largest


def test_the_standard_error_is_the_jackknifes():
    features = drawn(np.random.default_rng(5), 40, 6, 3)
    without = [by_definition(np.delete(features.logits, i, axis=0)) for i in range(40)]
    expected = np.sqrt(39 / 40 * np.square(without - np.mean(without)).sum())
    assert InceptionScore().standard_error(features) == pytest.approx(expected, rel=1e-9)
    assert InceptionScore().standard_error(features.select(slice(0, 1))) == 0
    assert InceptionScore().standard_error(of_logits(np.ones((8, 3)))) == pytest.approx(0, abs=1e-9)


def test_says_what_it_needs():
    with pytest.raises(UserError, match="no classifier"):
        InceptionScore().measure_features(Features(np.zeros((3, 2), np.float32)))
    assert InceptionScore.classifier
    assert InceptionScore(splits=10).least(1280) == 10
    assert InceptionScore("inception_v3").title == "Inception Score (Inception-v3)"
    with pytest.raises(UserError, match=r"properties\.0\.splits: 0 is not accepted"):
        build("inception_score", {"splits": 0}, PROPERTIES, where="properties.0", beside=Path())
