"""Stable Diffusion 3 and 3.5: a transformer over patches of latents and the tokens of three text encoders."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.denoisers import checks
from diffcredit.diffusion.denoisers.base import TextDenoiser
from diffcredit.diffusion.denoisers.patches import dynamic_shift
from diffcredit.diffusion.denoisers.times import in_time_steps
from diffcredit.errors import UserError

PATCH = 2


class StableDiffusion3(TextDenoiser):
    """The third text encoder, T5, may be missing: its tokens are zeros then."""

    network = "SD3Transformer2DModel"
    pipelines = ("StableDiffusion3Pipeline",)
    parts = {  # noqa: RUF012
        "text_encoder": ("CLIPTextModelWithProjection",),
        "tokenizer": ("CLIPTokenizer", "CLIPTokenizerFast"),
        "text_encoder_2": ("CLIPTextModelWithProjection",),
        "tokenizer_2": ("CLIPTokenizer", "CLIPTokenizerFast"),
        "text_encoder_3": ("T5EncoderModel",),
        "tokenizer_3": ("T5Tokenizer", "T5TokenizerFast"),
    }
    targets = ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")
    guidance = 7.0

    def predict(
        self,
        network: nn.Module,
        x: Tensor,
        time: Tensor,
        condition: Mapping[str, Tensor] | None,
        guidance: float | None = None,
    ) -> Tensor:
        config: Any = network.config
        width, m = config["joint_attention_dim"], len(x)
        if condition is None:  # a network that was trained without texts
            condition = {
                "encoder_hidden_states": x.new_zeros(m, 1, width),
                "pooled_projections": x.new_zeros(m, config["pooled_projection_dim"]),
            }
        hidden = condition["encoder_hidden_states"]
        hidden = functional.pad(hidden, (0, width - hidden.shape[-1]))  # without T5 no text part knows the width
        pooled = condition["pooled_projections"]
        told = in_time_steps(time)
        return network(x, timestep=told, encoder_hidden_states=hidden, pooled_projections=pooled).sample

    def check(self, folder: Path, index: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        checks.check_many_steps(folder, index, config)
        checks.check_channels(folder, self.component, config)
        checks.check_flow_scheduler(folder)
        checks.check_texts_alone(folder, index)
        if config.get("patch_size", PATCH) != PATCH:
            file = folder / self.component / "config.json"
            raise UserError(f"{file}: patch_size {config['patch_size']}; accepted: {PATCH}")

    def check_size(self, network: nn.Module, side: int) -> None:
        config: Any = network.config
        checks.check_multiple("this transformer", side, config["patch_size"])
        most = config["patch_size"] * config["pos_embed_max_size"]
        if side > most:
            raise UserError(f"latents of {side} × {side}; this transformer takes at most {most} × {most}")

    def text_pipeline(self, kind: type, parts: Mapping[str, Any], index: Mapping[str, Any]) -> Any:
        pipeline = super().text_pipeline(kind, parts, index)
        if pipeline.text_encoder_3 is None:  # it then asks the transformer for the width of its tokens
            width = pipeline.text_encoder.config.hidden_size + pipeline.text_encoder_2.config.hidden_size
            pipeline.transformer = SimpleNamespace(config=SimpleNamespace(joint_attention_dim=width))
        return pipeline

    def encode(self, pipeline: Any, text: str, pixels: int) -> Conditions:
        hidden, _, pooled, _ = pipeline.encode_prompt(text, text, text, do_classifier_free_guidance=False)
        return {"encoder_hidden_states": hidden[0], "pooled_projections": pooled[0]}

    def sigmas(self, scheduler: Any, steps: int, side: int) -> Tensor:
        dynamic = scheduler.config["use_dynamic_shifting"]
        shift = {"mu": dynamic_shift(scheduler.config, (side // PATCH) ** 2)} if dynamic else {}
        scheduler.set_timesteps(steps, **shift)
        return torch.as_tensor(scheduler.sigmas).cpu()
