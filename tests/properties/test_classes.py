from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax
from scipy.stats import binom

from diffcredit.errors import UserError
from diffcredit.features import Extractor, Features
from diffcredit.features.extractors import Extractors
from diffcredit.properties import PROPERTIES, classes
from diffcredit.properties.classes import ClassCoverage, ClassShare, InceptionScore
from diffcredit.util.plugins import build
from properties.fake_features import FAKE, context, fitted

KINDS = 5
FEATURES = {"name": FAKE, "kinds": KINDS}


def showing(*classes: int, kinds: int = KINDS) -> Features:
    """Images whose scores are the highest for these classes."""
    logits = np.random.default_rng(0).uniform(0, 1, (len(classes), kinds))
    logits[np.arange(len(classes)), classes] = 1.5
    return Features(np.zeros((len(classes), 2), np.float32), logits.astype(np.float32))


def coverage(**options) -> ClassCoverage:
    return fitted(ClassCoverage(features=FEATURES, **options))


def share(classes, **options) -> ClassShare:
    return fitted(ClassShare(classes, features=FEATURES, **options))


def test_coverage_counts_classes_that_turn_up():
    shown = showing(0, 0, 0, 2, 2, 4)
    assert coverage().measure_features(shown) == pytest.approx(3 / 5)
    assert coverage(images=2).measure_features(shown) == pytest.approx(2 / 5)
    assert coverage(images=4).measure_features(shown) == 0
    assert coverage().measure_features(showing(0, 1, 2, 3, 4)) == 1
    assert coverage(classes=[0, 1]).measure_features(shown) == 1 / 2
    assert coverage(classes=["red fox", 2, "sports car"]).measure_features(shown) == 1
    assert coverage(classes=[0, "red fox", 1]).measure_features(shown) == 1 / 2, "a class counts once"
    assert coverage(classes=[1, 3]).measure_features(shown) == 0


def test_share_counts_images():
    shown = showing(0, 0, 0, 2, 2, 4, 1, 1)
    assert share(0).measure_features(shown) == 3 / 8
    assert share("tabby cat").measure_features(shown) == 2 / 8
    assert share([0, "tabby cat", 3, 0]).measure_features(shown) == 5 / 8
    assert share(3).measure_features(shown) == 0
    assert share(list(range(KINDS))).measure_features(shown) == 1


def test_probability_is_that_of_the_softmax():
    logits = np.random.default_rng(4).normal(0, 3, (20, KINDS)).astype(np.float32)
    features = Features(np.zeros((20, 2), np.float32), logits)
    expected = softmax(logits.astype(np.float64), axis=1)[:, [1, 4]].sum(axis=1)
    prop = share([4, 1], probability=True)
    assert prop.measure_features(features) == pytest.approx(expected.mean(), rel=1e-12)
    assert prop.standard_error(features) == pytest.approx(np.sqrt(expected.var() / 20), rel=1e-12)


@pytest.mark.parametrize("images", [1, 2, 3])
def test_the_standard_error_of_one_classs_coverage_is_binomial(images):
    """Of 50 images 2 show the class: a resample holds Binomial(50, 2/50) of them, and covers it with probability p or
    not. 200 resamples tell √(p(1 − p)) to |1 − 2p|/(2√200) < 0.027: three of these are allowed."""
    covered = binom.sf(images - 1, 50, 2 / 50)
    prop = coverage(classes=[1], images=images)
    assert prop.standard_error(showing(1, 1, *[0] * 48)) == pytest.approx(np.sqrt(covered * (1 - covered)), abs=0.08)


def test_the_standard_error_of_a_share_is_that_of_a_proportion():
    shown = showing(*[0] * 30, *[1] * 70)
    assert share(0).standard_error(shown) == pytest.approx(np.sqrt(0.3 * 0.7 / 100))
    assert share(4).standard_error(shown) == 0


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([5], r"class_coverage\.classes: 5 is no class; accepted: an index of 0 to 4"),
        (["taby"], r"'taby' is no label; accepted: an index of 0 to 4, or a label such as 'tabby cat'"),
        (["crane"], r"'crane' is the label of the classes 1, 3; give an index"),
    ],
)
def test_classes_that_are_not_there_are_refused(classes, message):
    with pytest.raises(UserError, match=message):
        coverage(classes=classes)
    with pytest.raises(UserError, match=message.replace("class_coverage", "class_share")):
        share(classes[0])


class Unlabelled(Extractor):
    classes = 3
    dimensions = 2


class OnlyOne(Extractors):
    def get(self, option):
        return Unlabelled()


def test_an_extractor_without_labels_takes_indices_only():
    given = context()
    given = type(given)(given.generated, given.contributions, OnlyOne())
    assert ClassShare(2).fit(given)["classes"].tolist() == [2]
    assert ClassCoverage().fit(given)["classes"].tolist() == [0, 1, 2]
    with pytest.raises(UserError, match="'cat' is a label, and the extractor has none; accepted: an index of 0 to 2"):
        ClassShare("cat").fit(given)


def test_what_is_no_classifier_is_refused():
    with pytest.raises(UserError, match=r"class_share\.features: 'pixels' is no classifier"):
        fitted(ClassShare(0, features="pixels"))
    vectors = np.zeros((3, 2), np.float32)
    with pytest.raises(UserError, match="scores of 5 classes are needed; the extractor gives none"):
        share(0).measure_features(Features(vectors))
    with pytest.raises(UserError, match="scores of 5 classes are needed; the extractor gives 4"):
        coverage().measure_features(showing(0, 1, kinds=4))
    with pytest.raises(UserError, match=r"class_coverage\.images: 7 of each class among 6 generated images"):
        coverage(images=7)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("class_share", {}, r"p\.classes: missing"),
        ("class_share", {"classes": [True]}, r"p\.classes: \[True\] is not accepted"),
        ("class_share", {"classes": []}, r"p\.classes: "),
        ("class_coverage", {"classes": [1.5]}, r"p\.classes: "),
        ("class_coverage", {"images": 0}, r"p\.images: "),
    ],
)
def test_a_study_files_mistakes_are_refused(name, options, message, tmp_path):
    with pytest.raises(UserError, match=message):
        build(name, options, PROPERTIES, where="p", beside=tmp_path)


def test_titles_name_the_classes_and_the_extractor():
    assert share(["red fox", 3]).title == "Share of red fox, class 3 (FakeFeatures)"
    assert share([0, 1, 2, 3, 4], probability=True).title == (
        "Mean probability of class 0, class 1, class 2 and 2 more (FakeFeatures)"
    )
    assert coverage().title == "Class coverage (FakeFeatures)"


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


@pytest.mark.slow  # torchmetrics takes seconds to import
@pytest.mark.parametrize("splits", [1, 4])
def test_the_score_is_that_of_torchmetrics(splits, monkeypatch):
    from torchmetrics.image.inception import InceptionScore as Theirs

    features = drawn(np.random.default_rng(1), 600, 11, 4)
    theirs = Theirs(feature=torch.nn.Identity(), splits=splits)
    theirs.update(torch.from_numpy(features.logits.astype(np.float64)))
    order = np.concatenate([np.arange(600)[start::splits] for start in range(splits)])  # it shuffles, we interleave
    monkeypatch.setattr(torch, "randperm", lambda count: torch.from_numpy(order))
    expected = pytest.approx(float(theirs.compute()[0]), rel=1e-9)
    assert InceptionScore(splits=splits).measure_features(features) == expected


def test_the_bounds_of_the_score_are_reached():
    sure = of_logits(1000 * np.eye(6).repeat(5, axis=0))
    assert InceptionScore().measure_features(sure) == pytest.approx(6)
    assert InceptionScore().measure_features(sure.select(slice(0, 5))) == pytest.approx(1)
    assert InceptionScore().measure_features(of_logits(np.zeros((9, 6)))) == pytest.approx(1)
    # two classes, one of them three times as frequent: exp(H(¾, ¼))
    rows = np.array([0, 1, 2, 5])
    entropy = -0.75 * np.log(0.75) - 0.25 * np.log(0.25)
    assert InceptionScore().measure_features(sure.select(rows)) == pytest.approx(np.exp(entropy))


@pytest.mark.parametrize(("images", "classes", "splits", "largest"), [(200, 10, 1, 1.2), (100, 300, 1, 1.4)])
def test_the_standard_error_of_the_score_is_the_spread_over_other_images(images, classes, splits, largest):
    """Where classes are more than images it may be too large, as the property says, but not too small."""
    rng, prop = np.random.default_rng(4), InceptionScore(splits=splits)
    sets = [drawn(rng, images, classes, 5 + classes / 100) for _ in range(120)]
    spread = np.std([prop.measure_features(features) for features in sets])
    error = np.mean([prop.standard_error(features) for features in sets[:40]])
    assert 0.88 < error / spread < largest


def test_the_score_and_its_standard_error_are_their_definitions(monkeypatch):
    monkeypatch.setattr(classes, "BLOCK", 16)
    features = drawn(np.random.default_rng(5), 40, 6, 3)
    assert InceptionScore().measure_features(features) == pytest.approx(by_definition(features.logits), rel=1e-9)
    halves = [by_definition(features.logits[start::2]) for start in range(2)]
    assert InceptionScore(splits=2).measure_features(features) == pytest.approx(np.mean(halves), rel=1e-9)
    without = [by_definition(np.delete(features.logits, i, axis=0)) for i in range(40)]
    expected = np.sqrt(39 / 40 * np.square(without - np.mean(without)).sum())
    assert InceptionScore().standard_error(features) == pytest.approx(expected, rel=1e-9)
    assert InceptionScore().standard_error(features.select(slice(0, 1))) == 0
    assert InceptionScore().standard_error(of_logits(np.ones((8, 3)))) == pytest.approx(0, abs=1e-9)


def test_the_score_says_what_it_needs():
    with pytest.raises(UserError, match="no classifier"):
        InceptionScore().measure_features(Features(np.zeros((3, 2), np.float32)))
    assert InceptionScore(splits=10).least(1280) == 10
    assert InceptionScore("inception_v3").title == "Inception Score (Inception-v3)"
    with pytest.raises(UserError, match=r"properties\.0\.splits: 0 is not accepted"):
        build("inception_score", {"splits": 0}, PROPERTIES, where="properties.0", beside=Path())
