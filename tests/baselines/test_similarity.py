import math
from dataclasses import replace

import numpy as np
import pytest

from diffcredit.baselines import Evidence, aggregate, similarity
from diffcredit.baselines.similarity import FeatureSimilarity, PixelSimilarity
from diffcredit.errors import UserError
from diffcredit.features.pixels import Colours

from .made_up import contributions, generated, near_copies, permuted

LOCAL = [PixelSimilarity(), FeatureSimilarity("layout"), FeatureSimilarity({"name": "pixels", "size": 8})]


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
        assert 1 - credits[favourite] < (1 - np.delete(credits, favourite).max()) / 5


def test_mean_and_max_differ_where_one_image_is_copied():
    given = contributions()
    odd = np.zeros((8, 8, 3), dtype=np.uint8)
    odd[2:4] = 255  # unlike any pattern
    given.images[0] = odd
    scores = PixelSimilarity().scores(Evidence(given, np.repeat(odd[None], 3, axis=0)))
    assert aggregate(scores, given, "max")[0] == pytest.approx(1)
    assert aggregate(scores, given, "mean")[0] < 0.8


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
    turned = method.scores(Evidence(permuted(given, order), generated()))
    np.testing.assert_allclose(turned, scores[order], rtol=1e-12)
    assert len(set(scores)) == 20


def test_features_are_seen_once(tmp_path):
    from diffcredit.features.extractors import Extractors

    told = []
    for _ in range(2):
        extractors = Extractors(folder=tmp_path, progress=lambda what, done, total: told.append(what))
        FeatureSimilarity("layout").scores(Evidence(contributions(), generated(), extractors=extractors))
    assert sorted(told) == ["features of the base model's images (layout)", "features of the training images (layout)"]


def test_progress_ends_with_everything(monkeypatch):
    monkeypatch.setattr(similarity, "BLOCK_NUMBERS", 4 * 192)
    told = []
    PixelSimilarity().scores(
        Evidence(contributions(), generated(), progress=lambda what, done, total: told.append((done, total)))
    )
    assert told == [(done, 26) for done in (4, 6, 10, 14, 18, 22, 26)]


@pytest.mark.parametrize("method", [PixelSimilarity(), FeatureSimilarity("layout")])
def test_images_are_not_changed_and_none_are_refused(method):
    given, made = contributions(), generated()
    before = given.images.copy(), made.copy()
    method.scores(Evidence(given, made))
    np.testing.assert_array_equal(given.images, before[0])
    np.testing.assert_array_equal(made, before[1])
    with pytest.raises(UserError, match=f"{method.name}: needs generated images, and there are none"):
        method.scores(Evidence(given, made[:0]))


def test_other_shapes_are_refused():
    evidence = Evidence(contributions(), generated(size=4))
    with pytest.raises(UserError, match=r"shape \(4, 4, 3\); the training images' shape \(8, 8, 3\) is accepted"):
        PixelSimilarity().scores(evidence)
    with pytest.raises(UserError, match="'nobody' is unknown"):
        FeatureSimilarity("nobody").scores(replace(evidence, generated=generated()))
