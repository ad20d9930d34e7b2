"""Transformers of every class that can be pruned, tiny and with random weights, and inputs for them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from diffcredit.diffusion import networks

HEADS, SIZE = 4, 8
WIDTH = HEADS * SIZE
SIDE, TEXT, TOKENS = 8, 12, 5

CONFIGS: dict[str, dict[str, Any]] = {
    "DiTTransformer2DModel": {
        "sample_size": SIDE,
        "num_attention_heads": HEADS,
        "attention_head_dim": SIZE,
        "num_layers": 4,
        "num_embeds_ada_norm": 10,
        "norm_num_groups": 4,
    },
    "SD3Transformer2DModel": {
        "sample_size": SIDE,
        "in_channels": 4,
        "out_channels": 4,
        "num_layers": 4,
        "attention_head_dim": SIZE,
        "num_attention_heads": HEADS,
        "joint_attention_dim": TEXT,
        "caption_projection_dim": WIDTH,
        "pooled_projection_dim": TEXT,
        "pos_embed_max_size": 6,
        "dual_attention_layers": (0, 2),
        "qk_norm": "rms_norm",
    },
    "FluxTransformer2DModel": {
        "in_channels": 16,
        "num_layers": 2,
        "num_single_layers": 3,
        "attention_head_dim": SIZE,
        "num_attention_heads": HEADS,
        "joint_attention_dim": TEXT,
        "pooled_projection_dim": TEXT,
        "axes_dims_rope": (2, 2, 4),
    },
    "Flux2Transformer2DModel": {
        "in_channels": 16,
        "num_layers": 2,
        "num_single_layers": 3,
        "attention_head_dim": SIZE,
        "num_attention_heads": HEADS,
        "joint_attention_dim": TEXT,
        "timestep_guidance_channels": 16,
        "axes_dims_rope": (2, 2, 2, 2),
        "guidance_embeds": False,
    },
    "QwenImageTransformer2DModel": {
        "in_channels": 16,
        "out_channels": 4,
        "num_layers": 3,
        "attention_head_dim": SIZE,
        "num_attention_heads": HEADS,
        "joint_attention_dim": TEXT,
        "axes_dims_rope": (2, 2, 4),
    },
    "ZImageTransformer2DModel": {
        "in_channels": 4,
        "dim": WIDTH,
        "n_layers": 3,
        "n_refiner_layers": 1,
        "n_heads": HEADS,
        "n_kv_heads": HEADS,
        "cap_feat_dim": TEXT,
        "axes_dims": [2, 2, 4],
        "axes_lens": [64, 16, 16],
    },
    "SanaTransformer2DModel": {
        "sample_size": SIDE,
        "in_channels": 4,
        "out_channels": 4,
        "num_attention_heads": HEADS,
        "attention_head_dim": SIZE,
        "num_layers": 3,
        "num_cross_attention_heads": 2,
        "cross_attention_head_dim": 16,
        "cross_attention_dim": WIDTH,
        "caption_channels": TEXT,
    },
    "PixArtTransformer2DModel": {
        "sample_size": SIDE,
        "num_attention_heads": HEADS,
        "attention_head_dim": SIZE,
        "num_layers": 3,
        "cross_attention_dim": WIDTH,
        "caption_channels": TEXT,
        "norm_num_groups": 4,
    },
}
KINDS = tuple(CONFIGS)


def build(kind: str, seed: int = 0, **changes: Any) -> Any:
    """A network whose weights are all different: constant ones are moved a little."""
    network = networks.build(CONFIGS[kind] | changes, seed, kind)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return network


def call(network: nn.Module, seed: int = 0) -> Tensor:
    """The output for two images, each with its own text or label and time, in the network's precision."""
    generator = torch.Generator().manual_seed(seed)
    kind, dtype = type(network).__name__, next(network.parameters()).dtype

    def noise(*shape: int) -> Tensor:
        return torch.randn(2, *shape, generator=generator).to(dtype)

    return CALLS[kind](network, noise)


Noise = Callable[..., Tensor]
TIME, STEP = torch.tensor([0.3, 0.7]), torch.tensor([300, 700])


def _dit(network: Any, noise: Noise) -> Tensor:
    return network(noise(4, SIDE, SIDE), timestep=STEP, class_labels=torch.tensor([3, 7])).sample


def _sd3(network: Any, noise: Noise) -> Tensor:
    text = {"encoder_hidden_states": noise(TOKENS, TEXT), "pooled_projections": noise(TEXT)}
    return network(noise(4, SIDE, SIDE), timestep=STEP, **text).sample


def _flux(network: Any, noise: Noise) -> Tensor:
    text = {"encoder_hidden_states": noise(TOKENS, TEXT), "pooled_projections": noise(TEXT)}
    places = torch.cartesian_prod(torch.zeros(1), torch.arange(4.0), torch.arange(4.0))
    return network(noise(16, 16), timestep=TIME, img_ids=places, txt_ids=torch.zeros(TOKENS, 3), **text).sample


def _flux_2(network: Any, noise: Noise) -> Tensor:
    places = torch.cartesian_prod(torch.zeros(1), torch.arange(4.0), torch.arange(4.0), torch.zeros(1))
    words = torch.cartesian_prod(torch.zeros(1), torch.zeros(1), torch.zeros(1), torch.arange(float(TOKENS)))
    text = {"encoder_hidden_states": noise(TOKENS, TEXT), "img_ids": places, "txt_ids": words}
    return network(noise(16, 16), timestep=TIME, **text).sample


def _qwen(network: Any, noise: Noise) -> Tensor:
    mask = torch.tensor([[1] * TOKENS, [1] * (TOKENS - 2) + [0] * 2])
    text = {"encoder_hidden_states": noise(TOKENS, TEXT), "encoder_hidden_states_mask": mask}
    return network(noise(16, 16), timestep=TIME, img_shapes=[[(1, 4, 4)]] * 2, **text).sample


def _z_image(network: Any, noise: Noise) -> Tensor:
    images, texts = noise(4, 1, SIDE, SIDE), noise(TOKENS, TEXT)
    return torch.stack(network([*images], TIME, [*texts], return_dict=False)[0])


def _sana(network: Any, noise: Noise) -> Tensor:
    mask = torch.tensor([[1] * TOKENS, [1] * (TOKENS - 2) + [0] * 2])
    return network(noise(4, SIDE, SIDE), noise(TOKENS, TEXT), STEP, encoder_attention_mask=mask).sample


def _pixart(network: Any, noise: Noise) -> Tensor:
    mask = torch.tensor([[1] * TOKENS, [1] * (TOKENS - 2) + [0] * 2])
    sizes = {"resolution": None, "aspect_ratio": None}
    text = {"encoder_hidden_states": noise(TOKENS, TEXT), "encoder_attention_mask": mask, "added_cond_kwargs": sizes}
    return network(noise(4, SIDE, SIDE), timestep=STEP, **text).sample


CALLS: dict[str, Callable[[Any, Noise], Tensor]] = {
    "DiTTransformer2DModel": _dit,
    "SD3Transformer2DModel": _sd3,
    "FluxTransformer2DModel": _flux,
    "Flux2Transformer2DModel": _flux_2,
    "QwenImageTransformer2DModel": _qwen,
    "ZImageTransformer2DModel": _z_image,
    "SanaTransformer2DModel": _sana,
    "PixArtTransformer2DModel": _pixart,
}
