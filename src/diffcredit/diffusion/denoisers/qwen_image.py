"""Qwen-Image: a transformer of two streams over packed latents, told by a vision-language model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.denoisers import checks
from diffcredit.diffusion.denoisers.base import TextDenoiser
from diffcredit.diffusion.denoisers.patches import dynamic_shift, even_sigmas, packed, unpacked
from diffcredit.diffusion.denoisers.times import TIME_STEPS, Unrounded, in_time_steps
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


class QwenImage(TextDenoiser):
    network = "QwenImageTransformer2DModel"
    pipelines = ("QwenImagePipeline",)
    parts = {  # noqa: RUF012
        "text_encoder": ("Qwen2_5_VLForConditionalGeneration",),
        "tokenizer": ("Qwen2Tokenizer", "Qwen2TokenizerFast"),
    }
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
        height, width = x.shape[-2:]
        tokens = network(
            packed(x),
            timestep=Unrounded(in_time_steps(time) / TIME_STEPS),  # σ, rounded as in the pipeline
            img_shapes=[[(1, height // PATCH, width // PATCH)]] * len(x),
            return_dict=False,
            **dict(condition or {}),
        )[0]
        return unpacked(tokens, height, width)

    def guide(self, without: Tensor, following: Tensor, scale: float) -> Tensor:
        """Return the guided prediction with the norm, in each token, of that with the condition."""
        guided = packed(without + scale * (following - without))
        norms = [tokens.norm(dim=-1, keepdim=True) for tokens in (packed(following), guided)]
        return unpacked(guided * (norms[0] / norms[1]), *following.shape[-2:])

    def encode(self, pipeline: Any, text: str, pixels: int) -> Conditions:
        hidden, _ = pipeline.encode_prompt(text, pipeline.device, max_sequence_length=TOKENS)
        there = hidden.shape[1]
        return {
            "encoder_hidden_states": pad(hidden[0], (0, 0, 0, TOKENS - there)),
            "encoder_hidden_states_mask": torch.arange(TOKENS, device=hidden.device) < there,
        }

    def outline(self, config: Mapping[str, Any]) -> Conditions:
        return {
            "encoder_hidden_states": torch.empty(TOKENS, config["joint_attention_dim"], device="meta"),
            "encoder_hidden_states_mask": torch.empty(TOKENS, dtype=torch.bool, device="meta"),
        }

    def nothing(self, pipeline: Any, pixels: int) -> Conditions:
        """Return the condition of a blank, as the model's authors advise."""
        return self.encode(pipeline, " ", pixels)

    def sigmas(self, scheduler: Any, steps: int, side: int) -> Tensor:
        shift = dynamic_shift(scheduler.config, (side // PATCH) ** 2)  # not used by a static scheduler
        scheduler.set_timesteps(sigmas=even_sigmas(steps), mu=shift)
        return torch.as_tensor(scheduler.sigmas).cpu()

    def check(self, folder: Path, index: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        checks.check_many_steps(folder, index, config)
        checks.check_flow_scheduler(folder)
        for key, kind in VARIANTS.items():
            if config.get(key):
                raise UserError(f"{folder / self.component / 'config.json'}: {key} true: {kind}; accepted: Qwen-Image")

    def check_size(self, network: nn.Module, side: int) -> None:
        checks.check_multiple("Qwen-Image", side, PATCH)
