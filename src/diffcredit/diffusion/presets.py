"""Architectures of the pixel and the latent family by name, as arguments of diffusers' UNet2DModel."""

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    # For a laptop's CPU, at 16 px. 0.3 M parameters.
    "tiny": {
        "block_out_channels": (16, 32, 32),
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "down_block_types": ("DownBlock2D", "DownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "UpBlock2D", "UpBlock2D"),
        "attention_head_dim": 16,
    },
    # For fleets on a GPU, at 32 px. 1.1 M parameters.
    "mini": {
        "block_out_channels": (32, 64, 64),
        "layers_per_block": 1,
        "norm_num_groups": 16,
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
        "attention_head_dim": 32,
    },
    # The same at twice the width. 4.4 M parameters.
    "light": {
        "block_out_channels": (64, 128, 128),
        "layers_per_block": 1,
        "norm_num_groups": 16,
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
        "attention_head_dim": 32,
    },
    # For one small GPU, at 32 to 64 px. 9.0 M parameters.
    "small": {
        "block_out_channels": (64, 128, 128, 128),
        "layers_per_block": 2,
        "norm_num_groups": 16,
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
        "attention_head_dim": 64,
    },
    # The DDPM of Ho et al. for CIFAR-10 and of the paper's CIFAR-20 study. 35,746,307 parameters.
    "ddpm-cifar": {
        "block_out_channels": (128, 256, 256, 256),
        "layers_per_block": 2,
        "norm_num_groups": 32,
        "norm_eps": 1e-6,
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
        "attention_head_dim": None,
        "downsample_padding": 0,
        "flip_sin_to_cos": False,
        "freq_shift": 1,
    },
    # For latents of 16 to 32 px with many channels, such as TAEF2's. 15.3 M parameters.
    "latent-small": {
        "block_out_channels": (96, 192, 192),
        "layers_per_block": 2,
        "norm_num_groups": 32,
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
        "attention_head_dim": 32,
    },
    # The U-Net of CompVis/ldm-celebahq-256 and of the paper's CelebA-HQ study. 274,056,163 parameters.
    "ldm-celebahq": {
        "block_out_channels": (224, 448, 672, 896),
        "layers_per_block": 2,
        "norm_num_groups": 32,
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
        "attention_head_dim": 32,
    },
}
