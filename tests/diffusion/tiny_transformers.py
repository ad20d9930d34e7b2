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


def call(network: nn.Module, *seeds: int) -> Tensor:
    """The outputs for two images of each of ``seeds``, by default 0. Each image has its own text or label and time, in
    the network's precision."""
    kind, dtype = type(network).__name__, next(network.parameters()).dtype
    return CALLS[kind](network, Inputs([torch.Generator().manual_seed(seed) for seed in seeds or (0,)], dtype))


class Inputs:
    """What a network is called with: noise, and for each two images the same of all else."""

    def __init__(self, generators: list[torch.Generator], dtype: torch.dtype) -> None:
        self._generators, self._dtype = generators, dtype

    def __call__(self, *shape: int) -> Tensor:
        return torch.cat([torch.randn(2, *shape, generator=each) for each in self._generators]).to(self._dtype)

    def same(self, given: Tensor) -> Tensor:
        return torch.cat([given] * len(self._generators))


TIME, STEP, LABELS = torch.tensor([0.3, 0.7]), torch.tensor([300, 700]), torch.tensor([3, 7])
MASK = torch.tensor([[1] * TOKENS, [1] * (TOKENS - 2) + [0] * 2])


def _dit(network: Any, noise: Inputs) -> Tensor:
    return network(noise(4, SIDE, SIDE), timestep=noise.same(STEP), class_labels=noise.same(LABELS)).sample


def _sd3(network: Any, noise: Inputs) -> Tensor:
    text = {"encoder_hidden_states": noise(TOKENS, TEXT), "pooled_projections": noise(TEXT)}
    return network(noise(4, SIDE, SIDE), timestep=noise.same(STEP), **text).sample


def _flux(network: Any, noise: Inputs) -> Tensor:
    text = {"encoder_hidden_states": noise(TOKENS, TEXT), "pooled_projections": noise(TEXT)}
    places = torch.cartesian_prod(torch.zeros(1), torch.arange(4.0), torch.arange(4.0))
    return network(
        noise(16, 16), timestep=noise.same(TIME), img_ids=places, txt_ids=torch.zeros(TOKENS, 3), **text
    ).sample


def _flux_2(network: Any, noise: Inputs) -> Tensor:
    places = torch.cartesian_prod(torch.zeros(1), torch.arange(4.0), torch.arange(4.0), torch.zeros(1))
    words = torch.cartesian_prod(torch.zeros(1), torch.zeros(1), torch.zeros(1), torch.arange(float(TOKENS)))
    text = {"encoder_hidden_states": noise(TOKENS, TEXT), "img_ids": places, "txt_ids": words}
    return network(noise(16, 16), timestep=noise.same(TIME), **text).sample


def _qwen(network: Any, noise: Inputs) -> Tensor:
    mask = noise.same(MASK)
    text = {"encoder_hidden_states": noise(TOKENS, TEXT), "encoder_hidden_states_mask": mask}
    return network(noise(16, 16), timestep=noise.same(TIME), img_shapes=[[(1, 4, 4)]] * len(mask), **text).sample


def _z_image(network: Any, noise: Inputs) -> Tensor:
    images, texts = noise(4, 1, SIDE, SIDE), noise(TOKENS, TEXT)
    return torch.stack(network([*images], noise.same(TIME), [*texts], return_dict=False)[0])


def _sana(network: Any, noise: Inputs) -> Tensor:
    mask = noise.same(MASK)
    return network(noise(4, SIDE, SIDE), noise(TOKENS, TEXT), noise.same(STEP), encoder_attention_mask=mask).sample


def _pixart(network: Any, noise: Inputs) -> Tensor:
    mask = noise.same(MASK)
    sizes = {"resolution": None, "aspect_ratio": None}
    text = {"encoder_hidden_states": noise(TOKENS, TEXT), "encoder_attention_mask": mask, "added_cond_kwargs": sizes}
    return network(noise(4, SIDE, SIDE), timestep=noise.same(STEP), **text).sample


CALLS: dict[str, Callable[[Any, Inputs], Tensor]] = {
    "DiTTransformer2DModel": _dit,
    "SD3Transformer2DModel": _sd3,
    "FluxTransformer2DModel": _flux,
    "Flux2Transformer2DModel": _flux_2,
    "QwenImageTransformer2DModel": _qwen,
    "ZImageTransformer2DModel": _z_image,
    "SanaTransformer2DModel": _sana,
    "PixArtTransformer2DModel": _pixart,
}
