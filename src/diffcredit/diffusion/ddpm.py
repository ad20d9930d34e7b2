"""The pixel DDPM: a U-Net of diffusers on images in [−1, 1], ε-prediction, DDIM sampling."""

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from diffcredit.artifacts import canonical_json
from diffcredit.diffusion import networks
from diffcredit.diffusion.presets import PRESETS
from diffcredit.diffusion.protocol import Batch, Images
from diffcredit.errors import DiffcreditError, UserError

TIME_STEPS = 1000
SCHEDULE = {"num_train_timesteps": TIME_STEPS, "beta_start": 1e-4, "beta_end": 0.02, "beta_schedule": "linear"}


class DDPM:
    """ε-prediction in pixel space (Ho et al. 2020) with deterministic DDIM sampling (Song et al. 2021, η = 0)."""

    family = "ddpm"

    network: nn.Module

    def __init__(self, network: nn.Module, config: Mapping[str, Any]) -> None:
        self.network = network
        self.config = dict(config)  # of the unpruned architecture
        self.scheduler = DDIMScheduler(**SCHEDULE, clip_sample=True)
        self.time_steps = TIME_STEPS

    @classmethod
    def create(cls, preset: str, resolution: int, seed: int) -> Self:
        """An untrained model of a preset's architecture for square RGB images."""
        if preset not in PRESETS:
            raise UserError(f"model.preset: {preset!r} is unknown; accepted: {', '.join(PRESETS)}")
        multiple = 2 ** (len(PRESETS[preset]["block_out_channels"]) - 1)
        if resolution % multiple:
            raise UserError(
                f"contributions.resolution: {resolution} does not fit model.preset {preset!r}, "
                f"which halves it {multiple.bit_length() - 1} times; accepted: multiples of {multiple}"
            )
        config = {"sample_size": resolution, "in_channels": 3, "out_channels": 3, **PRESETS[preset]}
        return cls(networks.build(config, seed), config)

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(canonical_json(self.config).encode())
        for name, tensor in sorted(self.network.state_dict().items()):
            digest.update(f"{name}\x1f{tuple(tensor.shape)}\x1f".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def example(self) -> dict[str, Tensor]:
        size = self.config["sample_size"]
        return {"sample": torch.zeros(1, 3, size, size), "timestep": torch.ones(1, dtype=torch.long)}

    def encode(self, images: Images, captions: Sequence[str] | None = None) -> Batch:
        """uint8 (m, h, w, 3) → [−1, 1] (m, 3, h, w); captions do not concern an unconditional model."""
        x = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 127.5 - 1.0
        x = x.contiguous().to(self.device)
        return Batch(x, x.flip(-1), torch.arange(len(x)))

    def predict(self, x_t: Tensor, t: Tensor, condition: Tensor | None = None) -> Tensor:
        return self.network(x_t, t).sample

    def loss(self, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
        x_t = self.scheduler.add_noise(batch.x, noise, cast(torch.IntTensor, t))  # √ᾱ_t x + √(1 − ᾱ_t) noise
        return (self.predict(x_t, t, batch.condition) - noise).square().mean(dim=(1, 2, 3))

    @torch.no_grad()
    def sample(self, seeds: Sequence[int], steps: int, batch_size: int = 256) -> Images:
        self.network.eval()
        self.scheduler.set_timesteps(steps)
        batches = [self._sample(seeds[i : i + batch_size]) for i in range(0, len(seeds), batch_size)]
        return np.concatenate(batches)

    def _sample(self, seeds: Sequence[int]) -> Images:
        size = self.config["sample_size"]
        # one CPU generator per image: its noise depends on its seed alone, whatever the batch and the device
        noises = [torch.randn(3, size, size, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        x = torch.stack(noises).to(self.device)
        for t in self.scheduler.timesteps:
            noise = self.predict(x, t.expand(len(x)).to(x.device))
            x = self.scheduler.step(noise, t, x, eta=0.0, return_dict=False)[0]
        if not torch.isfinite(x).all():
            raise DiffcreditError("the model's images are not finite numbers; a lower learning rate usually helps")
        pixels = ((x.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
        return pixels.permute(0, 2, 3, 1).cpu().numpy()

    def untrained(self, seed: int) -> Self:
        model = self.clone()
        networks.reinitialise(model.network, seed)
        return model

    def clone(self) -> Self:
        return type(self)(copy.deepcopy(self.network), self.config)

    def to(self, device: torch.device | str) -> Self:
        self.network.to(device)
        return self

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        save_file(tensors, directory / "model.safetensors")
        description = {"family": self.family, "network": self.config, "schedule": SCHEDULE}
        (directory / "config.json").write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: Path) -> Self:
        config_file, weights_file = directory / "config.json", directory / "model.safetensors"
        for file in (config_file, weights_file):
            if not file.is_file():
                raise UserError(f"{file}: no such file; a saved model has config.json and model.safetensors")
        try:
            description = json.loads(config_file.read_text(encoding="utf-8"))
            family, schedule, config = (description[key] for key in ("family", "schedule", "network"))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{config_file}: not the description of a saved model ({error!r})") from None
        for key, value, accepted in (("family", family, cls.family), ("schedule", schedule, SCHEDULE)):
            if value != accepted:
                raise UserError(f"{config_file}: {key} {value!r}; accepted: {accepted!r}")
        try:
            tensors = load_file(weights_file)
        except SafetensorError as error:
            raise UserError(f"{weights_file}: the saved weights are corrupt ({error})") from None
        return cls(networks.rebuild(config, tensors, str(weights_file)), config)
