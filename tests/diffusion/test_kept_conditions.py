"""Conditions of texts are computed once for a folder, and found again there."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from diffcredit.diffusion.conditions import NOTHING, ClassLabels, Conditioner, Conditions
from diffcredit.diffusion.pipeline import Pipeline
from diffcredit.diffusion.pretrained import weights_fingerprint
from diffcredit.diffusion.text_to_image import TextToImageLoRA
from diffcredit.errors import DiffcreditError

from . import tiny_text_pipelines
from .tiny_pipelines import pictures

TEXTS = ["a cat", "two dogs", NOTHING, "ein Käfer"]


class Lengths(Conditioner):
    """Two tensors that follow from a text's length, in bf16 and in integers; tells what it was asked."""

    def __init__(self, folder: Path | None, fingerprint: str = "f" * 64) -> None:
        super().__init__()
        self.kept_in, self.fingerprint, self.asked = folder, fingerprint, []

    def encode(self, texts: Sequence[str | None], pixels: int, device: torch.device) -> Iterable[Conditions]:
        for text in texts:
            self.asked.append(text)
            length = len(text or "")
            yield {
                "hidden": torch.full((2, 3), length / 3, dtype=torch.bfloat16, device=device),
                "class": torch.tensor(length + pixels, device=device),
            }


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("conditions-*.safetensors"))


def same(one: Conditions, other: Conditions) -> bool:
    return one.keys() == other.keys() and all(
        each.dtype == other[name].dtype and each.equal(other[name]) for name, each in one.items()
    )


def test_another_process_finds_them(tmp_path):
    first, plain = Lengths(tmp_path), Lengths(None)
    found = first.embed(TEXTS, 16)
    assert same(found, plain.embed(TEXTS, 16))
    assert first.asked == TEXTS
    later = Lengths(tmp_path)
    assert same(later.embed(TEXTS, 16), found)
    picked = ["two dogs", "a cat", "two dogs"]
    assert same(later.embed(picked, 16), plain.embed(picked, 16))
    assert later.asked == []
    later.embed([*TEXTS, "new", "a cat"], 16)
    assert later.asked == ["new"], "what is there is not computed again"
    third = Lengths(tmp_path)
    assert same(third.embed(["new", NOTHING], 16), plain.embed(["new", NOTHING], 16))
    assert (third.asked, len(files(tmp_path))) == ([], 2)
    for other in (Lengths(tmp_path, "e" * 64), Lengths(tmp_path)):
        other.embed(TEXTS, 16 if other.fingerprint[0] == "e" else 32)
        assert other.asked == TEXTS, "other encoders and other sizes have their own"


def test_all_texts_of_a_file_are_not_copied(tmp_path):
    """They are the file's own memory, which processes share: nothing is copied for whoever asks for all of them."""
    Lengths(tmp_path).embed(TEXTS, 16)
    later = Lengths(tmp_path)
    one, two = (later.embed(TEXTS, 16)["hidden"] for _ in range(2))
    assert one.data_ptr() == two.data_ptr()
    mapped = Path("/proc/self/maps")
    if mapped.exists():
        assert str(files(tmp_path)[0]) in mapped.read_text()


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Lengths(None).embed(TEXTS, 16)
    assert list(tmp_path.iterdir()) == []
    assert not ClassLabels(["a"]).costly


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def change(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def strip(file: Path) -> None:
    save_file(load_file(file), file)


@pytest.mark.parametrize("damage", [cut, change, strip])
def test_a_damaged_file_is_named_in_one_line(tmp_path, damage):
    Lengths(tmp_path).embed(TEXTS, 16)
    (file,) = files(tmp_path)
    copied = file.read_bytes()
    file.unlink()  # what is mapped must not change under the first process
    file.write_bytes(copied)
    damage(file)
    with pytest.raises(DiffcreditError, match=rf"{file}: damaged .*; remove it to have it made anew") as raised:
        Lengths(tmp_path).embed(["a cat"], 16)
    assert "\n" not in str(raised.value)


def test_text_encoders_are_not_read_again(tmp_path, monkeypatch):
    """Nor for sampling, whose prompts are among the captions."""
    folder = tiny_text_pipelines.stable_diffusion_3(tmp_path / "sd3")
    captions = ["a cat", "two dogs", "a cat"]

    def model() -> TextToImageLoRA:
        made = TextToImageLoRA.create(Pipeline(folder, precision="bf16"), 2, ("two dogs", "a cat"), None, 16, seed=0)
        assert made.conditioner is not None
        made.conditioner.kept_in = tmp_path / "models"
        return made

    first = model()
    first.sample([0], 1)  # with guidance: the text of no image is kept too
    expected = first.encode(pictures(3), captions).condition
    monkeypatch.setattr("diffcredit.diffusion.texts.TextEncoders._load", None)
    later = model()
    images = later.sample([0, 1], 1)
    assert same(later.encode(pictures(3), captions).condition, expected)
    assert {each.dtype for each in expected.values()} == {torch.bfloat16}
    assert images.shape == (2, 16, 16, 3)
    identity = later.conditioner.fingerprint
    (file,) = (folder / "text_encoder_3").glob("*.safetensors")
    tensors = load_file(file)
    name = next(iter(tensors))
    save_file(tensors | {name: tensors[name] * 1.5}, file, {"format": "pt"})
    weights_fingerprint.cache_clear()
    assert model().conditioner.fingerprint != identity
