import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diffcredit.errors import UserError
from diffcredit.features.transformers_vision import BLIPVQA, CLIP, TransformersVision

from . import tiny_vision_models as tiny

transformers = pytest.importorskip("transformers")

SIZED = {"image_size": tiny.SIDE}
SWIN = {**SIZED, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2}
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}

# name: the model's class, its config's settings, image processor
MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "vit": ("ViTModel", tiny.VIT, "ViTImageProcessor"),
    "dinov2": ("Dinov2Model", tiny.VIT, "BitImageProcessor"),
    "swin": ("SwinModel", SWIN, "ViTImageProcessor"),
    "resnet": ("ResNetModel", RESNET, "ConvNextImageProcessor"),
    "mae": ("ViTMAEModel", tiny.VIT, "ViTImageProcessor"),
    "vit_classifier": ("ViTForImageClassification", tiny.VIT, "ViTImageProcessor"),
    "dinov2_classifier": ("Dinov2ForImageClassification", tiny.VIT, "BitImageProcessor"),
    "resnet_classifier": ("ResNetForImageClassification", RESNET, "ConvNextImageProcessor"),
}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of a model by its name above, written once."""
    root, written = tmp_path_factory.mktemp("models"), set()

    def find(name: str) -> Path:
        if name not in written:
            model, settings, processor = MODELS[name]
            kind = getattr(transformers, model)
            labelled = tiny.LABELLED if name.endswith("_classifier") else {}
            tiny.saved(root / name, kind, kind.config_class(**settings, **labelled), processor)
            if processor == "ConvNextImageProcessor":
                tiny.preprocessor(root / name, processor, size={"shortest_edge": tiny.SIDE}, crop_pct=0.875, resample=2)
            written.add(name)
        return root / name

    return find


def loaded(folder: Path, pooling: Any = "auto", device: str = "cpu") -> TransformersVision:
    extractor = TransformersVision(str(folder), pooling)
    extractor.load(device)
    return extractor


def directly(folder: Path, name: str, images: Any) -> tuple[Any, Any]:
    """The model by its own class, and its output."""
    model = getattr(transformers, MODELS[name][0]).from_pretrained(folder).eval()
    with torch.no_grad():
        return model, model(tiny.reference(folder, images))


def is_seen(extractor: Any, images: Any, vectors: Any) -> None:
    found = extractor.extract(images).vectors
    assert found.dtype == np.float32
    assert found.shape == (len(images), extractor.dimensions)
    assert np.ptp(found, axis=0).max() > 1e-2  # images matter
    np.testing.assert_allclose(found, vectors, atol=1e-4)


@pytest.mark.parametrize("name", ["vit", "dinov2", "swin", "resnet"])
def test_is_the_pooled_output(folder_of, name):
    images = tiny.some_images(3, 24, 40)
    _, output = directly(folder_of(name), name, images)
    extractor = loaded(folder_of(name))
    is_seen(extractor, images, output.pooler_output.reshape(3, -1))
    assert extractor.classes is None
    assert extractor.labels is None
    assert extractor.extract(images).logits is None


def test_class_token_and_mean(folder_of):
    images = tiny.some_images()
    tokens = directly(folder_of("vit"), "vit", images)[1].last_hidden_state.numpy()
    is_seen(loaded(folder_of("vit"), "cls"), images, tokens[:, 0])
    is_seen(loaded(folder_of("vit"), "mean"), images, tokens.mean(axis=1))
    positions = directly(folder_of("resnet"), "resnet", images)[1].last_hidden_state.numpy()
    is_seen(loaded(folder_of("resnet"), "mean"), images, positions.mean(axis=(2, 3)))


def test_a_class_token_that_is_not_there_is_refused(folder_of):
    for name in ("swin", "resnet"):
        with pytest.raises(UserError, match=r"^features\.pooling: 'cls'; \w+ has no class token; accepted: 'auto' and"):
            loaded(folder_of(name), "cls")


def test_a_pooling_that_was_never_trained_is_left_out(tmp_path):
    folder = tiny.saved(
        tmp_path,
        transformers.ViTModel,
        transformers.ViTConfig(**tiny.VIT),
        "ViTImageProcessor",
        add_pooling_layer=False,
    )
    images = tiny.some_images()
    model = transformers.ViTModel.from_pretrained(folder, add_pooling_layer=False).eval()
    with torch.no_grad():
        tokens = model(tiny.reference(folder, images)).last_hidden_state
    is_seen(loaded(folder), images, tokens[:, 0])


@pytest.mark.parametrize("name", [name for name in MODELS if name.endswith("_classifier")])
def test_a_classifier_is_seen_before_its_head_and_after(folder_of, name):
    images = tiny.some_images()
    model, output = directly(folder_of(name), name, images)
    extractor = loaded(folder_of(name))
    found = extractor.extract(images)
    np.testing.assert_allclose(found.logits, output.logits, atol=1e-4)
    # the head is linear, so that the vectors are what it made the logits of
    head = [module for module in model.classifier.modules() if isinstance(module, torch.nn.Linear)][-1]
    assert found.vectors.shape == (5, extractor.dimensions) == (5, head.in_features)
    weight, bias = head.weight.detach().numpy(), head.bias.detach().numpy()
    np.testing.assert_allclose(found.vectors @ weight.T + bias, output.logits, atol=1e-4)
    assert extractor.classes == 3
    assert extractor.labels == ("cat", "dog", "teapot")


def test_a_classifier_may_be_pooled_otherwise(folder_of):
    images = tiny.some_images()
    model = transformers.ViTForImageClassification.from_pretrained(folder_of("vit_classifier")).eval()
    with torch.no_grad():
        tokens = model.vit(tiny.reference(folder_of("vit_classifier"), images)).last_hidden_state
    extractor = loaded(folder_of("vit_classifier"), "mean")
    is_seen(extractor, images, tokens.mean(dim=1))
    assert extractor.extract(images).logits is not None


def test_clip_is_the_projected_embedding(clip_folder):
    images = tiny.some_images(4, 3, 9)  # not to be mistaken for channels
    model = transformers.CLIPModel.from_pretrained(clip_folder).eval()
    with torch.no_grad():
        output = model.vision_model(tiny.reference(clip_folder, images))
        expected = output.pooler_output @ model.visual_projection.weight.T
    extractor = CLIP(str(clip_folder))
    extractor.load("cpu")
    is_seen(extractor, images, expected)
    is_seen(loaded(clip_folder), images, expected)  # images that share a space with texts are embedded there
    is_seen(loaded(clip_folder, "cls"), images, output.last_hidden_state[:, 0])


def test_clip_embeds_texts_as_the_model_does_and_cuts_them_off_at_its_length(clip_folder):
    texts = ["a cat", "two dogs", "a very long description that goes on"]
    model = transformers.CLIPModel.from_pretrained(clip_folder).eval()
    tokens = json.loads((clip_folder / "vocab.json").read_text())
    expected = []
    for text in texts:
        spelt = [tokens[letter] for word in text.split() for letter in [*word[:-1], f"{word[-1]}</w>"]]
        row = [tokens["<|startoftext|>"], *spelt[:10], tokens["<|endoftext|>"]]
        with torch.no_grad():
            pooled = model.text_model(torch.tensor([row])).pooler_output[0]
            expected.append((model.text_projection.weight @ pooled).numpy())
    extractor = CLIP(str(clip_folder))
    extractor.load("cpu")
    found = extractor.embed_texts(texts)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_blip_is_the_pooled_output_of_the_image_encoder(tmp_path):
    folder, images = tiny.blip(tmp_path), tiny.some_images(4, 48, 24)
    model = transformers.BlipForQuestionAnswering.from_pretrained(folder).eval()
    with torch.no_grad():
        tokens = model.vision_model(tiny.reference(folder, images)).last_hidden_state
        expected = model.vision_model.post_layernorm(tokens[:, 0])
    extractor = BLIPVQA(model=str(folder))
    extractor.load("cpu")
    is_seen(extractor, images, expected)
    assert extractor.identity()["resize"] == "32 × 32 px, bicubic, antialiased"


def test_bf16_is_near_and_another_extractor(folder_of):
    images, exact = tiny.some_images(), loaded(folder_of("vit_classifier"))
    rounded = TransformersVision(str(folder_of("vit_classifier")), precision="bf16")
    rounded.load("cpu")
    found, expected = rounded.extract(images), exact.extract(images)
    assert found.vectors.dtype == np.float32
    for one, other in ((found.vectors, expected.vectors), (found.logits, expected.logits)):
        assert 0 < np.linalg.norm(one - other) < 0.05 * np.linalg.norm(other)
    assert rounded.identity() == {**exact.identity(), "precision": "bf16"}


def test_a_model_that_draws_at_random_is_refused(folder_of):
    with pytest.raises(UserError, match=r"^features\.model: .*ViTMAEModel has other features for the same image again"):
        loaded(folder_of("mae"))


def test_a_model_that_needs_more_than_images_is_refused(tmp_path):
    tiny.seeded(transformers.BertModel, transformers.BertConfig(vocab_size=10, **tiny.BLOCKS)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"^features\.model: .*cannot be"):
        loaded(tiny.preprocessor(tmp_path, "ViTImageProcessor"))


def test_identity_tells_how_images_are_resized_and_pooled(folder_of):
    identity = loaded(folder_of("resnet"), "mean").identity()
    assert identity["resize"] == "32 px shortest side, bilinear, antialiased, centre crop of 0.875"
    assert identity["pooling"] == "mean"
    assert {**identity, "pooling": "auto"} == loaded(folder_of("resnet")).identity()
    assert identity["weights"] != loaded(folder_of("resnet_classifier")).identity()["weights"]
    assert str(folder_of("resnet")) not in json.dumps(identity)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["vit", "resnet_classifier"])
def test_a_gpu_sees_the_same(folder_of, name):
    tiny.agrees(loaded(folder_of(name), device="cuda"), loaded(folder_of(name)), tiny.some_images())
