import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity

from diffcredit.errors import UserError
from diffcredit.features import Features
from diffcredit.properties.clip_similarity import ClipSimilarity
from properties.fake_features import FAKE, context, fitted, pictures, text_vector

PROMPTS = ("a cat", "a dog", "a cat", "a ship", "a dog", "a cat")


def embeddings(count: int, seed: int = 0) -> Features:
    return Features(np.random.default_rng(seed).normal(0, 3, (count, 16)).astype(np.float32))


def similarity(prompt: str | None = None, prompts: tuple[str, ...] | None = None) -> ClipSimilarity:
    given = context(pictures(len(prompts) if prompts else 6), prompts=prompts)
    return fitted(ClipSimilarity(prompt, features=FAKE), given)


def test_is_the_mean_cosine_with_one_text():
    features = embeddings(30)
    expected = cosine_similarity(features.vectors.astype(np.float64), [text_vector("a cat").astype(np.float32)])
    assert similarity("a cat").measure_features(features) == pytest.approx(expected.mean(), rel=1e-9)
    assert similarity("a cat", PROMPTS).measure_features(features) == pytest.approx(expected.mean(), rel=1e-9)
    assert similarity("a dog").measure_features(features) != pytest.approx(expected.mean(), abs=1e-3)


def test_each_image_is_compared_with_its_own_prompt():
    features = embeddings(6)
    texts = np.array([text_vector(prompt).astype(np.float32) for prompt in PROMPTS])
    expected = np.diagonal(cosine_similarity(features.vectors.astype(np.float64), texts))
    prop = similarity(prompts=PROMPTS)
    assert prop.measure_features(features) == pytest.approx(expected.mean(), rel=1e-9)
    assert prop.standard_error(features) == pytest.approx(np.sqrt(expected.var() / 6), rel=1e-9)
    turned = prop.measure_features(features.select(slice(None, None, -1)))
    assert turned != pytest.approx(expected.mean(), abs=1e-3)


def test_images_that_show_their_texts_reach_the_bounds():
    shown = np.array([text_vector(prompt) for prompt in PROMPTS], np.float32)
    prop = similarity(prompts=PROMPTS)
    assert prop.measure_features(Features(5 * shown)) == pytest.approx(1, abs=1e-9)
    assert prop.measure_features(Features(-shown)) == pytest.approx(-1, abs=1e-9)
    assert prop._texts.shape == (3, 16)  # equal prompts are embedded once
    assert prop.ordered
    assert not ClipSimilarity("a cat").ordered


def test_what_it_needs():
    with pytest.raises(UserError, match="clip_similarity: 5 images for 6 prompts"):
        similarity(prompts=PROMPTS).measure_features(embeddings(5))
    with pytest.raises(UserError, match=r"clip_similarity\.prompt: missing, and the model follows no prompts"):
        similarity()
    with pytest.raises(UserError, match=r"clip_similarity\.features: 'pixels' embeds no texts; accepted: clip"):
        ClipSimilarity("a cat", features="pixels").fit(context())
