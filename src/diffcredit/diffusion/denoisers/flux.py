"""FLUX.1: a transformer over packed patches of latents and the tokens of T5, with CLIP's pooled states.

FLUX.1-dev was distilled to be told the guidance. It is then called once, with the guidance as an input; other
transformers of this kind are called twice, with and without the text.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.denoisers import checks
from diffcredit.diffusion.denoisers.base import TextDenoiser
from diffcredit.diffusion.denoisers.patches import dynamic_shift, even_sigmas, packed, places, unpacked
from diffcredit.diffusion.denoisers.times import Unrounded
from diffcredit.errors import UserError

PATCH = 2
TOLD_IN_TRAINING = 1.0


class Flux(TextDenoiser):
    network = "FluxTransformer2DModel"
    pipelines = ("FluxPipeline",)
    parts = {  # noqa: RUF012
        "text_encoder": ("CLIPTextModel",),
        "tokenizer": ("CLIPTokenizer", "CLIPTokenizerFast"),
        "text_encoder_2": ("T5EncoderModel",),
        "tokenizer_2": ("T5Tokenizer", "T5TokenizerFast"),
    }
    targets = (
        *("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"),
        *("ff.net.0.proj", "ff.net.2", "ff_context.net.0.proj", "ff_context.net.2"),
    )
    guidance = 3.5

    def embeds_guidance(self, network: nn.Module) -> bool:
        config: Any = network.config
        return bool(config["guidance_embeds"])

    def predict(
        self,
        network: nn.Module,
        x: Tensor,
        time: Tensor,
        condition: Mapping[str, Tensor] | None,
        guidance: float | None = None,
    ) -> Tensor:
        if condition is None:
            raise TypeError("FLUX.1 has no prediction without a condition")
        told = None
        if self.embeds_guidance(network):
            told = Unrounded(torch.full_like(time, TOLD_IN_TRAINING if guidance is None else guidance))
        hidden, (h, w) = condition["encoder_hidden_states"], x.shape[-2:]
        patches = network(
            hidden_states=packed(x, PATCH),
            timestep=Unrounded(time),
            guidance=told,
            pooled_projections=condition["pooled_projections"],
            encoder_hidden_states=hidden,
            txt_ids=torch.zeros(hidden.shape[-2], 3, device=x.device),
            img_ids=places(h // PATCH, w // PATCH, x.device, before=1),
        ).sample
        return unpacked(patches, h, w, PATCH)

    def check(self, folder: Path, index: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        checks.check_many_steps(folder, index, config)
        scheduler = checks.part_config(folder, "scheduler")
        shifts = scheduler.get("use_dynamic_shifting") or scheduler.get("shift", 1.0) != 1
        if scheduler and not shifts and not config.get("guidance_embeds"):
            raise UserError(
                f"{folder / self.component / 'config.json'}: guidance_embeds false, with a scheduler that does not "
                f"shift: FLUX.1-schnell {checks.WHY_FEW_STEPS}; accepted: FLUX.1-dev, or use_dynamic_shifting in the "
                "scheduler's config"
            )
        checks.check_channels(folder, self.component, config, patch=PATCH**2)
        checks.check_flow_scheduler(folder)
        checks.check_texts_alone(folder, index)

    def check_size(self, network: nn.Module, side: int) -> None:
        checks.check_multiple("FLUX.1", side, PATCH)

    def encode(self, pipeline: Any, text: str, pixels: int) -> Conditions:
        hidden, pooled, _ = pipeline.encode_prompt(text, text)
        return {"encoder_hidden_states": hidden[0], "pooled_projections": pooled[0]}

    def sigmas(self, scheduler: Any, steps: int, side: int) -> Tensor:
        shift = dynamic_shift(scheduler.config, (side // PATCH) ** 2)  # not used by a static scheduler
        scheduler.set_timesteps(sigmas=even_sigmas(steps), mu=shift)
        return torch.as_tensor(scheduler.sigmas).cpu()
