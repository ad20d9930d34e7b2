"""Qwen-Image: a transformer of two streams over packed latents, told by a vision-language model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad, pixel_shuffle, pixel_unshuffle

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.denoisers.base import PipelineDenoiser
from diffcredit.diffusion.denoisers.sizes import require_multiple
from diffcredit.diffusion.denoisers.times import Unrounded
from diffcredit.diffusion.objectives.flow import Density
from diffcredit.errors import UserError

TOKENS = 512  # of a text, as the pipeline takes by default
PATCH = 2
VARIANTS = {
    "guidance_embeds": "a network distilled to embedded guidance",
    "zero_cond_t": "a network that edits images",
    "use_additional_t_cond": "a network of layered images",
    "use_layer3d_rope": "a network of layered images",
}


class QwenImage(PipelineDenoiser):
    network = "QwenImageTransformer2DModel"
    pipelines = ("QwenImagePipeline",)
    parts = {  # noqa: RUF012
        "text_encoder": ("Qwen2_5_VLForConditionalGeneration",),
        "tokenizer": ("Qwen2Tokenizer", "Qwen2TokenizerFast"),
    }
    conditioned = ("encoder_hidden_states", "encoder_hidden_states_mask")
    targets = (
        *("to_q", "to_k", "to_v", "to_out.0"),
        *("add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"),  # the text's stream
    )
    guidance = 4.0
    density = Density(shift=2.2)  # as the pipeline shifts σ at its usual size

    def predict(
        self,
        network: nn.Module,
        x: Tensor,
        time: Tensor,
        condition: Mapping[str, Tensor] | None,
        guidance: float | None = None,
    ) -> Tensor:
        height, width = x.shape[2] // PATCH, x.shape[3] // PATCH
        tokens = network(
            packed(x),
            timestep=Unrounded(time),
            img_shapes=[[(1, height, width)]] * len(x),
            return_dict=False,
            **dict(condition or {}),
        )[0]
        return pixel_shuffle(tokens.transpose(1, 2).unflatten(2, (height, width)), PATCH)

    def guide(self, without: Tensor, following: Tensor, scale: float) -> Tensor:
        """Return the guided prediction with the norm, in each token, of that with the condition."""
        guided = without + scale * (following - without)
        return guided * (token_norms(following) / token_norms(guided))

    def encode(self, pipeline: Any, text: str, pixels: int) -> Conditions:
        hidden, _ = pipeline.encode_prompt(text, pipeline.device, max_sequence_length=TOKENS)
        there = hidden.shape[1]
        return {
            "encoder_hidden_states": pad(hidden[0], (0, 0, 0, TOKENS - there)),
            "encoder_hidden_states_mask": torch.arange(TOKENS, device=hidden.device) < there,
        }

    def nothing(self, pipeline: Any, pixels: int) -> Conditions:
        """Return the condition of a blank, as the model's authors advise."""
        return self.encode(pipeline, " ", pixels)

    def sigmas(self, scheduler: Any, steps: int, side: int) -> Tensor:
        from diffusers.pipelines.qwenimage.pipeline_qwenimage import calculate_shift

        keys = ("base_image_seq_len", "max_image_seq_len", "base_shift", "max_shift")
        mu = calculate_shift((side // PATCH) ** 2, *(scheduler.config[key] for key in keys))
        scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps), mu=mu)
        return torch.as_tensor(scheduler.sigmas).cpu()

    def check(self, folder: Path, index: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        for key, kind in VARIANTS.items():
            if config.get(key):
                raise UserError(f"{folder / self.component / 'config.json'}: {key}: true: {kind}; accepted: Qwen-Image")

    def check_size(self, network: nn.Module, side: int) -> None:
        require_multiple(side, PATCH)


def packed(x: Tensor) -> Tensor:
    """(m, c, h, w) → (m, h/2 · w/2, 4 c): patches of 2 × 2 as tokens."""
    return pixel_unshuffle(x, PATCH).flatten(2).transpose(1, 2)


def token_norms(x: Tensor) -> Tensor:
    """Return the norm of each token of x (m, c, h, w) at all places of its patch, (m, 1, h, w)."""
    norms = pixel_unshuffle(x, PATCH).norm(dim=1, keepdim=True)
    return norms.repeat_interleave(PATCH, dim=2).repeat_interleave(PATCH, dim=3)
