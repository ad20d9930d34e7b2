"""A saved pipeline, read by diffusers and transformers alone, and sampled by an own loop over its denoiser."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from torch import Tensor, nn

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.denoisers import PIPELINES
from diffcredit.diffusion.denoisers.base import PipelineDenoiser
from diffcredit.diffusion.latent_spaces import SPACES
from diffcredit.diffusion.objectives import FlowMatching, NoiseSchedule, Objective


@dataclass(frozen=True)
class Served:
    folder: Path
    index: Mapping[str, Any]
    config: Mapping[str, Any]
    denoiser: PipelineDenoiser
    network: nn.Module
    autoencoder: Any
    texts: Any  # a pipeline of text parts alone

    @property
    def kind(self) -> Any:
        return getattr(diffusers, self.index["_class_name"])

    def objective(self, side: int) -> Objective:
        config = json.loads((self.folder / "scheduler" / "scheduler_config.json").read_text())
        if "beta_schedule" in config:
            return NoiseSchedule({**config, "clip_sample": False})
        made = diffusers.FlowMatchEulerDiscreteScheduler
        density = self.denoiser.density
        return FlowMatching(density, sigmas=lambda n: self.denoiser.sigmas(made.from_config(config), n, side))

    def conditions(self, texts: Sequence[str | None], pixels: int) -> Conditions:
        with torch.no_grad():
            each = [
                self.denoiser.nothing(self.texts, pixels)
                if text is None
                else self.denoiser.encode(self.texts, text, pixels)
                for text in texts
            ]
        return {name: torch.stack([one[name] for one in each]) for name in each[0]}

    def sample(self, texts: Sequence[str], seeds: Sequence[int], pixels: int, guidance: float, steps: int) -> Tensor:
        """Return the latents of one image for each text, from the noise of its seed."""
        channels, side = self.latents(pixels)
        noise = [torch.randn(1, channels, side, side, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        x, sampler = torch.cat(noise), self.objective(side).sampler("ddim", steps)
        with_text, without = self.conditions(texts, pixels), self.conditions([None] * len(texts), pixels)
        told = guidance if self.denoiser.embeds_guidance(self.network) else None
        with torch.no_grad():
            for k, time in enumerate(sampler.times):
                times = time.expand(len(x))
                prediction = self.denoiser.predict(self.network, x, times, with_text, told)
                if told is None and guidance != 1:
                    freely = self.denoiser.predict(self.network, x, times, without)
                    prediction = self.denoiser.guide(freely, prediction, guidance)
                x = sampler.step(k, prediction, x)
        return x

    def latents(self, pixels: int) -> tuple[int, int]:
        """Return the number of channels and the side of latents."""
        with torch.no_grad():
            z = self.encode(torch.zeros(1, 3, pixels, pixels))
        return z.shape[1], z.shape[2]

    def encode(self, x: Tensor) -> Tensor:
        if space := SPACES.get(type(self.autoencoder).__name__):
            return space.encode(self.autoencoder, x)
        shift = self.autoencoder.config.shift_factor or 0.0
        return (self.autoencoder.encode(x).latent_dist.mode() - shift) * self.autoencoder.config.scaling_factor

    def decode(self, z: Tensor) -> Tensor:
        """Return images in [0, 1]."""
        if space := SPACES.get(type(self.autoencoder).__name__):
            images = space.decode(self.autoencoder, z)
        else:
            shift = self.autoencoder.config.shift_factor or 0.0
            images = self.autoencoder.decode(z / self.autoencoder.config.scaling_factor + shift).sample
        return (images / 2 + 0.5).clamp(0, 1)


def served(folder: Path) -> Served:
    index = json.loads((folder / "model_index.json").read_text())
    module, name = PIPELINES[index["_class_name"]].split(":")
    denoiser = getattr(import_module(module), name)()
    parts = {}
    for part, accepted in denoiser.parts.items():
        kind = (index.get(part) or [None, None])[1]
        if kind is not None:
            assert kind in accepted
            parts[part] = getattr(transformers, kind).from_pretrained(folder / part)
    autoencoder = getattr(diffusers, index["vae"][1]).from_pretrained(folder / "vae").requires_grad_(False)
    return Served(
        folder,
        index,
        json.loads((folder / denoiser.component / "config.json").read_text()),
        denoiser,
        getattr(diffusers, denoiser.network).from_pretrained(folder / denoiser.component).requires_grad_(False),
        autoencoder,
        denoiser.text_pipeline(getattr(diffusers, index["_class_name"]), parts, index),
    )


def whole_pipeline(served: Served) -> Any:
    """The pipeline as its users load it, with DDIM's steps where it has a noise schedule."""
    missing = {name: None for name in served.denoiser.parts if not (served.index.get(name) or [None])[0]}
    pipeline = served.kind.from_pretrained(served.folder, **missing)
    if isinstance(served.objective(2), NoiseSchedule):
        pipeline.scheduler = diffusers.DDIMScheduler.from_config(pipeline.scheduler.config, clip_sample=False)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline
