"""Bytes counted without numbers, against what torch's profiler sees allocated for the same work with numbers."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from diffcredit.diffusion.ddpm import PixelFamily
from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.memory.outlined_work import activation_bytes, sampling_bytes, stage_bytes
from diffcredit.diffusion.memory.outlines import condition_of, outline_of
from diffcredit.diffusion.stepwise import gradient_checkpointing
from diffcredit.diffusion.text_to_image import LoRAFamily

from ..test_frozen_bases import CAPTIONS
from ..test_frozen_bases import CASES as PIPELINES
from ..tiny_pipelines import contributions, pictures

FACTOR = 1.35  # between an estimate and what is allocated, either way
LARGE = ("sana", "qwen_image", "z_image")
SIZE = 4


def allocated(work: Callable[[], object]) -> int:
    """The most bytes at once that ``work`` allocates on the CPU."""
    work()  # what is made once, such as tables of positions
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    results: Any = seen.profiler
    events = [each for each in results.kineto_results.events() if each.name() == "[memory]"]
    events.sort(key=lambda each: each.start_ns())
    now = most = 0
    for event in events:
        now += event.nbytes()
        most = max(most, now)
    return most


def family_of(kind: str, folder: Any, **options: Any) -> Any:
    if kind in PIPELINES:
        return LoRAFamily(str(PIPELINES[kind](folder / kind)), rank=3, **options)
    labels = {"objective": "flow", "conditions": "labels"} if kind == "dit-tiny" else {}
    return PixelFamily(preset=kind, **labels)


def close(estimate: int, real: int) -> None:
    assert real / FACTOR < estimate < real * FACTOR, (estimate, real, estimate / real)


@pytest.mark.parametrize("twice", [False, True], ids=["kept", "twice"])
@pytest.mark.parametrize("kind", ["tiny", "dit-tiny", *PIPELINES])
def test_a_step_of_training(kind, twice, tmp_path):
    given, family = contributions(32 if kind in LARGE else 16, CAPTIONS), family_of(kind, tmp_path, base="float32")
    outline, model = outline_of(family, given), family.start(given, 0)
    weights = [each for each in model.network.parameters() if each.requires_grad]
    data = model.encode(pictures(SIZE, side=model.pixels), CAPTIONS[:SIZE])
    t, noise = torch.full((SIZE,), 500), torch.randn(data.x.shape)
    model.network.train()
    if kind == "z_image":  # texts are cut to their length: the estimate is that of the longest
        data.conditions["mask"].fill_(True)

    def step() -> None:
        loss = model.losses(data.x, t, noise, data.condition).mean()
        torch.autograd.grad(loss, weights, materialize_grads=True)

    with gradient_checkpointing(model.network, twice):
        real = allocated(step) - sum(each.nbytes for each in weights)
    outline.network.train()
    close(activation_bytes(outline, condition_of(outline), SIZE, twice=twice), real)


@pytest.mark.parametrize("kind", ["tiny", "stable_diffusion", "sd35", "flux", "z_image", "sana"])
def test_a_step_of_sampling(kind, tmp_path):
    given, family = contributions(32 if kind in LARGE else 16, CAPTIONS), family_of(kind, tmp_path, base="float32")
    outline, model = outline_of(family, given), family.start(given, 0)
    guide = model.guide(range(SIZE), None)
    if kind == "z_image":
        guide = guide.with_tensors([torch.ones_like(each) for each in guide.tensors])
    time = model.objective.sampler("ddim", 4).times[0].expand(SIZE)

    @torch.no_grad()
    def step() -> None:
        model.guided(torch.empty(SIZE, *model.shape), time, guide)

    given_conditions = sum(each.nbytes for each in guide.condition.values()) if guide.condition else 0
    found = sampling_bytes(outline, condition_of(outline), SIZE, guided=guide.nothing is not None)
    close(found, allocated(step) + given_conditions)


@pytest.mark.parametrize("kind", ["stable_diffusion", "sd35", "qwen_image", "sana"])
def test_the_autoencoder(kind, tmp_path):
    given, family = contributions(32, CAPTIONS), family_of(kind, tmp_path, base="float32")
    outline, stage = outline_of(family, given), family.frozen.stage
    weights, encoding, decoding = stage_bytes(outline, 3)
    assert weights == sum(each.nbytes for each in stage.autoencoder.state_dict().values())
    latents = stage.encode(pictures(3, side=32), "cpu")
    close(encoding, allocated(lambda: stage.encode(pictures(3, side=32), "cpu")))
    close(decoding, allocated(lambda: stage.decode(latents)))


def test_models_of_pixels_have_no_autoencoder():
    outline = outline_of(PixelFamily(preset="tiny"), contributions(16))
    assert isinstance(outline, DiffusersModel)
    assert stage_bytes(outline, 3) == (0, 0, 0)
