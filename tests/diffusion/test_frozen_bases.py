"""Frozen bases in bf16 and in 8 bits: training, files, memory."""

import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from diffcredit.diffusion.draws import draw
from diffcredit.diffusion.fast.stacking import stacked
from diffcredit.diffusion.pipeline import Pipeline
from diffcredit.diffusion.pretrained import weights_fingerprint
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.text_to_image import TextToImageLoRA
from diffcredit.diffusion.training import train

from . import tiny, tiny_pipelines, tiny_text_pipelines, tiny_text_pipelines_b
from .tiny_pipelines import pictures

CASES: dict[str, Callable[[Path], Path]] = {
    "stable_diffusion": tiny_pipelines.stable_diffusion,
    "sdxl": tiny_text_pipelines.stable_diffusion_xl,
    "sd35": partial(tiny_text_pipelines.stable_diffusion_3, version="3.5"),
    "flux": tiny_text_pipelines.flux,
    "flux_2": tiny_text_pipelines.flux_2_klein,
    "qwen_image": tiny_text_pipelines_b.qwen_image,
    "z_image": tiny_text_pipelines_b.z_image,
    "sana": tiny_text_pipelines_b.sana,
    "pixart": tiny_text_pipelines_b.pixart_sigma,
}
CAPTIONS = ("a cat", "two dogs", "a cat", "a red house", "a bee", "two dogs")
PROMPTS = ("a cat", "two dogs", "a red house", "a bee")


@pytest.fixture(scope="module", params=CASES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return CASES[request.param](tmp_path_factory.mktemp(request.param) / "pipeline")


@pytest.fixture(scope="module", params=["bf16", "8bit"])
def precision(request: pytest.FixtureRequest) -> Any:
    if request.param == "8bit":
        pytest.importorskip("bitsandbytes")
    return request.param


@pytest.fixture(scope="module")
def base(folder: Path, precision: Any) -> Pipeline:
    return Pipeline(folder, precision=precision)


@pytest.fixture(scope="module")
def fresh(base: Pipeline) -> TextToImageLoRA:
    pixels = 32 if base.stage.factor > 2 else 16
    return TextToImageLoRA.create(base, 4, PROMPTS, None, pixels, seed=0)


def test_training_lowers_the_loss_and_a_saved_adapter_gives_the_same_images(folder, precision, base, fresh, tmp_path):
    model, frozen = fresh.clone(), {name: each.clone() for name, each in base.network().state_dict().items()}
    data = model.encode(pictures(6, side=model.pixels), CAPTIONS)
    fixed = [draw(data, step, Training(steps=8, batch_size=6), 1000, model.time_steps) for step in range(8)]

    def mean_loss() -> float:
        with torch.no_grad():
            return float(torch.stack([model.loss(*each).mean() for each in fixed]).mean())

    before = mean_loss()
    train(model, data, Training(steps=30, batch_size=6, learning_rate=1e-2), seed=0)
    assert mean_loss() < 0.97 * before
    assert tiny.same(base.network().state_dict(), frozen)
    assert {each.dtype for each in model.network.parameters() if each.requires_grad} == {torch.float32}
    model.save(tmp_path / "model")
    loaded = TextToImageLoRA.load(tmp_path / "model", Pipeline(folder, precision=precision))
    assert np.array_equal(loaded.sample([3, 4], 3), model.sample([3, 4], 3))
    assert not np.array_equal(fresh.sample([3, 4], 3), model.sample([3, 4], 3))


# -- memory


def storages(networks: Iterable[nn.Module]) -> int:
    """Bytes of all distinct storages."""
    tensors = (each for network in networks for each in [*network.parameters(), *network.buffers()])
    return sum({each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}.values())


def trained_bytes(network: nn.Module) -> int:
    return sum(each.nbytes for each in network.parameters() if each.requires_grad)


def test_coalitions_models_cost_their_adapters_alone(base, fresh, tmp_path):
    fresh.save(tmp_path / "model")
    models = [fresh.clone(), fresh.untrained(1), TextToImageLoRA.load(tmp_path / "model", base), fresh.clone().clone()]
    for model in models:
        model.to("cpu")
    data = models[0].encode(pictures(2, side=fresh.pixels), CAPTIONS[:2])
    train(models[0], data, Training(steps=1, batch_size=2), seed=0)
    models[1].sample([0, 1], 2)
    shared, adapters = storages([base.network()]), [trained_bytes(model.network) for model in models]
    assert len(set(adapters)) == 1
    assert storages([base.network(), *(model.network for model in models)]) == shared + sum(adapters)


def test_moving_a_model_moves_what_it_shares(folder, precision):
    """To a device that keeps no numbers, the only other one that every machine has."""
    base = Pipeline(folder, precision=precision)
    pixels = 16 if base.stage.factor == 2 else 32
    model, other = (TextToImageLoRA.create(base, 2, PROMPTS, None, pixels, seed) for seed in (0, 1))
    model.to("meta")
    assert {each.device.type for each in other.network.parameters() if each.requires_grad} == {"cpu"}
    other.to("meta")
    for network in (model.network, other.network, base.network()):
        assert {each.device.type for each in [*network.parameters(), *network.buffers()]} == {"meta"}
    buffers = [dict(network.named_buffers()) for network in (model.network, other.network, base.network())]
    for name, buffer in buffers[2].items():
        assert buffers[0][name] is buffers[1][name] is buffer


class Watched(TorchDispatchMode):
    """Counts the bytes of every new storage of a kind of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[torch.dtype, int] = {}
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {each.untyped_storage()._cdata for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, Tensor) and each.device.type == "cpu" and each.untyped_storage()._cdata not in given:
                self.made[each.dtype] = self.made.get(each.dtype, 0) + each.nbytes
        return result


def test_a_checkpoint_in_bf16_is_read_without_a_copy_in_float32(tmp_path):
    folder = tiny_text_pipelines.stable_diffusion_3(tmp_path / "sd3", version="3.5")
    network = Pipeline(folder, precision="bf16").network()
    network.save_pretrained(folder / "transformer")
    (file,) = (folder / "transformer").glob("*.safetensors")
    assert {each.dtype for each in load_file(file).values()} == {torch.bfloat16}
    whole = sum(each.numel() for each in network.parameters())
    base = Pipeline(folder, precision="bf16")
    with Watched() as watched:
        loaded = base.network()
    assert tiny.same(loaded.state_dict(), network.state_dict())
    largest = max(each.numel() for each in network.parameters())
    assert watched.made.get(torch.float32, 0) < 4 * largest < 4 * whole / 4, watched.made


def test_a_fleet_shares_the_base(tmp_path):
    base = Pipeline(tiny_pipelines.stable_diffusion(tmp_path / "sd"))
    network = TextToImageLoRA.create(base, 2, PROMPTS, None, 16, seed=0).network
    fleet = stacked(network, 4, cuda=False)
    shared = storages([base.network()])
    assert storages([base.network(), network, fleet]) <= shared + 2 * trained_bytes(network)


def test_sharded_weights_are_read_and_known_by_their_content(tmp_path):
    folder = tiny_text_pipelines.stable_diffusion_3(tmp_path / "sd3")
    whole = Pipeline(folder, precision="bf16")
    whole.network().save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    for file in (folder / "transformer").iterdir():
        file.unlink()
    for file in (tmp_path / "sharded").iterdir():
        file.rename(folder / "transformer" / file.name)
    shards = sorted((folder / "transformer").glob("diffusion_pytorch_model-0*-of-0*.safetensors"))
    assert len(shards) > 2
    weights_fingerprint.cache_clear()
    sharded = Pipeline(folder, precision="bf16")
    assert tiny.same(sharded.network().state_dict(), whole.network().state_dict())
    before = sharded.fingerprint
    tensors = load_file(shards[-1])
    name = next(iter(tensors))
    save_file(tensors | {name: tensors[name] + 1}, shards[-1], {"format": "pt"})
    weights_fingerprint.cache_clear()
    assert Pipeline(folder, precision="bf16").fingerprint != before
    shards[0].unlink()
    weights_fingerprint.cache_clear()
    tiny.refused("/sd3/transformer: SD3Transformer2DModel cannot be loaded from there", Pipeline(folder).network)


def test_a_study_is_identified_and_its_adapter_outlined_without_reading_the_network(tmp_path, monkeypatch):
    folder = tiny_text_pipelines.flux(tmp_path / "flux")
    monkeypatch.setattr("diffcredit.diffusion.pipeline.load_pretrained", None)
    base = Pipeline(folder)
    assert len(base.fingerprint) == 64
    assert {each.device.type for each in base.outline.parameters()} == {"meta"}
    with pytest.raises(TypeError):
        base.network()


def test_8_bits_need_a_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    monkeypatch.setitem(sys.modules, "bitsandbytes.functional", None)
    base = Pipeline(tiny_pipelines.stable_diffusion(tmp_path / "sd"), precision="8bit")
    tiny.refused(r'model\.base: 8bit needs the package bitsandbytes .*; pip install "diffcredit\[8bit\]"', base.network)
