import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from diffcredit.errors import UserError
from diffcredit.features.timm_vision import TimmVision, prepared

from . import tiny_vision_models as tiny


def test_without_timm_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError) as error:
        TimmVision("resnet18").load("cpu")
    assert str(error.value) == "features: timm needs the package timm; pip install 'diffcredit[timm]'"


def test_a_timm_that_cannot_be_imported_says_why(tmp_path, monkeypatch):
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"^features: the package timm cannot be imported \(operator torchvision::nms"):
        TimmVision("resnet18").load("cpu")


def test_images_are_resized_cropped_and_normalised():
    """A wide image of two halves: its shorter side becomes ⌊8/0.8⌋ = 10 pixels, and of 20 × 10 the centre is cut."""
    image = np.zeros((1, 5, 10, 3), np.uint8)
    image[:, :, 5:] = 255
    config: dict[str, Any] = {
        "input_size": (3, 8, 8),
        "crop_pct": 0.8,
        "crop_mode": "center",
        "interpolation": "nearest",
        "mean": (0.5, 0.25, 0.0),
        "std": (0.5, 0.5, 0.25),
    }
    found = prepared(image, config)
    assert found.shape == (1, 3, 8, 8)
    np.testing.assert_allclose(found[0, :, :, :4], np.broadcast_to([[[-1]], [[-0.5]], [[0]]], (3, 8, 4)))
    np.testing.assert_allclose(found[0, :, :, 4:], np.broadcast_to([[[1]], [[1.5]], [[4]]], (3, 8, 4)))


@pytest.fixture(scope="module")
def timm() -> Any:
    return pytest.importorskip("timm", reason="timm is not installed; pip install 'diffcredit[timm]'")


MODELS = ["test_resnet", "test_vit", "test_efficientnet", "test_convnext"]


@pytest.fixture(scope="module")
def published(timm, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A random model of timm by its name, and the file of its weights."""
    from safetensors.torch import save_file

    root = tmp_path_factory.mktemp("timm")

    def make(name: str) -> tuple[Any, Path]:
        model = tiny.seeded(timm.create_model, name)
        file = root / f"{name}.safetensors"
        save_file(model.state_dict(), file)
        return model, file

    return make


def loaded(name: str, file: Path, device: str = "cpu") -> TimmVision:
    extractor = TimmVision(name, str(file))
    extractor.load(device)
    return extractor


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(20, 20), (200, 300)])
def test_sees_what_timm_sees_through_its_own_transform(timm, published, name, shape):
    from timm.data import create_transform, resolve_model_data_config

    model, file = published(name)
    images = tiny.some_images(3, *shape)
    transform = create_transform(**resolve_model_data_config(model), is_training=False)
    given = torch.stack([transform(Image.fromarray(image)) for image in images])
    with torch.no_grad():
        logits = model(given)
        vectors = model.forward_head(model.forward_features(given), pre_logits=True)
    extractor = loaded(name, file)
    np.testing.assert_allclose(prepared(images, extractor._config), given, atol=1e-6)
    found = extractor.extract(images)
    assert found.vectors.shape == (3, extractor.dimensions)
    assert extractor.classes == 1000
    spread = np.ptp(vectors.numpy(), axis=0).max()  # images matter little to random networks
    np.testing.assert_allclose(found.vectors, vectors, rtol=0, atol=spread / 100)
    np.testing.assert_allclose(found.logits, logits, rtol=0, atol=spread / 100)


def test_identity_is_of_the_weights_wherever_they_come_from(timm, published, monkeypatch):
    model, file = published("test_resnet")
    identity = loaded("test_resnet", file).identity()
    assert identity["resize"] == "168 px shortest side, bilinear, antialiased, centre crop 160 px"
    assert str(file) not in json.dumps(identity)
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained: model)
    downloaded = TimmVision("test_resnet.r160_in1k")
    downloaded.load("cpu")
    assert downloaded.identity() == identity


def test_what_cannot_be_had_is_named(timm, published, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"^features\.model: 'resnet_18' is unknown"):
        TimmVision("resnet_18").load("cpu")
    with pytest.raises(UserError, match=r"^features\.weights: .*no such file"):
        loaded("test_resnet", tmp_path / "nowhere.safetensors")
    with pytest.raises(UserError, match=r"^features\.weights: .*another network than"):
        loaded("test_vit", published("test_resnet")[1])
    with pytest.raises(UserError, match=r"^features\.model: 'test_resnet\.no_such_tag' cannot be made"):
        loaded("test_resnet.no_such_tag", published("test_resnet")[1])

    def offline(*_arguments, **_options):
        raise OSError("no connection")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(UserError, match=r"'test_vit' cannot be made \(no connection\); .*with features\.weights"):
        TimmVision("test_vit").load("cpu")


@pytest.mark.gpu
def test_a_gpu_sees_the_same(published):
    _, file = published("test_resnet")
    tiny.agrees(loaded("test_resnet", file, "cuda"), loaded("test_resnet", file), tiny.some_images())
