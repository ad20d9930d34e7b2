"""Stable Diffusion 1 and 2: a U-Net with cross-attention to the hidden states of a text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.denoisers import checks
from diffcredit.diffusion.denoisers.base import TextDenoiser
from diffcredit.errors import UserError


class StableDiffusion(TextDenoiser):
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
        check_unet(folder, index, config, added=None)

    def check_size(self, network: nn.Module, side: int) -> None:
        check_unet_size(network, side)

    def text_pipeline(self, kind: type, parts: Mapping[str, Any], index: Mapping[str, Any]) -> Any:
        # a pipeline without its safety checker warns unless it does without
        return super().text_pipeline(kind, parts, {**index, "requires_safety_checker": False})

    def encode(self, pipeline: Any, text: str, pixels: int) -> Conditions:
        hidden, _ = pipeline.encode_prompt(text, pipeline.device, 1, False)
        return {"encoder_hidden_states": hidden[0]}


def check_unet(folder: Path, index: Mapping[str, Any], config: Mapping[str, Any], added: str | None) -> None:
    """Raise a UserError unless the U-Net has no conditions beside the text and, if given, those named ``added``."""
    file = folder / "unet" / "config.json"
    checks.check_many_steps(folder, index, config)
    if config.get("time_cond_proj_dim") is not None:
        raise UserError(
            f"{file}: time_cond_proj_dim {config['time_cond_proj_dim']}: the U-Net {checks.WHY_FEW_STEPS}; "
            f"{checks.WHOLE_MODEL}"
        )
    checks.check_noise_scheduler(folder)
    expected = {"addition_embed_type": added, "class_embed_type": None, "encoder_hid_dim_type": None}
    for key, accepted in expected.items():
        if config.get(key) != accepted:
            raise UserError(
                f"{file}: {key} {config.get(key)!r}: the U-Net has conditions beside the text; accepted: {accepted!r}"
            )
    checks.check_channels(folder, "unet", config)
    checks.check_texts_alone(folder, index)


def check_unet_size(network: nn.Module, side: int) -> None:
    """Raise a UserError unless every level of the U-Net halves the ``side``."""
    config: Any = network.config
    checks.check_multiple("this U-Net", side, 2 ** (len(config["block_out_channels"]) - 1))
