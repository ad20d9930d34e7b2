"""Stable Diffusion XL: a U-Net that follows two text encoders and is told the size of the image."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.denoisers.base import TextDenoiser
from diffcredit.diffusion.denoisers.stable_diffusion import check_unet, check_unet_size

TOKENIZERS = ("CLIPTokenizer", "CLIPTokenizerFast")


class StableDiffusionXL(TextDenoiser):
    network = "UNet2DConditionModel"
    pipelines = ("StableDiffusionXLPipeline",)
    component = "unet"
    parts = {  # noqa: RUF012
        "text_encoder": ("CLIPTextModel",),
        "tokenizer": TOKENIZERS,
        "text_encoder_2": ("CLIPTextModelWithProjection",),
        "tokenizer_2": TOKENIZERS,
    }
    guidance = 5.0
    told = ("force_zeros_for_empty_prompt",)

    def predict(
        self,
        network: nn.Module,
        x: Tensor,
        time: Tensor,
        condition: Mapping[str, Tensor] | None,
        guidance: float | None = None,
    ) -> Tensor:
        if condition is None:
            raise TypeError("Stable Diffusion XL has no prediction without a condition")
        added = {name: condition[name] for name in ("text_embeds", "time_ids")}
        hidden = condition["encoder_hidden_states"]
        return network(x, time, encoder_hidden_states=hidden, added_cond_kwargs=added).sample

    def check(self, folder: Path, index: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        check_unet(folder, index, config, added="text_time")

    def check_size(self, network: nn.Module, side: int) -> None:
        check_unet_size(network, side)

    def text_pipeline(self, kind: type, parts: Mapping[str, Any], index: Mapping[str, Any]) -> Any:
        return super().text_pipeline(kind, parts, {**index, "add_watermarker": False})

    def encode(self, pipeline: Any, text: str, pixels: int) -> Conditions:
        hidden, _, pooled, _ = pipeline.encode_prompt(text, do_classifier_free_guidance=False)
        # the original size, the crop's corner, and the size. Integers stay exact where conditions are kept in bfloat16
        sizes = torch.tensor([pixels, pixels, 0, 0, pixels, pixels], device=hidden.device)
        return {"encoder_hidden_states": hidden[0], "text_embeds": pooled[0], "time_ids": sizes}

    def nothing(self, pipeline: Any, pixels: int) -> Conditions:
        empty = self.encode(pipeline, "", pixels)
        if not pipeline.config.force_zeros_for_empty_prompt:
            return empty
        return {name: each if name == "time_ids" else torch.zeros_like(each) for name, each in empty.items()}
