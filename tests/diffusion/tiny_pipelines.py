"""Folders as diffusers' ``save_pretrained`` writes them, with real models of a few thousand weights."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderTiny,
    DDPMPipeline,
    DDPMScheduler,
    LDMPipeline,
    PNDMScheduler,
    StableDiffusionPipeline,
    UNet2DConditionModel,
    UNet2DModel,
    VQModel,
)
from diffusers import DDIMScheduler as DDIM
from PIL import Image
from torch import Tensor, nn
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from diffcredit.contributions import Contributions

from .tiny import CONFIG

SIDE = 16  # of images
LATENT_SIDE = 8

STABLE_DIFFUSION_SCHEDULE = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "set_alpha_to_one": False,
    "steps_offset": 1,
}


def _seeded(make: Any, seed: int, **arguments: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(**arguments).eval()


def unet(seed: int = 0, *, channels: int = 3, size: int = SIDE, **changes: Any) -> UNet2DModel:
    """With attention, whose weights had other names in older checkpoints."""
    own = {"sample_size": size, "in_channels": channels, "out_channels": channels}
    return _seeded(UNet2DModel, seed, **(CONFIG | own | changes))


def ddpm_pipeline(folder: Path, seed: int = 0, **schedule: Any) -> Path:
    DDPMPipeline(unet(seed), DDPMScheduler(**schedule)).save_pretrained(folder)
    return folder


AUTOENCODER = {
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "block_out_channels": (8, 8),
    "norm_num_groups": 4,
}


def autoencoder_kl(seed: int = 0, **changes: Any) -> AutoencoderKL:
    return _seeded(AutoencoderKL, seed, **(AUTOENCODER | {"latent_channels": 4, "sample_size": SIDE} | changes))


def autoencoder_tiny(seed: int = 0, **changes: Any) -> AutoencoderTiny:
    config = {
        "latent_channels": 4,
        "encoder_block_out_channels": (8, 8),
        "decoder_block_out_channels": (8, 8),
        "num_encoder_blocks": (1, 2),
        "num_decoder_blocks": (2, 1),
    }
    return _seeded(AutoencoderTiny, seed, **(config | changes))


def vq_model(seed: int = 0, **changes: Any) -> VQModel:
    config = AUTOENCODER | {"latent_channels": 3, "num_vq_embeddings": 32, "scaling_factor": 0.6}
    model = _seeded(VQModel, seed, **(config | changes))
    with torch.no_grad():  # codes far enough apart that the latents of different images fall on different ones
        model.quantize.embedding.weight.mul_(32)
    return model


def ldm_pipeline(folder: Path, seed: int = 0) -> Path:
    scheduler = DDIM(beta_start=0.0015, beta_end=0.0195, beta_schedule="scaled_linear", clip_sample=False)
    network = unet(seed, size=LATENT_SIDE)
    LDMPipeline(vqvae=vq_model(), unet=network, scheduler=scheduler).save_pretrained(folder)
    return folder


def conditional_unet(seed: int = 0, **changes: Any) -> UNet2DConditionModel:
    config = {
        "sample_size": LATENT_SIDE,
        "block_out_channels": (8, 16),
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
        "cross_attention_dim": 12,
        "attention_head_dim": 4,
    }
    return _seeded(UNet2DConditionModel, seed, **(config | changes))


def stable_diffusion(folder: Path, seed: int = 0, **schedule: Any) -> Path:
    """A StableDiffusionPipeline without a safety checker, for images of 16 × 16; its tokenizer knows letters alone."""
    letters = [chr(code) for code in range(33, 127)]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {word: index for index, word in enumerate(words)}
    folder.mkdir(parents=True)
    vocabulary_file, merges_file = folder / "vocab.json", folder / "merges.txt"
    vocabulary_file.write_text(json.dumps(vocabulary))
    merges_file.write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer(str(vocabulary_file), str(merges_file), model_max_length=16)
    vocabulary_file.unlink()
    merges_file.unlink()
    text_config = CLIPTextConfig(
        vocab_size=len(vocabulary),
        hidden_size=12,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
        bos_token_id=vocabulary["<|startoftext|>"],
        eos_token_id=vocabulary["<|endoftext|>"],
        pad_token_id=1,
    )
    text_encoder = _seeded(CLIPTextModel, seed, config=text_config)
    with torch.no_grad():  # far from the tiny weights of construction, so that texts matter
        for parameter in text_encoder.parameters():
            if parameter.ndim == 2:
                parameter.mul_(20)
    StableDiffusionPipeline(
        vae=autoencoder_kl(),
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        unet=conditional_unet(seed),
        scheduler=PNDMScheduler(skip_prk_steps=True, **(STABLE_DIFFUSION_SCHEDULE | schedule)),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)
    return folder


def described(folder: Path, kind: str, file: str = "model_index.json", **more: Any) -> Path:
    """A folder with nothing but the description of a model of another ``kind``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(json.dumps({"_class_name": kind, **more}))
    return folder


def taesd_layout(autoencoder: AutoencoderTiny) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The encoder's and the decoder's weights as TAESD's author distributes them: by a layer's place, where the
    decoder's list starts with its soft limit."""
    encoder, decoder = autoencoder.encoder.layers, autoencoder.decoder.layers
    return _by_place(encoder, 0), _by_place(decoder, 1)


def _by_place(layers: nn.Module, first: int) -> dict[str, Tensor]:
    tensors = {}
    for name, tensor in layers.state_dict().items():
        place, _, rest = name.partition(".")
        tensors[f"{int(place) + first}.{rest}"] = tensor.clone()
    return tensors


def taesd_pair(folder: Path, autoencoder: AutoencoderTiny) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part, tensors in zip(("encoder", "decoder"), taesd_layout(autoencoder), strict=True):
        torch.save(tensors, folder / f"tae_{part}.pth")
    return folder


def pictures(count: int, seed: int = 0, side: int = SIDE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def contributions(side: int = SIDE, captions: Sequence[str] | None = None, seed: int = 0) -> Contributions:
    """Of three people, two images each."""
    return Contributions(
        images=pictures(6, seed, side),
        owner=np.array([0, 0, 1, 1, 2, 2]),
        contributors=("ann", "bob", "cem"),
        names=tuple("123456"),
        heldout=pictures(0, side=side),
        captions=None if captions is None else tuple(captions),
    )


STUDY: dict[str, Any] = {
    "contributions": {"path": "images", "resolution": SIDE, "holdout": 0.2},
    "retraining": {"method": "fine_tune", "steps": 1},
    "properties": [{"name": "heldout_loss", "time_steps": 2}, {"name": "colourfulness"}],
    "stop": {"evaluations": 3},
}
"""Changes to the tiny study, which any of these models can follow."""


def captioned_folder(folder: Path, captions: dict[str, list[str]]) -> Path:
    """An ``imagefolder``: each contributor's images with their captions."""
    folder.mkdir(parents=True)
    rows = []
    for contributor, texts in captions.items():
        for index, text in enumerate(texts):
            name = f"{contributor}-{index}.png"
            Image.fromarray(pictures(1, seed=len(rows))[0]).save(folder / name)
            rows.append({"file_name": name, "contributor": contributor, "text": text})
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
