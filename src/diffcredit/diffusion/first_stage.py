"""The first stage of latent diffusion: a frozen autoencoder between pixels and latents."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from diffcredit.diffusion import taesd
from diffcredit.diffusion.model import Images
from diffcredit.diffusion.pretrained import folder_of, load_pretrained, read_json, weights_fingerprint
from diffcredit.errors import UserError
from diffcredit.util.artifacts import fingerprint

KINDS = ("AutoencoderKL", "AutoencoderTiny", "VQModel")
BATCH = 16  # images encoded or decoded at a time


class Pixels:
    """The inputs of models without an autoencoder: images in [−1, 1]."""

    channels, factor, fingerprint = 3, 1, ""

    def size_of(self, resolution: int) -> int:
        return resolution

    def encode(
        self, images: Images, device: torch.device | str, on_image: Callable[[int], None] | None = None
    ) -> Tensor:
        """uint8 (m, h, w, 3) → [−1, 1] (m, 3, h, w)."""
        x = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 127.5 - 1.0
        return x.contiguous().to(device)

    def decode(self, x: Tensor) -> Images:
        """[−1, 1] (m, 3, h, w), clipped → uint8 (m, h, w, 3)."""
        pixels = ((x.float().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
        return pixels.permute(0, 2, 3, 1).cpu().numpy()


PIXELS = Pixels()


class FirstStage:
    """An autoencoder of diffusers (``AutoencoderKL``, ``AutoencoderTiny``, ``VQModel``) or of TAESD's own layout, on
    the device only while it is used. Latents are z = (E(x) − shift) · scale, with scale and shift from its config; E(x)
    is the mean of a variational encoder, or the output of a VQ encoder before quantisation."""

    def __init__(self, autoencoder: nn.Module, identity: str) -> None:
        self.autoencoder: Any = autoencoder.eval().requires_grad_(False)
        self.fingerprint = identity
        config: Any = autoencoder.config
        self.scale = float(config.get("scaling_factor") or 1.0)
        self.shift = float(config.get("shift_factor") or 0.0)
        latent = self.encode(np.zeros((1, 64, 64, 3), np.uint8), "cpu")
        self.channels, self.factor = latent.shape[1], 64 // latent.shape[2]

    def size_of(self, resolution: int) -> int:
        """Return the side of the latents of square images."""
        if resolution % self.factor:
            raise UserError(
                f"contributions.resolution: {resolution}; the autoencoder takes multiples of {self.factor} pixels"
            )
        return resolution // self.factor

    def encode(
        self, images: Images, device: torch.device | str, on_image: Callable[[int], None] | None = None
    ) -> Tensor:
        """uint8 (m, h, w, 3) → latents (m, c, h/f, w/f) on ``device``; ``on_image(done)`` reports progress."""
        latents = []
        with self._on(device), torch.no_grad():
            for start in range(0, len(images), BATCH):
                coded = self.autoencoder.encode(PIXELS.encode(images[start : start + BATCH], device))
                z = coded.latent_dist.mode() if hasattr(coded, "latent_dist") else coded.latents
                latents.append((z.float() - self.shift) * self.scale)
                if on_image is not None:
                    on_image(min(start + BATCH, len(images)))
        return torch.cat(latents).contiguous()  # as in the cached file: another layout would change rounding

    def decode(self, latents: Tensor) -> Images:
        images = []
        with self._on(latents.device), torch.no_grad():
            for start in range(0, len(latents), BATCH):
                z = latents[start : start + BATCH] / self.scale + self.shift
                images.append(PIXELS.decode(self.autoencoder.decode(z).sample))
        return np.concatenate(images)

    @contextmanager
    def _on(self, device: torch.device | str) -> Generator[None]:
        try:
            self.autoencoder.to(device)
            yield
        finally:
            self.autoencoder.to("cpu")


@lru_cache(maxsize=4)
def first_stage(reference: str) -> FirstStage:
    """Return the autoencoder of a folder or hub id: the folder itself, one below a pipeline's (``vae``, ``vqvae``), or
    TAESD's pair of files ``*_encoder.pth`` and ``*_decoder.pth``. It is read once per process."""
    folder = folder_of(reference)
    pair = taesd.find_pair(folder)
    if pair is not None:
        autoencoder = taesd.load(*pair)
        return FirstStage(autoencoder, autoencoder.fingerprint)
    own = next((folder / name for name in ("vae", "vqvae") if (folder / name).is_dir()), folder)
    config = read_json(own / "config.json")
    kind = config.get("_class_name")
    if kind not in KINDS:
        raise UserError(f"{own / 'config.json'}: _class_name {kind!r}; accepted: {', '.join(KINDS)}")
    import diffusers

    autoencoder = load_pretrained(getattr(diffusers, kind), own)
    return FirstStage(autoencoder, fingerprint([kind, weights_fingerprint(own)]))
