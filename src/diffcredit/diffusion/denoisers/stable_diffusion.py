"""Stable Diffusion 1 and 2: a U-Net with cross-attention to the hidden states of a text."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.denoisers.base import PipelineDenoiser


class StableDiffusion(PipelineDenoiser):
    network = "UNet2DConditionModel"
    pipelines = ("StableDiffusionPipeline",)
    component = "unet"
    parts = {"text_encoder": ("CLIPTextModel",), "tokenizer": ("CLIPTokenizer", "CLIPTokenizerFast")}  # noqa: RUF012
    conditioned = ("encoder_hidden_states",)
    guidance = 7.5

    def predict(
        self,
        network: nn.Module,
        x: Tensor,
        time: Tensor,
        condition: Mapping[str, Tensor] | None,
        guidance: float | None = None,
    ) -> Tensor:
        return network(x, time, **dict(condition or {})).sample

    def encode(self, pipeline: Any, text: str, pixels: int) -> Conditions:
        hidden, _ = pipeline.encode_prompt(text, pipeline.device, 1, False)
        return {"encoder_hidden_states": hidden[0]}
