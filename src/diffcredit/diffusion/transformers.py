"""Diffusion transformers: named architectures, built fresh."""

from typing import Any

import diffusers
import torch
from torch import nn

from diffcredit.errors import UserError

DIT, MMDIT = "DiTTransformer2DModel", "SD3Transformer2DModel"


def _dit(heads: int, width: int, layers: int) -> tuple[str, dict[str, Any]]:
    """Return a DiT (Peebles and Xie 2023) with so many heads, each of ``width``."""
    return DIT, {
        "num_attention_heads": heads,
        "attention_head_dim": width,
        "num_layers": layers,
        "patch_size": 2,
        "norm_type": "ada_norm_zero",
        "activation_fn": "gelu-approximate",
        "norm_elementwise_affine": False,
    }


def _mmdit(heads: int, width: int, layers: int) -> tuple[str, dict[str, Any]]:
    """Return a transformer of Stable Diffusion 3's kind (Esser et al. 2024): images and texts in joint attention."""
    return MMDIT, {
        "num_attention_heads": heads,
        "attention_head_dim": width,
        "num_layers": layers,
        "patch_size": 2,
        "caption_projection_dim": heads * width,
        "qk_norm": "rms_norm",
    }


PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    # For a laptop's CPU, at 16 px. 0.4 M parameters.
    "dit-tiny": _dit(4, 16, 4),
    # For one GPU, at 32 px or on latents. 10.7 M parameters.
    "dit-small": _dit(8, 32, 8),
    # The authors' DiT-S/2, where every block has its own embedding of time and class. 35 M parameters.
    "dit-s": _dit(6, 64, 12),
    # For a laptop's CPU.
    "mmdit-tiny": _mmdit(4, 16, 4),
    # For one GPU, on latents.
    "mmdit-small": _mmdit(6, 64, 8),
}


def preset_config(
    preset: str, channels: int, size: int, *, classes: int, text: dict[str, int] | None, resolution: int
) -> tuple[str, dict[str, Any]]:
    """Return the class and the architecture of a preset for (channels, size, size), with ``classes`` class labels or,
    given ``text``, the widths of a caption's hidden and pooled states; ``resolution`` is the images', for messages."""
    kind, config = PRESETS[preset]
    patch = config["patch_size"]
    if size % patch:
        factor = resolution // size
        raise UserError(
            f"contributions.resolution: {resolution} does not fit model.preset {preset!r}, whose patches have "
            f"{patch * factor} pixels; accepted: multiples of {patch * factor}"
        )
    if kind == MMDIT and text is None:
        raise UserError(f"model.preset: {preset!r} follows captions; model.conditions: captions is needed")
    if kind == DIT and text is not None:
        others = ", ".join(presets_of(MMDIT))
        raise UserError(f"model.preset: {preset!r} follows labels, not captions; accepted with captions: {others}")
    own: dict[str, Any] = {"sample_size": size, "in_channels": channels, "out_channels": channels}
    if kind == DIT:
        own["num_embeds_ada_norm"] = max(1, classes)
    elif text is not None:
        own |= {"joint_attention_dim": text["hidden"], "pooled_projection_dim": text["pooled"]}
        own |= {"pos_embed_max_size": max(size // patch, 16)}
    return kind, config | own


def presets_of(kind: str) -> list[str]:
    """Return the names of the architectures of diffusers' class ``kind``."""
    return [name for name, (other, _) in PRESETS.items() if other == kind]


def build(kind: str, config: dict[str, Any], seed: int) -> nn.Module:
    """Return a freshly initialised network of diffusers' class ``kind``, with the same weights for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return getattr(diffusers, kind)(**config).eval()
