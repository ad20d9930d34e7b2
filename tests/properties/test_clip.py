import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity
from torch import nn

from diffcredit.errors import UserError
from diffcredit.features import Features
from diffcredit.properties import clip as heads
from diffcredit.properties.clip import BUNDLED, Aesthetic, ClipSimilarity
from diffcredit.util.artifacts import write_arrays
from properties.fake_features import FAKE, context, fitted, pictures, text_vector

CLIP = {"name": FAKE, "width": 768}
WIDTHS = (768, 1024, 128, 64, 16, 1)


def aesthetic(**options) -> Aesthetic:
    return fitted(Aesthetic(**{"features": CLIP, **options}))


def embeddings(count: int, seed: int = 0, width: int = 768) -> Features:
    vectors = np.random.default_rng(seed).normal(0, 0.4, (count, width))
    return Features(vectors.astype(np.float32))


def reference_mlp() -> nn.Sequential:
    """The published network, with weights that keep the scale of what passes through."""
    torch.manual_seed(5)
    layers: list[nn.Module] = []
    for inputs, outputs, dropout in zip(WIDTHS[:-1], WIDTHS[1:], (0.2, 0.2, 0.1, None, None), strict=True):
        layers.append(nn.Linear(inputs, outputs))
        if dropout is not None:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)


def save_mlp(network: nn.Sequential, file: Path) -> str:
    torch.save({f"layers.{name}": tensor for name, tensor in network.state_dict().items()}, file)
    return str(file)


def test_the_bundled_head_is_laions():
    assert hashlib.sha256(BUNDLED.read_bytes()).hexdigest() == (
        "2cd4e60f4f24ae3bcd57b847b13c1f3ba27edc28cc1a7f9ce74ee9f421243cba"
    )
    licence = (BUNDLED.parent / "LICENSE.txt").read_text()
    assert "MIT License" in licence
    assert "https://github.com/LAION-AI/aesthetic-predictor" in licence


@pytest.mark.parametrize("percentile", [None, 90])
def test_the_linear_head_is_its_closed_form(percentile):
    """w·x/‖x‖ + b with the published weights, which torch reads here on its own."""
    published = torch.load(BUNDLED, weights_only=True)
    w, b = published["weight"].double().numpy()[0], published["bias"].double().item()
    features = embeddings(30)
    x = features.vectors.astype(np.float64)
    scores = np.array([w @ row / np.sqrt(row @ row) + b for row in x])
    expected = scores.mean() if percentile is None else np.percentile(scores, percentile)
    assert scores.std() > 0.1
    assert aesthetic(percentile=percentile).measure_features(features) == pytest.approx(expected, rel=1e-12)
    nowhere = Features(np.zeros((2, 768), np.float32))  # embeddings without direction score the bias
    assert aesthetic(percentile=percentile).measure_features(nowhere) == b


def test_the_mlp_is_the_published_network(tmp_path):
    network = reference_mlp()
    prop = aesthetic(head="mlp", weights=save_mlp(network, tmp_path / "mlp.pth"), percentile=None)
    features = embeddings(30)
    x = torch.from_numpy(features.vectors).double()
    with torch.no_grad():
        scores = network.double().eval()(x / x.norm(dim=1, keepdim=True))[:, 0].numpy()
    np.testing.assert_allclose(prop.of_each(features), scores, rtol=1e-12)
    assert scores.std() > 1e-4
    assert prop.measure_features(features) == pytest.approx(scores.mean(), rel=1e-12)


def test_the_published_mlp_is_found_in_torchs_cache_and_verified(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cached = tmp_path / "hub" / "checkpoints" / "sac+logos+ava1-l14-linearMSE.pth"
    cached.parent.mkdir(parents=True)
    network = reference_mlp()
    save_mlp(network, cached)
    with pytest.raises(UserError, match=r"aesthetic\.weights: .* has the SHA-256 .*, the published sac\+logos"):
        Aesthetic("mlp").check(context().contributions, 6)

    published = heads.PUBLISHED["mlp"]
    stand_in = replace(published, sha256=hashlib.sha256(cached.read_bytes()).hexdigest())
    monkeypatch.setitem(heads.PUBLISHED, "mlp", stand_in)
    Aesthetic("mlp").check(context().contributions, 6)
    state = Aesthetic("mlp", features=CLIP).fit(context())
    np.testing.assert_array_equal(state["layers.0.weight"], network[0].weight.detach().numpy())
    assert len(state) == 10


def test_a_head_of_ones_own(tmp_path):
    """For another extractor of 16 dimensions."""
    w, b = np.random.default_rng(1).normal(size=(1, 16)), np.array([2.5])
    file = tmp_path / "own.safetensors"
    write_arrays(file, {"weight": w.astype(np.float32), "bias": b.astype(np.float32)})
    features = embeddings(25, width=16)
    x = features.vectors.astype(np.float64)
    expected = (x @ w[0].astype(np.float32)) / np.linalg.norm(x, axis=1) + 2.5
    prop = aesthetic(weights=str(file), features=FAKE, percentile=None)
    assert prop.measure_features(features) == pytest.approx(expected.mean(), rel=1e-12)
    with pytest.raises(UserError, match=r"aesthetic\.features: .* has 768 dimensions; the head needs 16$"):
        aesthetic(weights=str(file))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"weight": (1, 768)}, "holds weight; the linear head has weight, bias"),
        ({"weight": (1, 768), "bias": (1,), "scale": (1,)}, "holds bias, scale, weight; the linear head has"),
        ({"weight": (2, 768), "bias": (2,)}, r"weight of shape \(2, 768\) .* \(1, …\) and \(1,\) are expected"),
    ],
)
def test_a_file_that_holds_no_such_head_is_refused(arrays, message, tmp_path):
    file = tmp_path / "own.safetensors"
    write_arrays(file, {name: np.ones(shape, np.float32) for name, shape in arrays.items()})
    with pytest.raises(UserError, match=rf"aesthetic\.weights: .*own\.safetensors.*{message}"):
        Aesthetic(weights=str(file)).check(context().contributions, 6)


def test_other_extractors_are_refused():
    with pytest.raises(UserError, match=r"aesthetic\.features: .*has 512 dimensions; the head needs 768, .*ViT-L/14"):
        aesthetic(features={"name": FAKE, "width": 512})
    with pytest.raises(UserError, match=r"aesthetic\.features: the published heads are not for 'blip_vqa'; accepted"):
        Aesthetic(features={"name": "blip_vqa"}).check(context().contributions, 6)


PROMPTS = ("a cat", "a dog", "a cat", "a ship", "a dog", "a cat")


def similarity(prompt: str | None = None, prompts: tuple[str, ...] | None = None) -> ClipSimilarity:
    given = context(pictures(len(prompts) if prompts else 6), prompts=prompts)
    return fitted(ClipSimilarity(prompt, features=FAKE), given)


def test_is_the_mean_cosine_with_one_text():
    features = embeddings(30, width=16)
    expected = cosine_similarity(features.vectors.astype(np.float64), [text_vector("a cat").astype(np.float32)])
    assert similarity("a cat").measure_features(features) == pytest.approx(expected.mean(), rel=1e-9)
    assert similarity("a cat", PROMPTS).measure_features(features) == pytest.approx(expected.mean(), rel=1e-9)
    assert similarity("a dog").measure_features(features) != pytest.approx(expected.mean(), abs=1e-3)


def test_each_image_is_compared_with_its_own_prompt():
    features = embeddings(6, width=16)
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
        similarity(prompts=PROMPTS).measure_features(embeddings(5, width=16))
    with pytest.raises(UserError, match=r"clip_similarity\.prompt: missing, and the model follows no prompts"):
        similarity()
    with pytest.raises(UserError, match=r"clip_similarity\.features: 'pixels' embeds no texts; accepted: clip"):
        ClipSimilarity("a cat", features="pixels").fit(context())
