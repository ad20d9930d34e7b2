"""Pixel DDPM and latent diffusion: a U-Net, possibly pruned, on images in [−1, 1] or a frozen autoencoder's latents."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from safetensors.torch import save_file
from torch import nn

from diffcredit.contributions import Contributions
from diffcredit.diffusion import networks
from diffcredit.diffusion.first_stage import PIXELS, FirstStage, Pixels, first_stage
from diffcredit.diffusion.model import Family, tensors_fingerprint
from diffcredit.diffusion.noise_schedule import NoiseSchedule
from diffcredit.diffusion.pretrained import PretrainedUNet, check_undamaged, read_description, read_json, read_weights
from diffcredit.diffusion.unet import UNetModel
from diffcredit.errors import UserError, located
from diffcredit.util.artifacts import canonical_json


class DDPM(UNetModel):
    """ε-prediction without conditions (Ho et al. 2020). ``config`` is that of the unpruned architecture; the widths of
    a pruned one follow from its weights."""

    family = "ddpm"
    schedule: ClassVar[Mapping[str, Any]] = {
        "num_train_timesteps": 1000,
        "beta_start": 1e-4,
        "beta_end": 0.02,
        "beta_schedule": "linear",
        "clip_sample": True,
    }
    """The default noise schedule."""

    def __init__(
        self,
        network: nn.Module,
        config: Mapping[str, Any],
        noise_schedule: NoiseSchedule | None = None,
        stage: FirstStage | Pixels = PIXELS,
    ) -> None:
        self.network, self.config, self.stage = network, dict(config), stage
        self.noise_schedule = noise_schedule or NoiseSchedule(self.schedule)
        self.size = self.config["sample_size"]

    @classmethod
    def create(cls, preset: str, resolution: int, seed: int, stage: FirstStage | Pixels = PIXELS) -> Self:
        """Return an untrained model of a preset's architecture for square RGB images."""
        size = stage.size_of(resolution)
        config = networks.preset_config(preset, stage.channels, size, resolution=resolution)
        return cls(networks.build(config, seed), config, stage=stage)

    @property
    def fingerprint(self) -> str:
        description = canonical_json([self.config, self.noise_schedule.config, self.encoding])
        return tensors_fingerprint(self.network.state_dict(), description)

    def untrained(self, seed: int) -> Self:
        model = self.clone()
        networks.reinitialise(model.network, seed)
        return model

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        save_file(tensors, directory / "model.safetensors")
        description = {"family": self.family, "network": self.config, "schedule": self.noise_schedule.config}
        description["fingerprint"] = self.fingerprint
        if self.encoding:
            description["autoencoder"] = self.encoding
        (directory / "config.json").write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: Path, stage: FirstStage | Pixels = PIXELS) -> Self:
        """Return the model saved in ``directory``, whose inputs are those of ``stage``."""
        config_file, weights_file = directory / "config.json", directory / "model.safetensors"
        schedule, config = read_description(directory, cls.family, "schedule", "network")
        tensors = read_weights(weights_file)
        try:
            network = networks.rebuild(config, tensors, str(weights_file))
            with located(config_file):
                model = cls(network, config, NoiseSchedule(schedule), stage)
        except (AttributeError, LookupError, TypeError, ValueError, RuntimeError, ArithmeticError) as error:
            raise UserError(f"{config_file}: not the description of a saved model ({error!r})") from None
        if read_json(config_file).get("autoencoder", "") != model.encoding:
            raise UserError(f"{config_file}: made with another autoencoder than the one it is loaded with")
        check_undamaged(directory, model.fingerprint)
        return model


class LatentDiffusion(DDPM):
    """ε-prediction in the latent space of ``stage`` (Rombach et al. 2022)."""

    family = "latent"
    schedule: ClassVar = {
        **DDPM.schedule,
        "beta_start": 0.0015,
        "beta_end": 0.0195,
        "beta_schedule": "scaled_linear",
        "clip_sample": False,
    }


@dataclass(frozen=True)
class PixelFamily(Family):
    """``model: {family: ddpm}``: the architecture of a ``preset``, or a ``pretrained`` U-Net of diffusers
    (a folder or hub id that ``from_pretrained`` reads), which is then the base model without further training."""

    preset: str | None = None
    pretrained: str | None = None

    nobody: ClassVar[str] = "the untrained network of the same architecture"
    model: ClassVar[type[DDPM]] = DDPM

    def __post_init__(self) -> None:
        if (self.preset is None) == (self.pretrained is None):
            raise ValueError("exactly one of preset and pretrained is expected")

    @property
    def trained(self) -> bool:
        return self.pretrained is not None

    @property
    def stage(self) -> FirstStage | Pixels:
        return PIXELS

    def identity(self) -> dict[str, Any]:
        if self.pretrained is None:
            return {"preset": self.preset}
        return {"pretrained": PretrainedUNet.find(self.pretrained).fingerprint}

    def start(self, contributions: Contributions, seed: int) -> DDPM:
        resolution, stage = contributions.images.shape[1], self.stage
        if self.preset is not None:
            return self.model.create(self.preset, resolution, seed, stage)
        unet = PretrainedUNet.find(str(self.pretrained))
        network, config = unet.load(channels=stage.channels, size=stage.size_of(resolution), resolution=resolution)
        return self.model(network, config, NoiseSchedule({**self.model.schedule, **(unet.scheduler or {})}), stage)

    def load(self, directory: Path) -> DDPM:
        return self.model.load(directory, self.stage)


@dataclass(frozen=True)
class LatentFamily(PixelFamily):
    """``model: {family: latent}``, with a ``preset`` or a ``pretrained`` U-Net. ``autoencoder`` is a folder or hub id;
    a pretrained pipeline may have its own."""

    autoencoder: str | None = None

    model: ClassVar[type[DDPM]] = LatentDiffusion

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preset is not None and self.autoencoder is None:
            raise ValueError("autoencoder is missing: a folder or hub id of AutoencoderKL, AutoencoderTiny or VQModel")

    @property
    def stage(self) -> FirstStage:
        return first_stage(str(self.autoencoder or self.pretrained))

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"autoencoder": self.stage.fingerprint}
