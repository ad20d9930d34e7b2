"""Models whose files were damaged after they were saved."""

import json
import re

import pytest

from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.pipeline import pipeline
from diffcredit.diffusion.text_to_image import TextToImageLoRA
from diffcredit.errors import DiffcreditError

BYTES = 40  # that are changed, one at a time


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "base-0123"
    model = DDPM.create("tiny", 16, seed=0)
    model.save(folder)
    return model, folder


@pytest.mark.parametrize(
    ("name", "header"), [("model.safetensors", True), ("model.safetensors", False), ("config.json", True)]
)
def test_a_changed_byte_is_said_to_be_damage(saved, name, header):
    """Or it changes nothing, such as a space."""
    model, folder = saved
    file, refused = folder / name, 0
    whole = file.read_bytes()
    weights = int.from_bytes(whole[:8], "little") if name == "model.safetensors" else 0
    first, last = (0, min(len(whole), weights or len(whole))) if header else (weights + 8, len(whole))
    try:
        for place in range(first, last, max(1, (last - first) // BYTES)):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :])
            try:
                unchanged = DDPM.load(folder).fingerprint == model.fingerprint
            except DiffcreditError as error:
                unchanged, refused = str(folder) in str(error), refused + 1
            assert unchanged
    finally:
        file.write_bytes(whole)
    assert refused > BYTES / 2
    if not header:
        assert refused >= BYTES
    assert DDPM.load(folder).fingerprint == model.fingerprint


def test_a_changed_weight_is_damage_and_no_learning_rate(saved):
    _, folder = saved
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    try:
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 64]))  # the largest exponents
        with pytest.raises(
            DiffcreditError, match=rf"^{re.escape(str(folder))}: damaged: the model is not the one that was sav"
        ):
            DDPM.load(folder)
    finally:
        file.write_bytes(whole)


def test_a_changed_setting_is_damage(saved):
    _, folder = saved
    file = folder / "config.json"
    whole = file.read_text()
    try:
        description = json.loads(whole)
        description["schedule"]["beta_end"] *= 2
        file.write_text(json.dumps(description))
        with pytest.raises(DiffcreditError, match="damaged"):
            DDPM.load(folder)
        del description["fingerprint"]  # as older releases wrote it
        file.write_text(json.dumps(description))
        assert DDPM.load(folder).objective.config["beta_end"] == 0.04
    finally:
        file.write_text(whole)


def test_an_adapter_is_checked_too(sd_folder, tmp_path):
    base = pipeline(str(sd_folder))
    model = TextToImageLoRA.create(base, 2, ["a cat"], None, 16, 0)
    model.save(tmp_path)
    assert TextToImageLoRA.load(tmp_path, base).fingerprint == model.fingerprint
    (file,) = tmp_path.glob("*.safetensors")
    whole = file.read_bytes()
    file.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
    with pytest.raises(DiffcreditError, match="damaged"):
        TextToImageLoRA.load(tmp_path, base)
