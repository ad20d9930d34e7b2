import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diffcredit.errors import UserError
from diffcredit.features.transformers_vision import TransformersVision

from . import tiny_vision_models as tiny

transformers = pytest.importorskip("transformers")

SIZED = {"image_size": tiny.SIDE}
SWIN = {**SIZED, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2}
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
CONVNEXT = {"hidden_sizes": [8, 8, 12, 16], "depths": [1, 1, 1, 1]}

# name: class, config's class, its settings, image processor
MODELS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "vit": ("ViTModel", "ViTConfig", tiny.VIT, "ViTImageProcessor"),
    "dinov2": ("Dinov2Model", "Dinov2Config", tiny.VIT, "BitImageProcessor"),
    "clip_vision": ("CLIPVisionModel", "CLIPVisionConfig", tiny.VIT, "CLIPImageProcessor"),
    "swin": ("SwinModel", "SwinConfig", SWIN, "ViTImageProcessor"),
    "resnet": ("ResNetModel", "ResNetConfig", RESNET, "ConvNextImageProcessor"),
    "convnext": ("ConvNextModel", "ConvNextConfig", CONVNEXT, "ConvNextImageProcessor"),
    "mae": ("ViTMAEModel", "ViTMAEConfig", tiny.VIT, "ViTImageProcessor"),
    "vit_classifier": ("ViTForImageClassification", "ViTConfig", tiny.VIT | tiny.LABELLED, "ViTImageProcessor"),
    "dinov2_classifier": (
        "Dinov2ForImageClassification",
        "Dinov2Config",
        tiny.VIT | tiny.LABELLED,
        "BitImageProcessor",
    ),
    "swin_classifier": ("SwinForImageClassification", "SwinConfig", SWIN | tiny.LABELLED, "ViTImageProcessor"),
    "resnet_classifier": (
        "ResNetForImageClassification",
        "ResNetConfig",
        RESNET | tiny.LABELLED,
        "ConvNextImageProcessor",
    ),
    "convnext_classifier": (
        "ConvNextForImageClassification",
        "ConvNextConfig",
        CONVNEXT | tiny.LABELLED,
        "ConvNextImageProcessor",
    ),
}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of a model by its name above, written once."""
    root, written = tmp_path_factory.mktemp("models"), set()

    def find(name: str) -> Path:
        if name not in written:
            model, config, settings, processor = MODELS[name]
            tiny.saved(root / name, getattr(transformers, model), getattr(transformers, config)(**settings), processor)
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


def is_seen(extractor: TransformersVision, images: Any, vectors: Any) -> None:
    found = extractor.extract(images).vectors
    assert found.dtype == np.float32
    assert found.shape == (len(images), extractor.dimensions)
    assert np.ptp(found, axis=0).max() > 1e-2  # images matter
    np.testing.assert_allclose(found, vectors, atol=1e-4)


@pytest.mark.parametrize("name", ["vit", "dinov2", "clip_vision", "swin", "resnet", "convnext"])
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


@pytest.mark.parametrize("name", ["swin", "resnet"])
def test_a_class_token_that_is_not_there_is_refused(folder_of, name):
    with pytest.raises(
        UserError, match=r"^features\.pooling: 'cls'; \w+ has no class token; accepted: 'auto' and 'mean'"
    ):
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


def test_images_that_share_a_space_with_texts_are_embedded_there(tmp_path):
    folder = tiny.clip(tmp_path)
    images = tiny.some_images()
    model = transformers.CLIPModel.from_pretrained(folder).eval()
    with torch.no_grad():
        output = model.vision_model(tiny.reference(folder, images))
        expected = model.visual_projection(output.pooler_output)
    is_seen(loaded(folder), images, expected)
    is_seen(loaded(folder, "cls"), images, output.last_hidden_state[:, 0])


def test_a_model_that_draws_at_random_is_refused(folder_of):
    with pytest.raises(UserError, match=r"^features\.model: .*ViTMAEModel has other features for the same image again"):
        loaded(folder_of("mae"))


def test_a_model_that_needs_more_than_images_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"^features\.model: .*cannot be"):
        loaded(tiny.preprocessor(_text_model(tmp_path), "ViTImageProcessor"))


def _text_model(folder: Path) -> Path:
    config = transformers.BertConfig(vocab_size=10, **tiny.BLOCKS)
    tiny.seeded(transformers.BertModel, config).save_pretrained(folder)
    return folder


def test_code_of_a_checkpoint_is_never_run(folder_of, tmp_path):
    folder = shutil.copytree(folder_of("vit"), tmp_path / "theirs")
    (folder / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "theirs", "auto_map": {"AutoConfig": "theirs.Config", "AutoModel": "theirs.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"^features\.model: .*AutoModel cannot be loaded from there"):
        loaded(folder)
    assert not (tmp_path / "ran").exists()


def test_identity_tells_how_images_are_resized_and_pooled(folder_of):
    identity = loaded(folder_of("resnet"), "mean").identity()
    assert identity["resize"] == "32 px shortest side, bilinear, antialiased, centre crop of 0.875"
    assert identity["pooling"] == "mean"
    assert {**identity, "pooling": "auto"} == loaded(folder_of("resnet")).identity()
    assert identity["weights"] != loaded(folder_of("resnet_classifier")).identity()["weights"]
    assert str(folder_of("resnet")) not in json.dumps(identity)


def test_nothing_reaches_the_terminal(folder_of, tmp_path, capfd):
    folder = shutil.copytree(folder_of("vit_classifier"), tmp_path / "copy")
    capfd.readouterr()
    loaded(folder).extract(tiny.some_images())
    assert capfd.readouterr() == ("", "")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["vit", "convnext_classifier"])
def test_a_gpu_sees_the_same(folder_of, name):
    tiny.agrees(loaded(folder_of(name), device="cuda"), loaded(folder_of(name)), tiny.some_images())
