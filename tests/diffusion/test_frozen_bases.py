"""Frozen bases in bf16 and in 8 bits: training, files, memory."""

import gc
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from diffcredit.diffusion.draws import draw
from diffcredit.diffusion.pipeline import Pipeline
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
