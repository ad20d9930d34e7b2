import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from diffcredit.errors import UserError
from diffcredit.features.clip import CLIP

from . import tiny_vision_models as tiny

transformers = pytest.importorskip("transformers")
TEXTS = ["a cat", "two dogs", "a very long description that goes on"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.clip(tmp_path_factory.mktemp("clip"))


def loaded(folder: Path, device: str = "cpu") -> CLIP:
    extractor = CLIP(str(folder))
    extractor.load(device)
    return extractor


@pytest.mark.parametrize(("height", "width"), [(20, 44), (100, 60), (3, 9), (1, 1)])
def test_images_are_embedded_as_the_model_and_its_processor_do(folder, height, width):
    images = tiny.some_images(4, height, width)
    extractor = loaded(folder)
    model = transformers.CLIPModel.from_pretrained(folder).eval()
    with torch.no_grad():
        pooled = model.vision_model(tiny.reference(folder, images)).pooler_output
        expected = pooled @ model.visual_projection.weight.T
    found = extractor.extract(images)
    assert found.vectors.dtype == np.float32
    assert found.vectors.shape == (4, extractor.dimensions) == (4, 10)
    assert found.logits is None
    assert np.ptp(found.vectors, axis=0).min() > 1e-2  # images matter
    np.testing.assert_allclose(found.vectors, expected, atol=1e-5)


def test_texts_are_embedded_as_the_model_does_and_cut_off_at_its_length(folder):
    model = transformers.CLIPModel.from_pretrained(folder).eval()
    tokens = json.loads((folder / "vocab.json").read_text())
    expected = []
    for text in TEXTS:
        spelt = [
            tokens[f"{letter}</w>" if last else letter]
            for word in text.split()
            for letter, last in [(letter, place == len(word) - 1) for place, letter in enumerate(word)]
        ]
        row = [tokens["<|startoftext|>"], *spelt[:10], tokens["<|endoftext|>"]]
        with torch.no_grad():
            pooled = model.text_model(torch.tensor([row])).pooler_output[0]
            expected.append((model.text_projection.weight @ pooled).numpy())
    found = loaded(folder).embed_texts(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_identity_is_of_what_is_read_and_not_of_where(folder, tmp_path):
    identity = loaded(folder).identity()
    assert identity["resize"] == "32 px shortest side, bicubic, antialiased, centre crop 32 × 32"
    json.dumps(identity)
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "README.md").write_text("of no number")
    assert loaded(copy).identity() == identity
    for name, change in [
        ("preprocessor_config.json", {"resample": 2}),
        ("config.json", {"logit_scale_init_value": 1.0}),
        ("vocab.json", {"new": 0}),
    ]:
        other = shutil.copytree(folder, tmp_path / name)
        file = other / name
        file.write_text(json.dumps(json.loads(file.read_text()) | change))
        assert loaded(other).identity() != identity
    model = transformers.CLIPModel.from_pretrained(copy)
    with torch.no_grad():
        model.visual_projection.weight[0, 0] += 1
    model.save_pretrained(copy)
    assert loaded(copy).identity()["weights"] != identity["weights"]


def test_weights_in_several_files_are_the_same(folder, tmp_path):
    shards = shutil.copytree(folder, tmp_path / "shards")
    (shards / "model.safetensors").unlink()
    transformers.CLIPModel.from_pretrained(folder).save_pretrained(shards, max_shard_size="20KB")
    assert len(list(shards.glob("model-*.safetensors"))) > 1
    images = tiny.some_images()
    np.testing.assert_array_equal(loaded(shards).extract(images).vectors, loaded(folder).extract(images).vectors)
    before = loaded(shards).identity()
    last = sorted(shards.glob("model-*.safetensors"))[-1]
    content = bytearray(last.read_bytes())
    content[-1] ^= 1
    last.write_bytes(content)
    assert loaded(shards).identity()["weights"] != before["weights"]


def test_what_is_missing_is_named(folder, tmp_path):
    def broken(name: str) -> CLIP:
        copy = shutil.copytree(folder, tmp_path / name)
        (copy / name).unlink()
        return CLIP(str(copy))

    with pytest.raises(UserError, match=r"^features\.model: .*: no config\.json"):
        broken("config.json").load("cpu")
    with pytest.raises(UserError, match=r"^features\.model: .*: no model\.safetensors"):
        broken("model.safetensors").load("cpu")
    with pytest.raises(UserError, match=r"^features\.model: .*AutoImageProcessor cannot be loaded"):
        broken("preprocessor_config.json").load("cpu")
    textless = broken("vocab.json")
    textless.load("cpu")
    assert textless.extract(tiny.some_images(1)).vectors.shape == (1, 10)
    with pytest.raises(UserError, match=r"^features\.model: .*neither tokenizer\.json nor vocab\.json and merges\.txt"):
        textless.embed_texts(["a"])
    with pytest.raises(UserError, match=r"^features\.model: 'nowhere' is no folder, and no hub id"):
        CLIP("nowhere").load("cpu")


def test_weights_that_lack_something_are_refused(folder, tmp_path):
    from safetensors.torch import load_file, save_file

    copy = shutil.copytree(folder, tmp_path / "copy")
    state = load_file(copy / "model.safetensors")
    del state["visual_projection.weight"]
    save_file(state, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"1 tensors of CLIPModel are missing, such as 'visual_projection\.weight'"):
        CLIP(str(copy)).load("cpu")
    (copy / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(UserError, match=r"^features\.model: .*CLIPModel cannot be loaded from there"):
        CLIP(str(copy)).load("cpu")


def test_another_kind_of_model_is_refused(tmp_path):
    folder = tiny.blip(tmp_path)
    with pytest.raises(UserError, match=r"^features\.model: .*config\.json: model_type 'blip'; accepted: 'clip'"):
        CLIP(str(folder)).load("cpu")


def test_a_hub_that_cannot_be_reached_says_what_to_do(monkeypatch):
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def offline(*_arguments, **_options):
        raise LocalEntryNotFoundError("no connection\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(UserError) as error:
        CLIP("somebody/some-clip").load("cpu")
    assert str(error.value) == (
        "features.model: 'somebody/some-clip' is no folder, and cannot be downloaded from the hub (no connection); "
        "where the hub can be reached, run 'hf download somebody/some-clip --local-dir FOLDER', and say "
        "features.model: FOLDER"
    )


def test_a_model_of_the_hub_is_what_it_downloads(folder, monkeypatch):
    import huggingface_hub

    asked = []

    def download(name, allow_patterns):
        asked.append(name)
        assert not any(Path("pytorch_model.bin").match(pattern) for pattern in allow_patterns)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    extractor = CLIP("somebody/downloaded-clip")
    extractor.load("cpu")
    assert asked == ["somebody/downloaded-clip"]
    assert extractor.identity() == loaded(folder).identity()


def test_without_transformers_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError) as error:
        CLIP(str(folder)).load("cpu")
    assert str(error.value) == "features: clip needs the package transformers; pip install 'diffcredit[vision]'"


@pytest.mark.slow
def test_nothing_reaches_the_terminal(folder):
    """In a process of its own: some remarks are made once."""
    script = (
        "import numpy as np\nfrom diffcredit.features.clip import CLIP\n"
        f"extractor = CLIP({str(folder)!r})\nextractor.load('cpu')\n"
        "extractor.extract(np.zeros((2, 8, 8, 3), np.uint8))\nextractor.embed_texts(['a', 'b' * 50])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("", "")


@pytest.mark.gpu
def test_a_gpu_sees_the_same(folder):
    cpu, gpu = loaded(folder), loaded(folder, "cuda")
    tiny.agrees(gpu, cpu, tiny.some_images())
    np.testing.assert_allclose(gpu.embed_texts(TEXTS), cpu.embed_texts(TEXTS), atol=1e-3)
