"""The first stage of latent diffusion: a frozen autoencoder between pixels and latents.

It is one of diffusers, or a tiny one of TAESD (Ollin Boer Bohan, MIT) in its author's layout. Those for newer latent
spaces, such as TAEF2's of 32 channels, have a pooling branch in their middle blocks, which diffusers' AutoencoderTiny
does not support. An encoder or decoder is one sequence of layers. Its file has the weights by position; the layers at
positions without weights follow from the rest.
"""

import hashlib
import json
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from diffcredit.diffusion.latent_spaces import SPACES
from diffcredit.diffusion.model import Images
from diffcredit.diffusion.pretrained import folder_of, load_pretrained, read_json, weights_fingerprint
from diffcredit.errors import UserError
from diffcredit.util.artifacts import fingerprint

KINDS = ("AutoencoderKL", "AutoencoderTiny", "VQModel", *SPACES)
BATCH = 16  # images of up to 256 × 256 encoded or decoded at a time
POOL_GROUPS = 4
LARGEST_LATENT = 3.0  # the decoder's input is limited softly to ± this


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
    """An autoencoder of diffusers (one of ``KINDS``) or of TAESD's own layout, on the device only while it is used.
    Latents are those of its :mod:`latent space <diffcredit.diffusion.latent_spaces>` or, for most, z = (E(x) − shift) ·
    scale, with scale and shift from its config; E(x) is the mean of a variational encoder, or the output of a VQ
    encoder before quantisation."""

    def __init__(self, autoencoder: nn.Module, identity: str) -> None:
        self.autoencoder: Any = autoencoder.eval().requires_grad_(False)
        self.fingerprint = identity
        self.space = SPACES.get(type(autoencoder).__name__)
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
            few = at_once(images.shape[1])
            for start in range(0, len(images), few):
                latents.append(self.latents_of(PIXELS.encode(images[start : start + few], device)))
                if on_image is not None:
                    on_image(min(start + few, len(images)))
        return torch.cat(latents).contiguous()  # as in the cached file: another layout would change rounding

    def decode(self, latents: Tensor) -> Images:
        images = []
        with self._on(latents.device), torch.no_grad():
            few = at_once(latents.shape[2] * self.factor)
            for start in range(0, len(latents), few):
                images.append(PIXELS.decode(self.images_of(latents[start : start + few])))
        return np.concatenate(images)

    def latents_of(self, x: Tensor) -> Tensor:
        """Return the latents of images in [−1, 1] (m, 3, h, w), on the autoencoder's device."""
        if self.space is not None:
            return self.space.encode(self.autoencoder, x).float()
        coded = self.autoencoder.encode(x)
        z = coded.latent_dist.mode() if hasattr(coded, "latent_dist") else coded.latents
        return (z.float() - self.shift) * self.scale

    def images_of(self, z: Tensor) -> Tensor:
        """Return images, about in [−1, 1], of latents (m, c, h/f, w/f)."""
        if self.space is not None:
            return self.space.decode(self.autoencoder, z)
        return self.autoencoder.decode(z / self.scale + self.shift).sample

    @contextmanager
    def _on(self, device: torch.device | str) -> Generator[None]:
        try:
            self.autoencoder.to(device)
            yield
        finally:
            self.autoencoder.to("cpu")


def at_once(pixels: int) -> int:
    """Return how many images of this side go through an autoencoder at once: in full resolution an image takes
    gigabytes."""
    return max(1, min(BATCH, BATCH * 256**2 // pixels**2))


@lru_cache(maxsize=4)
def first_stage(reference: str) -> FirstStage:
    """Return the autoencoder of a folder or hub id: the folder itself, one below a pipeline's (``vae``, ``vqvae``), or
    TAESD's pair of files ``*_encoder.pth`` and ``*_decoder.pth``. It is read once per process."""
    folder = folder_of(reference)
    pair = find_pair(folder)
    if pair is not None:
        autoencoder = load_taesd(*pair)
        return FirstStage(autoencoder, autoencoder.fingerprint)
    own = next((folder / name for name in ("vae", "vqvae") if (folder / name).is_dir()), folder)
    config = read_json(own / "config.json")
    kind = config.get("_class_name")
    if kind not in KINDS:
        raise UserError(f"{own / 'config.json'}: _class_name {kind!r}; accepted: {', '.join(KINDS)}")
    import diffusers

    autoencoder = load_pretrained(getattr(diffusers, kind), own)
    return FirstStage(autoencoder, fingerprint([kind, weights_fingerprint(own)]))


def has_first_stage(folder: Path) -> bool:
    """Return whether a local folder looks like one that :func:`first_stage` reads."""
    with suppress(UserError):  # it holds several
        if find_pair(folder) is not None:
            return True
    own = next((folder / name for name in ("vae", "vqvae") if (folder / name).is_dir()), folder)
    try:
        return json.loads((own / "config.json").read_text(encoding="utf-8")).get("_class_name") in KINDS
    except (OSError, ValueError, AttributeError):
        return False


class _Block(nn.Module):
    """relu(x' + conv(relu(conv(relu(conv(x')))))), with x' = x + pool(x) where there is a pooling branch."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        convolutions = [_convolution(tensors, f"conv.{index}") for index in (0, 2, 4)]
        self.conv = nn.Sequential(convolutions[0], nn.ReLU(), convolutions[1], nn.ReLU(), convolutions[2])
        self.pool: nn.Module | None = None
        if "pool.0.weight" in tensors:
            wide = tensors["pool.0.weight"].shape[0]
            norm = nn.GroupNorm(POOL_GROUPS, wide)
            self.pool = nn.Sequential(_convolution(tensors, "pool.0"), norm, nn.ReLU(), _convolution(tensors, "pool.3"))

    def forward(self, x: Tensor) -> Tensor:
        if self.pool is not None:
            x = x + self.pool(x)
        return torch.relu(x + self.conv(x))


class _SoftLimit(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x / LARGEST_LATENT) * LARGEST_LATENT


def _convolution(tensors: Mapping[str, Tensor], name: str, stride: int = 1) -> nn.Conv2d:
    wide, narrow, side, _ = tensors[f"{name}.weight" if name else "weight"].shape
    bias = f"{name}.bias" if name else "bias"
    return nn.Conv2d(narrow, wide, side, stride=stride, padding=side // 2, bias=bias in tensors)


def _layers(tensors: Mapping[str, Tensor], *, decoder: bool) -> nn.Sequential:
    by_place: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        place, _, rest = name.partition(".")
        by_place.setdefault(int(place), {})[rest] = tensor
    layers: list[nn.Module] = []
    for place in range(max(by_place) + 1):
        own = by_place.get(place)
        if own is None:  # the decoder's layers without weights: the limit, its activation, upsamplings
            layers.append(_SoftLimit() if place == 0 else nn.ReLU() if place == 2 else nn.Upsample(scale_factor=2))
        elif "conv.0.weight" in own:
            layers.append(_Block(own))
        else:
            # the encoder halves its sides in the convolutions without bias
            layers.append(_convolution(own, "", stride=1 if decoder or "bias" in own else 2))
    sequence = nn.Sequential(*layers)
    sequence.load_state_dict(dict(tensors))
    return sequence


class TAESD(nn.Module):
    """Images in [−1, 1] ↔ latents, with the interface of diffusers' autoencoders."""

    config: Mapping[str, Any] = {}

    def __init__(self, encoder: Mapping[str, Tensor], decoder: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.encoder, self.decoder = _layers(encoder, decoder=False), _layers(decoder, decoder=True)
        self.fingerprint = ""

    def encode(self, x: Tensor) -> SimpleNamespace:
        return SimpleNamespace(latents=self.encoder((x + 1) / 2))

    def decode(self, z: Tensor) -> SimpleNamespace:
        return SimpleNamespace(sample=self.decoder(z) * 2 - 1)


def find_pair(folder: Path) -> tuple[Path, Path] | None:
    """Return the encoder's and the decoder's file in ``folder``, if it has one pair."""
    pairs = [
        (encoder, encoder.with_name(encoder.name.replace("_encoder", "_decoder")))
        for encoder in sorted(folder.glob("*_encoder.pth"))
    ]
    there = [pair for pair in pairs if pair[1].is_file()]
    if len(there) > 1:
        raise UserError(f"{folder}: holds {len(there)} pairs of *_encoder.pth and *_decoder.pth; one is accepted")
    return there[0] if there else None


def load_taesd(encoder: Path, decoder: Path) -> TAESD:
    digest = hashlib.sha256()
    tensors = []
    for file in (encoder, decoder):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
        try:
            loaded = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # an untrusted file may make torch raise anything
            raise UserError(f"{file}: not readable weights ({' '.join(str(error).split())[:200]})") from None
        if not isinstance(loaded, dict) or not all(
            isinstance(tensor, Tensor) and re.match(r"\d+\.", str(name)) for name, tensor in loaded.items()
        ):
            raise UserError(f"{file}: not the weights of a tiny autoencoder; layers named by their place are expected")
        tensors.append(loaded)
    try:
        autoencoder = TAESD(*tensors)
    except (RuntimeError, KeyError, ValueError) as error:
        raise UserError(
            f"{encoder}: not the weights of a tiny autoencoder ({' '.join(str(error).split())[:200]})"
        ) from None
    autoencoder.fingerprint = digest.hexdigest()
    return autoencoder
