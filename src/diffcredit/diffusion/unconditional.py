"""The base class of the pixel and the latent family: a UNet2DModel, possibly pruned, saved as safetensors and JSON."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from diffcredit.diffusion import networks
from diffcredit.diffusion.noise_schedule import NoiseSchedule
from diffcredit.diffusion.presets import PRESETS
from diffcredit.diffusion.unet import UNetModel
from diffcredit.errors import UserError
from diffcredit.util.artifacts import canonical_json


class Unconditional(UNetModel):
    """A U-Net without conditions. ``config`` is that of the unpruned architecture; the widths of a pruned one follow
    from its weights."""

    schedule: ClassVar[Mapping[str, Any]]
    """The default noise schedule."""

    def __init__(
        self, network: nn.Module, config: Mapping[str, Any], noise_schedule: NoiseSchedule | None = None
    ) -> None:
        self.network = network
        self.config = dict(config)
        self.noise_schedule = noise_schedule or NoiseSchedule(self.schedule)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.config["in_channels"], self.config["sample_size"], self.config["sample_size"]

    @property
    def encoding(self) -> str:
        return ""

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(canonical_json([self.config, self.noise_schedule.config, self.encoding]).encode())
        for name, tensor in sorted(self.network.state_dict().items()):
            digest.update(f"{name}\x1f{tuple(tensor.shape)}\x1f".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def example(self) -> dict[str, Tensor]:
        return {"sample": torch.zeros(1, *self.shape), "timestep": torch.ones(1, dtype=torch.long)}

    def untrained(self, seed: int) -> Self:
        model = self.clone()
        networks.reinitialise(model.network, seed)
        return model

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        save_file(tensors, directory / "model.safetensors")
        description = {"family": self.family, "network": self.config, "schedule": self.noise_schedule.config}
        text = json.dumps(description | self.frozen_parts(), indent=2)
        (directory / "config.json").write_text(text + "\n", encoding="utf-8")

    def frozen_parts(self) -> dict[str, Any]:
        """Return fingerprints of what a saved model needs beside its network, as JSON."""
        return {}

    @classmethod
    def load(cls, directory: Path, *frozen: Any) -> Self:
        """Return the model saved in ``directory``. ``frozen`` are its parts beside the network, which are not
        trained."""
        config_file, weights_file = directory / "config.json", directory / "model.safetensors"
        for file in (config_file, weights_file):
            if not file.is_file():
                raise UserError(f"{file}: no such file; a saved model has config.json and model.safetensors")
        try:
            description = json.loads(config_file.read_text(encoding="utf-8"))
            family, schedule, config = (description[key] for key in ("family", "schedule", "network"))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{config_file}: not the description of a saved model ({error!r})") from None
        if family != cls.family:
            raise UserError(f"{config_file}: family {family!r}; accepted: {cls.family!r}")
        try:
            tensors = load_file(weights_file)
        except SafetensorError as error:
            raise UserError(f"{weights_file}: the saved weights are corrupt ({error})") from None
        try:
            noise_schedule = NoiseSchedule(schedule)
            network = networks.rebuild(config, tensors, str(weights_file))
        except (AttributeError, TypeError) as error:
            raise UserError(f"{config_file}: not the description of a saved model ({error!r})") from None
        model = cls(network, config, *frozen, noise_schedule=noise_schedule)
        for part, known in model.frozen_parts().items():
            if description.get(part) != known:
                raise UserError(f"{config_file}: made with another {part} than the one it is loaded with")
        return model


def preset_config(preset: str, channels: int, size: int, *, resolution: int) -> dict[str, Any]:
    """Return the architecture of a preset for (channels, size, size); ``resolution`` is the images', for messages."""
    if preset not in PRESETS:
        raise UserError(f"model.preset: {preset!r} is unknown; accepted: {', '.join(PRESETS)}")
    multiple = 2 ** (len(PRESETS[preset]["block_out_channels"]) - 1)
    if size % multiple:
        halved = f"halves it {multiple.bit_length() - 1} times"
        factor = resolution // size
        raise UserError(
            f"contributions.resolution: {resolution} does not fit model.preset {preset!r}, which {halved}"
            + (f" after the autoencoder's 1/{factor}" if factor > 1 else "")
            + f"; accepted: multiples of {multiple * factor}"
        )
    return {"sample_size": size, "in_channels": channels, "out_channels": channels, **PRESETS[preset]}
