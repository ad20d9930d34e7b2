"""Folders of modern pipelines as diffusers' ``save_pretrained`` writes them, of a few thousand weights, for images of
32 × 32 and latents of 8 × 8."""

from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderDC,
    AutoencoderKL,
    AutoencoderKLQwenImage,
    DDIMScheduler,
    DiTPipeline,
    DiTTransformer2DModel,
    FlowMatchEulerDiscreteScheduler,
    PixArtSigmaPipeline,
    PixArtTransformer2DModel,
    QwenImagePipeline,
    QwenImageTransformer2DModel,
    SanaPipeline,
    SanaTransformer2DModel,
    ZImagePipeline,
    ZImageTransformer2DModel,
)
from torch import nn

from . import tiny_texts as texts
from . import tiny_texts_b as more_texts
from .tiny_texts import louder, seeded

SIDE, LATENT_SIDE = 32, 8
HEADS = {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2}
# With less noise than usual: DDIM divides by √ᾱ, which would make an untrained network's latents grow to hundreds.
SCHEDULE = {"beta_end": 0.002, "clip_sample": False, "set_alpha_to_one": False, "steps_offset": 1}
DYNAMIC = {
    "use_dynamic_shifting": True,
    "base_shift": 0.5,
    "max_shift": 0.9,
    "max_image_seq_len": 8192,
    "shift_terminal": 0.02,
}


def varied(network: nn.Module, seed: int = 7) -> Any:
    """``network`` with each weight as different from the others as trained ones: those that start at zero or one are
    drawn too, so that an error in any place shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.std() < 1e-6 or parameter.ndim == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
    return network


def qwen_autoencoder(seed: int = 0) -> AutoencoderKLQwenImage:
    autoencoder = seeded(
        AutoencoderKLQwenImage,
        seed,
        base_dim=8,
        z_dim=4,
        dim_mult=[1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True],
        latents_mean=[0.1, -0.2, 0.3, -0.4],
        latents_std=[0.5, 0.8, 1.1, 1.4],
    )
    with torch.no_grad():  # images use more of the range
        autoencoder.decoder.conv_out.weight.mul_(8)
    return autoencoder


def qwen_image(folder: Path, seed: int = 0, **schedule: Any) -> Path:
    network = seeded(
        QwenImageTransformer2DModel,
        seed,
        in_channels=16,
        out_channels=4,
        joint_attention_dim=16,
        axes_dims_rope=(2, 2, 4),
        **HEADS,
    )
    QwenImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(**(schedule or DYNAMIC)),
        vae=qwen_autoencoder(),
        text_encoder=more_texts.qwen_vl_encoder(),
        tokenizer=texts.qwen_tokenizer(),
        transformer=varied(louder(network, 3)),
    ).save_pretrained(folder)
    return folder


def autoencoder_kl(seed: int = 0, **changes: Any) -> AutoencoderKL:
    config = {
        "down_block_types": ("DownEncoderBlock2D",) * 3,
        "up_block_types": ("UpDecoderBlock2D",) * 3,
        "block_out_channels": (8, 8, 8),
        "norm_num_groups": 4,
        "latent_channels": 4,
        "sample_size": SIDE,
    }
    return seeded(AutoencoderKL, seed, **(config | changes))


def z_image(folder: Path, seed: int = 0, **schedule: Any) -> Path:
    network = seeded(
        ZImageTransformer2DModel,
        seed,
        in_channels=4,
        dim=16,
        n_layers=2,
        n_refiner_layers=2,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=16,
        axes_dims=[2, 2, 4],
        axes_lens=[1024, 64, 64],
    )
    ZImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(**(schedule or {"shift": 6.0})),
        vae=autoencoder_kl(scaling_factor=0.36, shift_factor=0.12),
        text_encoder=more_texts.qwen3_encoder(),
        tokenizer=texts.qwen_tokenizer(),
        transformer=varied(network),
    ).save_pretrained(folder)
    return folder


def dc_autoencoder(seed: int = 0) -> AutoencoderDC:
    blocks: dict[str, Any] = {
        f"{part}_{name}": value
        for part in ("encoder", "decoder")
        for name, value in {
            "block_out_channels": (8, 8, 16),
            "layers_per_block": (1, 1, 1),
            "qkv_multiscales": ((), (), (3,)),
            "block_types": ("ResBlock", "ResBlock", "EfficientViTBlock"),
        }.items()
    }
    return seeded(AutoencoderDC, seed, latent_channels=4, attention_head_dim=8, scaling_factor=0.4, **blocks)


def sana(folder: Path, seed: int = 0, **schedule: Any) -> Path:
    network = seeded(
        SanaTransformer2DModel,
        seed,
        in_channels=4,
        out_channels=4,
        num_cross_attention_heads=2,
        cross_attention_head_dim=8,
        cross_attention_dim=16,
        caption_channels=16,
        sample_size=LATENT_SIDE,
        timestep_scale=0.5,
        **HEADS,
    )
    SanaPipeline(
        tokenizer=more_texts.gemma_tokenizer(),
        text_encoder=more_texts.gemma_encoder(),
        vae=dc_autoencoder(),
        transformer=varied(network),
        scheduler=FlowMatchEulerDiscreteScheduler(**(schedule or {"shift": 3.0})),
    ).save_pretrained(folder)
    return folder


def pixart_sigma(folder: Path, seed: int = 0, **schedule: Any) -> Path:
    network = seeded(
        PixArtTransformer2DModel,
        seed,
        in_channels=4,
        out_channels=8,
        cross_attention_dim=16,
        caption_channels=16,
        sample_size=LATENT_SIDE,
        norm_num_groups=4,
        **HEADS,
    )
    PixArtSigmaPipeline(
        tokenizer=texts.t5_tokenizer(length=300),
        text_encoder=texts.t5_encoder(),
        vae=autoencoder_kl(),
        transformer=varied(louder(network, 2)),
        scheduler=DDIMScheduler(**(SCHEDULE | schedule)),
    ).save_pretrained(folder)
    return folder


def dit_network(seed: int = 0, **changes: Any) -> DiTTransformer2DModel:
    config = {"in_channels": 4, "sample_size": LATENT_SIDE, "norm_num_groups": 4, "num_embeds_ada_norm": 5, **HEADS}
    return varied(seeded(DiTTransformer2DModel, seed, **(config | changes)))


def dit(folder: Path, seed: int = 0, **schedule: Any) -> Path:
    """Of 1,000 classes: the pipeline takes number 1,000 as the null class."""
    DiTPipeline(
        transformer=dit_network(seed, out_channels=8, num_embeds_ada_norm=1000),
        vae=autoencoder_kl(),
        scheduler=DDIMScheduler(**(SCHEDULE | schedule)),
    ).save_pretrained(folder)
    return folder
