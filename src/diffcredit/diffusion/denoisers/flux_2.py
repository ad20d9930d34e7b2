"""FLUX.2-klein: a transformer over latents in patches and the hidden states of Qwen3.

Its latents (:class:`~diffcredit.diffusion.latent_spaces.Flux2`) are patches already, with 4 channels for each of the
autoencoder's.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.denoisers import checks
from diffcredit.diffusion.denoisers.base import TextDenoiser
from diffcredit.diffusion.denoisers.patches import even_sigmas, first_input, packed, places, rounds, unpacked
from diffcredit.errors import UserError

# μ by steps and image tokens, as measured by the model's authors: straight lines in the tokens for 10 and for 200
# steps, and between them in the steps
AT_10_STEPS = (8.73809524e-05, 1.89833333)
AT_200_STEPS = (0.00016927, 0.45666666)
MANY_TOKENS = 4300
TOKENS = 512  # of a text, as the pipeline takes by default


def empirical_shift(tokens: int, steps: int) -> float:
    """Return FLUX.2's μ of dynamic shifting."""
    few, many = (slope * tokens + start for slope, start in (AT_10_STEPS, AT_200_STEPS))
    if tokens > MANY_TOKENS:
        return many
    slope = (many - few) / 190
    return slope * steps + many - 200 * slope


class Flux2Klein(TextDenoiser):
    network = "Flux2Transformer2DModel"
    pipelines = ("Flux2KleinPipeline",)
    parts = {"text_encoder": ("Qwen3ForCausalLM",), "tokenizer": ("Qwen2Tokenizer", "Qwen2TokenizerFast")}  # noqa: RUF012
    targets = (
        *("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"),
        *("to_qkv_mlp_proj", "attn.to_out"),  # of single blocks, which have one projection in and one out
    )
    guidance = 4.0

    def predict(
        self,
        network: nn.Module,
        x: Tensor,
        time: Tensor,
        condition: Mapping[str, Tensor] | None,
        guidance: float | None = None,
    ) -> Tensor:
        if condition is None:
            raise TypeError("FLUX.2 has no prediction without a condition")
        hidden, (h, w) = condition["encoder_hidden_states"], x.shape[-2:]
        # the embedding takes its own type from that of the time, which only within it can stay unrounded
        embedding: Any = network.time_guidance_embed
        with first_input(embedding.time_proj, 1000 * time) if rounds(x) else nullcontext():
            patches = network(
                hidden_states=packed(x, 1),
                timestep=time,
                guidance=None,
                encoder_hidden_states=hidden,
                txt_ids=places(1, hidden.shape[-2], x.device, before=2),
                img_ids=places(h, w, x.device, before=1, after=1),
            ).sample
        return unpacked(patches, h, w, 1)

    def check(self, folder: Path, index: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        if index.get("is_distilled"):
            raise UserError(
                f"{folder / 'model_index.json'}: is_distilled true: the pipeline {checks.WHY_FEW_STEPS}; accepted: "
                "FLUX.2-klein-base"
            )
        checks.check_many_steps(folder, index, config)
        checks.check_channels(folder, self.component, config, patch=4)
        checks.check_flow_scheduler(folder)
        if config.get("guidance_embeds"):
            file = folder / self.component / "config.json"
            raise UserError(f"{file}: guidance_embeds true; accepted: false (FLUX.2-dev is not supported)")

    def encode(self, pipeline: Any, text: str, pixels: int) -> Conditions:
        hidden, _ = pipeline.encode_prompt(prompt=text)
        return {"encoder_hidden_states": hidden[0]}

    def outline(self, config: Mapping[str, Any]) -> Conditions:
        return {"encoder_hidden_states": torch.empty(TOKENS, config["joint_attention_dim"], device="meta")}

    def sigmas(self, scheduler: Any, steps: int, side: int) -> Tensor:
        scheduler.set_timesteps(sigmas=even_sigmas(steps), mu=empirical_shift(side**2, steps))
        return torch.as_tensor(scheduler.sigmas).cpu()
