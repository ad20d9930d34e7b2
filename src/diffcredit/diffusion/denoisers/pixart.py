"""PixArt-Σ: a transformer with cross-attention to the hidden states of T5."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.denoisers import checks
from diffcredit.diffusion.denoisers.base import TextDenoiser
from diffcredit.diffusion.denoisers.times import in_time_steps
from diffcredit.errors import UserError

TOKENS = 300  # of a text, as the pipeline takes by default
ALPHA_SIZE = 128  # of the latents for which networks took the image's size by default


class PixArtSigma(TextDenoiser):
    """The pipeline rewrites texts where bs4 and ftfy are installed (``clean_caption``). Here texts are only put in
    lower case, whatever is installed."""

    network = "PixArtTransformer2DModel"
    pipelines = ("PixArtSigmaPipeline",)
    parts = {"text_encoder": ("T5EncoderModel",), "tokenizer": ("T5Tokenizer", "T5TokenizerFast")}  # noqa: RUF012
    guidance = 4.5
    loads_adapters = False

    def predict(
        self,
        network: nn.Module,
        x: Tensor,
        time: Tensor,
        condition: Mapping[str, Tensor] | None,
        guidance: float | None = None,
    ) -> Tensor:
        prediction = network(
            x,
            timestep=in_time_steps(time),
            added_cond_kwargs={"resolution": None, "aspect_ratio": None},
            return_dict=False,
            **dict(condition or {}),
        )[0]
        return prediction[:, : x.shape[1]]  # without the variance, where it is learned

    def encode(self, pipeline: Any, text: str, pixels: int) -> Conditions:
        hidden, mask, _, _ = pipeline.encode_prompt(text, False, device=pipeline.device)
        return {"encoder_hidden_states": hidden[0], "encoder_attention_mask": mask[0].bool()}

    def outline(self, config: Mapping[str, Any]) -> Conditions:
        return {
            "encoder_hidden_states": torch.empty(TOKENS, config["caption_channels"], device="meta"),
            "encoder_attention_mask": torch.empty(TOKENS, dtype=torch.bool, device="meta"),
        }

    def check(self, folder: Path, index: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        checks.check_many_steps(folder, index, config)
        checks.check_noise_scheduler(folder)
        takes_size = config.get("use_additional_conditions")
        if takes_size is None:
            takes_size = config.get("sample_size") == ALPHA_SIZE
        if takes_size:
            raise UserError(
                f"{folder / self.component / 'config.json'}: use_additional_conditions true: PixArt-α, which is told "
                "the image's size; accepted: PixArt-Σ"
            )

    def check_size(self, network: nn.Module, side: int) -> None:
        config: Any = network.config
        checks.check_multiple("this transformer", side, config["patch_size"])
