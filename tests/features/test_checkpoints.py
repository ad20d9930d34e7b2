"""Checkpoints of transformers, by the example of a tiny CLIP."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from diffcredit.errors import UserError
from diffcredit.features.transformers_vision import BLIPVQA, CLIP

from . import tiny_vision_models as tiny

transformers = pytest.importorskip("transformers")


def loaded(folder: Path) -> CLIP:
    extractor = CLIP(str(folder))
    extractor.load("cpu")
    return extractor


def test_identity_is_of_what_is_read_and_not_of_where(clip_folder, tmp_path):
    identity = loaded(clip_folder).identity()
    assert identity["resize"] == "32 px shortest side, bicubic, antialiased, centre crop 32 × 32"
    json.dumps(identity)
    copy = shutil.copytree(clip_folder, tmp_path / "copy")
    (copy / "README.md").write_text("of no number")
    assert loaded(copy).identity() == identity
    for name, change in [
        ("preprocessor_config.json", {"resample": 2}),
        ("config.json", {"logit_scale_init_value": 1.0}),
        ("vocab.json", {"new": 0}),
    ]:
        file = copy / name
        before = file.read_text()
        file.write_text(json.dumps(json.loads(before) | change))
        assert loaded(copy).identity() != identity
        file.write_text(before)
    model = transformers.CLIPModel.from_pretrained(copy)
    with torch.no_grad():
        model.visual_projection.weight[0, 0] += 1
    model.save_pretrained(copy)
    assert loaded(copy).identity()["weights"] != identity["weights"]


def test_weights_in_several_files_are_the_same(clip_folder, tmp_path):
    shards = shutil.copytree(clip_folder, tmp_path / "shards")
    (shards / "model.safetensors").unlink()
    transformers.CLIPModel.from_pretrained(clip_folder).save_pretrained(shards, max_shard_size="20KB")
    assert len(list(shards.glob("model-*.safetensors"))) > 1
    images, sharded = tiny.some_images(), loaded(shards)
    np.testing.assert_array_equal(sharded.extract(images).vectors, loaded(clip_folder).extract(images).vectors)
    last = sorted(shards.glob("model-*.safetensors"))[-1]
    content = bytearray(last.read_bytes())
    content[-1] ^= 1
    last.write_bytes(content)
    assert loaded(shards).identity()["weights"] != sharded.identity()["weights"]


def test_what_is_missing_is_named(clip_folder, tmp_path):
    for name, why in (
        ("config.json", "no such file"),
        ("model.safetensors", r"no model\.safetensors"),
        ("preprocessor_config.json", "AutoImageProcessor cannot be loaded"),
    ):
        broken = shutil.copytree(clip_folder, tmp_path / name)
        (broken / name).unlink()
        with pytest.raises(UserError, match=rf"^features\.model: .*: {why}"):
            loaded(broken)
    with pytest.raises(UserError, match=r"^features\.model: nowhere: no such folder, and not a hub id"):
        loaded(Path("nowhere"))
    with pytest.raises(UserError, match=r"^features\.model: .*: model_type 'clip'; accepted: 'blip'"):
        BLIPVQA(model=str(clip_folder)).load("cpu")


def test_without_a_tokenizer_only_images_are_embedded(clip_folder, tmp_path):
    textless = shutil.copytree(clip_folder, tmp_path / "textless")
    (textless / "vocab.json").unlink()
    extractor = loaded(textless)
    assert extractor.extract(tiny.some_images(1)).vectors.shape == (1, 10)
    with pytest.raises(UserError, match=r"^features\.model: .*neither tokenizer\.json nor vocab\.json and merges\.txt"):
        extractor.embed_texts(["a"])


def test_weights_that_lack_something_are_refused(clip_folder, tmp_path):
    from safetensors.torch import load_file, save_file

    copy = shutil.copytree(clip_folder, tmp_path / "copy")
    state = load_file(copy / "model.safetensors")
    del state["visual_projection.weight"]
    save_file(state, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"1 tensors of CLIPModel are missing, such as 'visual_projection\.weight'"):
        loaded(copy)
    (copy / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(UserError, match=r"^features\.model: .*CLIPModel cannot be loaded from there"):
        loaded(copy)


def test_a_model_of_the_hub_is_what_it_downloads(clip_folder, monkeypatch):
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def download(name, allow_patterns, ignore_patterns):
        assert name == "somebody/some-clip"
        assert not any(Path("pytorch_model.bin").match(pattern) for pattern in allow_patterns)
        return str(clip_folder)

    def offline(*_arguments, **_options):
        raise LocalEntryNotFoundError("no connection\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert loaded(Path("somebody/some-clip")).identity() == loaded(clip_folder).identity()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(UserError, match=r"the hub does not give it \(no connection\); .* run 'hf download"):
        loaded(Path("somebody/other-clip"))


def test_code_of_a_checkpoint_is_never_run(clip_folder, tmp_path):
    from diffcredit.features.transformers_vision import TransformersVision

    folder = shutil.copytree(clip_folder, tmp_path / "theirs")
    (folder / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "theirs", "auto_map": {"AutoConfig": "theirs.Config", "AutoModel": "theirs.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"^features\.model: .*AutoModel cannot be loaded from there"):
        TransformersVision(str(folder)).load("cpu")
    assert not (tmp_path / "ran").exists()


def test_without_transformers_the_extra_is_named(clip_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"^features: clip needs the package transformers; pip install"):
        loaded(clip_folder)


def test_nothing_reaches_the_terminal(clip_folder, tmp_path, capfd):
    folder = shutil.copytree(clip_folder, tmp_path / "copy")
    capfd.readouterr()
    extractor = loaded(folder)
    extractor.extract(tiny.some_images())
    extractor.embed_texts(["a", "b" * 50])
    assert capfd.readouterr() == ("", "")
