"""Each tiny pipeline with its denoiser: how the pipeline itself is called, and an own loop over its parts."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diffusers
import torch
from torch import Tensor

from diffcredit.diffusion.denoisers.base import Denoiser, PipelineDenoiser
from diffcredit.diffusion.denoisers.pixart import PixArtSigma
from diffcredit.diffusion.denoisers.qwen_image import QwenImage
from diffcredit.diffusion.denoisers.sana import Sana
from diffcredit.diffusion.denoisers.z_image import ZImage
from diffcredit.diffusion.latent_spaces import SPACES
from diffcredit.diffusion.objectives import FlowMatching, NoiseSchedule, Objective

from .. import tiny_text_pipelines_b as tiny
from ..tiny_text_pipelines_b import LATENT_SIDE, SIDE

PROMPTS = ("a red boat", "harbour at dawn, oil on canvas", "A tree")
SEEDS = (3, 4, 8)
STEPS = 4


@dataclass(frozen=True)
class Served:
    denoiser: PipelineDenoiser
    make: Callable[..., Path]
    schedules: tuple[dict[str, Any], ...]
    arguments: Callable[[float | None], dict[str, Any]]  # of __call__, given the guidance
    gradless: frozenset[str] = frozenset()  # targets that the loss does not depend on
    vectorised: bool = True


SERVED = {
    "qwen_image": Served(
        QwenImage(),
        tiny.qwen_image,
        (tiny.DYNAMIC, {"shift": 3.0}),
        lambda g: {} if g is None else {"true_cfg_scale": g, "negative_prompt": [" "] * len(PROMPTS)},
        frozenset({"transformer_blocks.1.attn.add_q_proj", "transformer_blocks.1.attn.to_add_out"}),
    ),
    "z_image": Served(
        ZImage(),
        tiny.z_image,
        ({"shift": 6.0}, {"use_dynamic_shifting": True}),
        lambda g: {"guidance_scale": g or 0.0},
        vectorised=False,
    ),
    "sana": Served(
        Sana(),
        tiny.sana,
        ({"shift": 3.0},),
        lambda g: {"guidance_scale": g or 1.0, "use_resolution_binning": False},
    ),
    "pixart_sigma": Served(
        PixArtSigma(),
        tiny.pixart_sigma,
        ({}, {"prediction_type": "v_prediction"}),
        lambda g: {"guidance_scale": g or 1.0, "use_resolution_binning": False, "clean_caption": False},
    ),
}


def load(folder: Path) -> Any:
    """Return the pipeline of ``folder``, all of it."""
    pipeline = diffusers.DiffusionPipeline.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@torch.no_grad()
def encoded(denoiser: PipelineDenoiser, folder: Path, prompts: Sequence[str | None]) -> dict[str, Tensor]:
    """Return the conditions of ``prompts`` (None: of nothing), by a pipeline with text parts alone."""
    whole = load(folder)
    parts = {name: getattr(whole, name) for name in denoiser.parts}
    assert all(type(part).__name__ in denoiser.parts[name] for name, part in parts.items())
    index = json.loads((folder / "model_index.json").read_text())
    pipeline = denoiser.text_pipeline(type(whole), parts, index)
    conditions = [
        denoiser.nothing(pipeline, SIDE) if text is None else denoiser.encode(pipeline, text, SIDE) for text in prompts
    ]
    return {name: torch.stack([each[name] for each in conditions]) for name in conditions[0]}


def objective_of(denoiser: PipelineDenoiser, scheduler: Any) -> Objective:
    if type(scheduler).__name__ == "DDIMScheduler":
        return NoiseSchedule(scheduler.config)
    return FlowMatching(
        denoiser.density,
        sigmas=lambda steps: denoiser.sigmas(type(scheduler).from_config(scheduler.config), steps, LATENT_SIDE),
    )


def noise(seeds: Sequence[int], channels: int = 4, side: int = LATENT_SIDE) -> Tensor:
    return torch.cat([torch.randn(1, channels, side, side, generator=generator) for generator in generators(seeds)])


def generators(seeds: Sequence[int]) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


@torch.no_grad()
def own_loop(
    denoiser: Denoiser,
    network: Any,
    objective: Objective,
    following: dict[str, Tensor],
    without: dict[str, Tensor] | None,
    guidance: float | None,
) -> Tensor:
    """Return the latents of SEEDS; the conditions of nothing are ``without``."""
    sampler = objective.sampler("ddim", STEPS)
    x = noise(SEEDS)
    for k, time in enumerate(sampler.times):
        times = time.expand(len(x))
        prediction = denoiser.predict(network, x, times, following)
        if guidance is not None:
            prediction = denoiser.guide(denoiser.predict(network, x, times, without), prediction, guidance)
        x = sampler.step(k, prediction, x)
    return x


@torch.no_grad()
def decoded(autoencoder: Any, latents: Tensor) -> Tensor:
    """Return images in [0, 1]."""
    if type(autoencoder).__name__ in SPACES:
        images = SPACES[type(autoencoder).__name__].decode(autoencoder, latents)
    else:
        z = latents / autoencoder.config.scaling_factor + (autoencoder.config.shift_factor or 0.0)
        images = autoencoder.decode(z).sample
    return (images / 2 + 0.5).clamp(0, 1)
