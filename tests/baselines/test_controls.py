import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from sklearn.metrics.pairwise import cosine_similarity

from diffcredit.baselines import Evidence, controls
from diffcredit.baselines.controls import ApplicationScores, ImageCount, RandomRanking, TrainingProperty
from diffcredit.errors import UserError
from diffcredit.features.extractors import Extractors
from diffcredit.properties import Context
from diffcredit.properties.classes import ClassShare, ClusterEntropy, InceptionScore
from diffcredit.properties.clip import BUNDLED, Aesthetic, ClipSimilarity
from diffcredit.properties.colourfulness import Colourfulness
from properties.fake_features import FAKE, text_vector

from .made_up import COUNTS, contributions, generated


def test_image_count():
    np.testing.assert_array_equal(ImageCount().credits(Evidence(contributions(), generated())), COUNTS)


def test_random_ranking_is_a_ranking_that_the_seed_chooses():
    given = contributions()
    rankings = [tuple(RandomRanking().credits(Evidence(given, generated(), seed=seed))) for seed in range(300)]
    assert {tuple(sorted(ranking)) for ranking in rankings} == {(1, 2, 3, 4)}
    assert len(set(rankings)) == 24
    assert rankings[0] == tuple(RandomRanking().credits(Evidence(given, generated(seed=9), seed=0)))


def test_training_property_is_that_of_the_own_images():
    given, prop = contributions(), Colourfulness()
    given.images[given.owner == 2] = 99  # grey images have no colour
    credits = TrainingProperty().credits(Evidence(given, generated(), prop=prop))
    assert credits[2] == 0
    for i in (0, 1, 3):
        assert credits[i] == prop.measure(given.images[given.owner == i]) > 0


def fitted(prop, prompts=None):
    prop.restore(prop.fit(Context(generated(), contributions(), prompts=prompts)))
    return prop


def scores(prop, given=None):
    return ApplicationScores().scores(Evidence(given or contributions(), generated(0), prop=prop))


def seen(option=FAKE):
    features = Extractors().extract(option, contributions().images)
    return features.vectors.astype(np.float64), features.logits.astype(np.float64)


def by_hand_colourfulness(image):
    rows = [[float(value) for value in pixel] for pixel in image.reshape(-1, 3)]
    rg, yb = [r - g for r, g, _ in rows], [(r + g) / 2 - b for r, g, b in rows]
    spread = math.hypot(np.std(rg), np.std(yb))
    return spread + 0.3 * math.hypot(sum(rg) / len(rg), sum(yb) / len(yb))


@pytest.mark.parametrize(("block", "percentile"), [(1024, None), (7, 90)])
def test_colourfulness_of_each(block, percentile, monkeypatch):
    monkeypatch.setattr(controls, "BLOCK", block)
    expected = [by_hand_colourfulness(image) for image in contributions().images]
    np.testing.assert_allclose(scores(Colourfulness(percentile)), expected, rtol=1e-9)


def test_aesthetic_score_of_each_before_the_percentile():
    option = {"name": FAKE, "width": 768}
    head = torch.load(BUNDLED, weights_only=True)
    vectors, _ = seen(option)
    w, b = head["weight"].double().numpy()[0], head["bias"].item()
    expected = [w @ x / math.sqrt(x @ x) + b for x in vectors]
    np.testing.assert_allclose(scores(fitted(Aesthetic(features=option))), expected, rtol=1e-9)


@pytest.mark.parametrize("splits", [1, 3])
def test_minus_the_entropy_of_the_classes_of_each(splits):
    _, logits = seen()
    expected = [-entropy(np.exp(row - row.max())) for row in logits]  # scipy normalises
    np.testing.assert_allclose(scores(InceptionScore(FAKE, splits)), expected, rtol=1e-6, atol=1e-12)


def test_class_share_of_each():
    _, logits = seen()
    likeliest = [row.tolist().index(max(row)) for row in logits]
    assert 0 < likeliest.count(4) < 20
    np.testing.assert_array_equal(scores(fitted(ClassShare(4, FAKE))), [each == 4 for each in likeliest])
    expected = [math.exp(row[4]) / sum(map(math.exp, row)) for row in logits]
    np.testing.assert_allclose(scores(fitted(ClassShare(4, FAKE, True))), expected, rtol=1e-6)


def test_match_of_each_with_the_prompt():
    vectors, _ = seen()
    expected = cosine_similarity(vectors, [text_vector("a cat")])[:, 0]
    np.testing.assert_allclose(scores(fitted(ClipSimilarity("a cat", FAKE))), expected, rtol=1e-5)
    # as many prompts as training images: they are not theirs
    with pytest.raises(UserError, match=r"clip_similarity\.prompt: missing; images that were not generated"):
        scores(fitted(ClipSimilarity(features=FAKE), prompts=("a cat",) * 20))


@dataclass
class Scribbling:
    """A plug-in that writes into what it is given, and returns what it is told to."""

    shape: tuple[int, ...] = (20,)
    name = "scribbling"

    def of_each(self, images):
        images[:] = 0
        return np.zeros(self.shape)


def test_a_plug_in_cannot_change_the_contributions():
    given = contributions()
    before = given.images.copy()
    np.testing.assert_array_equal(scores(Scribbling(), given), 0)
    np.testing.assert_array_equal(given.images, before)


def test_refusals_say_what_is_accepted():
    accepted = r"accepted: colourfulness, inception_score, class_share, aesthetic, clip_similarity, or a plug-in"
    with pytest.raises(UserError, match=rf"'cluster_entropy' cannot be measured on a single image; {accepted}"):
        scores(ClusterEntropy())
    for shape in ((), (19,), (20, 1)):
        with pytest.raises(UserError, match=r"'scribbling': of_each returned the shape .* for 20 images; one number"):
            scores(Scribbling(shape))
