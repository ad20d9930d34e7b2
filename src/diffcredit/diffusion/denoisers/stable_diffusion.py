"""Stable Diffusion 1 and 2: a U-Net with cross-attention to the hidden states of a text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.denoisers.base import PipelineDenoiser
from diffcredit.errors import UserError


class StableDiffusion(PipelineDenoiser):
    network = "UNet2DConditionModel"
    pipelines = ("StableDiffusionPipeline",)
    component = "unet"
    parts = {"text_encoder": ("CLIPTextModel",), "tokenizer": ("CLIPTokenizer", "CLIPTokenizerFast")}  # noqa: RUF012
    guidance = 7.5
    precision = "float32"

    def predict(
        self,
        network: nn.Module,
        x: Tensor,
        time: Tensor,
        condition: Mapping[str, Tensor] | None,
        guidance: float | None = None,
    ) -> Tensor:
        return network(x, time, **dict(condition or {})).sample

    def check(self, folder: Path, index: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        if config.get("addition_embed_type") is not None or config.get("class_embed_type") is not None:
            raise UserError(f"{folder / 'unet'}: the U-Net has conditions beside the text; text alone is accepted")

    def multiple(self, config: Mapping[str, Any]) -> int:
        return 2 ** (len(config["block_out_channels"]) - 1)

    def encode(self, pipeline: Any, text: str, pixels: int) -> Conditions:
        hidden, _ = pipeline.encode_prompt(text, pipeline.device, 1, False)
        return {"encoder_hidden_states": hidden[0]}
