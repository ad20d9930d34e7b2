"""Folders of tiny random text-to-image pipelines of newer architectures, as ``save_pretrained`` writes them.

Images are 16 × 16. Blocks have 4 heads of 8, and 2 blocks are of each kind.
"""

from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKLFlux2,
    DDIMScheduler,
    FlowMatchEulerDiscreteScheduler,
    Flux2KleinPipeline,
    Flux2Transformer2DModel,
    FluxPipeline,
    FluxTransformer2DModel,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    StableDiffusionXLPipeline,
)
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from .tiny_pipelines import AUTOENCODER, SIDE, STABLE_DIFFUSION_SCHEDULE, autoencoder_kl, conditional_unet
from .tiny_texts import (
    QWEN_WORDS,
    clip_encoder,
    clip_tokenizer,
    louder,
    qwen_tokenizer,
    seeded,
    t5_encoder,
    t5_tokenizer,
)

LATENT_SIDE = 8
WIDTHS = {"attention_head_dim": 8, "num_attention_heads": 4}
DYNAMIC = {"use_dynamic_shifting": True, "base_image_seq_len": 8, "max_image_seq_len": 128}
QWEN_LAYERS = 28  # FLUX.2 takes the hidden states after the 9th, the 18th and the 27th


def stable_diffusion_xl(folder: Path, seed: int = 0, *, force_zeros: bool = True, **schedule: Any) -> Path:
    unet = conditional_unet(
        seed,
        cross_attention_dim=24,
        attention_head_dim=(2, 4),
        transformer_layers_per_block=(1, 2),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=4,
        projection_class_embeddings_input_dim=6 * 4 + 10,
    )
    StableDiffusionXLPipeline(
        vae=autoencoder_kl(scaling_factor=0.13),
        text_encoder=clip_encoder(1, factor=2),
        tokenizer=clip_tokenizer(),
        text_encoder_2=clip_encoder(2, projected=10, factor=2),
        tokenizer_2=clip_tokenizer(),
        unet=unet,
        scheduler=DDIMScheduler(clip_sample=False, **(STABLE_DIFFUSION_SCHEDULE | schedule)),
        force_zeros_for_empty_prompt=force_zeros,
        add_watermarker=False,
    ).save_pretrained(folder)
    return folder


def stable_diffusion_3(folder: Path, seed: int = 0, *, version: str = "3", t5: bool = True, **schedule: Any) -> Path:
    """``version`` 3.5 normalises queries and keys, and has a second attention in the first block."""
    newer = {"qk_norm": "rms_norm", "dual_attention_layers": (0,)} if version == "3.5" else {}
    transformer = seeded(
        SD3Transformer2DModel,
        seed,
        sample_size=LATENT_SIDE,
        patch_size=2,
        in_channels=4,
        out_channels=4,
        num_layers=3,
        joint_attention_dim=32,
        caption_projection_dim=32,
        pooled_projection_dim=20,
        pos_embed_max_size=8,
        **WIDTHS,
        **newer,
    )
    StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(**({"shift": 3.0} | schedule)),
        vae=autoencoder_kl(scaling_factor=1.5, shift_factor=0.06),
        text_encoder=clip_encoder(1, projected=10, factor=2),
        tokenizer=clip_tokenizer(),
        text_encoder_2=clip_encoder(2, projected=10, factor=2),
        tokenizer_2=clip_tokenizer(),
        text_encoder_3=t5_encoder(3, width=32) if t5 else None,
        tokenizer_3=t5_tokenizer() if t5 else None,
    ).save_pretrained(folder)
    return folder


def flux(folder: Path, seed: int = 0, *, guidance_embeds: bool = True, **schedule: Any) -> Path:
    transformer = seeded(
        FluxTransformer2DModel,
        seed,
        in_channels=16,
        num_layers=2,
        num_single_layers=2,
        joint_attention_dim=32,
        pooled_projection_dim=12,
        guidance_embeds=guidance_embeds,
        axes_dims_rope=(4, 2, 2),
        **WIDTHS,
    )
    FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(**(schedule or DYNAMIC)),
        vae=autoencoder_kl(scaling_factor=0.36, shift_factor=0.12),
        text_encoder=clip_encoder(1),
        tokenizer=clip_tokenizer(),
        text_encoder_2=t5_encoder(2, width=32),
        tokenizer_2=t5_tokenizer(),
        transformer=_responsive(transformer),
    ).save_pretrained(folder)
    return folder


def flux_2_klein(folder: Path, seed: int = 0, *, is_distilled: bool = False, **schedule: Any) -> Path:
    transformer = seeded(
        Flux2Transformer2DModel,
        seed,
        in_channels=16,
        num_layers=2,
        num_single_layers=2,
        joint_attention_dim=3 * 16,
        timestep_guidance_channels=32,
        axes_dims_rope=(2, 2, 2, 2),
        guidance_embeds=False,
        **WIDTHS,
    )
    Flux2KleinPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(**(schedule or DYNAMIC)),
        vae=autoencoder_flux_2(),
        text_encoder=_qwen_3(),
        tokenizer=qwen_tokenizer(),
        transformer=_responsive(transformer),
        is_distilled=is_distilled,
    ).save_pretrained(folder)
    return folder


def autoencoder_flux_2(seed: int = 0) -> AutoencoderKLFlux2:
    model = seeded(AutoencoderKLFlux2, seed, latent_channels=4, sample_size=SIDE, **AUTOENCODER)
    draws = torch.Generator().manual_seed(seed)
    model.bn.running_mean.copy_(torch.randn(16, generator=draws) * 0.3)
    model.bn.running_var.copy_(torch.rand(16, generator=draws) + 0.2)
    return model


def _qwen_3() -> Any:
    config = Qwen3Config(
        vocab_size=QWEN_WORDS,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=QWEN_LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=512,
    )
    return louder(seeded(Qwen3ForCausalLM, 1, config=config))


def _responsive(network: nn.Module) -> Any:
    """``network`` with larger weights, so that its output follows texts; even larger ones amplify rounding."""
    return louder(network, 2)
