from pathlib import Path

import numpy as np
import pytest
import torch

from diffcredit.errors import UserError
from diffcredit.features.blip import BLIPVQA

from . import tiny_vision_models as tiny

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.blip(tmp_path_factory.mktemp("blip"))


def loaded(folder: Path, device: str = "cpu") -> BLIPVQA:
    extractor = BLIPVQA(str(folder))
    extractor.load(device)
    return extractor


@pytest.mark.parametrize(("height", "width"), [(20, 20), (48, 24)])
def test_is_the_pooled_output_of_the_image_encoder(folder, height, width):
    images = tiny.some_images(4, height, width)
    model = transformers.BlipForQuestionAnswering.from_pretrained(folder).eval()
    with torch.no_grad():
        tokens = model.vision_model(tiny.reference(folder, images)).last_hidden_state
        expected = model.vision_model.post_layernorm(tokens[:, 0])
    extractor = loaded(folder)
    found = extractor.extract(images)
    assert found.vectors.shape == (4, extractor.dimensions) == (4, 16)
    assert np.ptp(found.vectors, axis=0).min() > 1e-2  # images matter
    np.testing.assert_allclose(found.vectors, expected, atol=1e-5)
    assert extractor.identity()["resize"] == "32 × 32 px, bicubic, antialiased"


def test_another_kind_of_model_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"^features\.model: .*config\.json: model_type 'clip'; accepted: 'blip'"):
        BLIPVQA(str(tiny.clip(tmp_path))).load("cpu")


@pytest.mark.gpu
def test_a_gpu_sees_the_same(folder):
    tiny.agrees(loaded(folder, "cuda"), loaded(folder), tiny.some_images())
