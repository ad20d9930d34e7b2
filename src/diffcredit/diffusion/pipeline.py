"""The frozen parts of a text-to-image model: a Stable Diffusion pipeline, read once per process and shared."""

import copy
import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diffcredit.diffusion.first_stage import FirstStage, first_stage
from diffcredit.diffusion.noise_schedule import NoiseSchedule
from diffcredit.diffusion.pretrained import (
    folder_of,
    load_pretrained,
    load_tokenizer,
    read_json,
    read_schedule,
    weights_fingerprint,
)
from diffcredit.errors import UserError

ACCEPTED = "StableDiffusionPipeline"
PARTS = ("unet", "vae", "text_encoder", "tokenizer", "scheduler")
MISSING_PACKAGES = 'text-to-image models need transformers and peft: pip install "diffcredit[lora]"'


class Pipeline:
    """A Stable Diffusion pipeline in ``folder``: U-Net, autoencoder, text encoder, tokenizer, noise schedule."""

    def __init__(self, folder: Path) -> None:
        kind = read_json(folder / "model_index.json").get("_class_name")
        if kind != ACCEPTED:
            file = folder / "model_index.json"
            others = "neither Stable Diffusion XL nor diffusion transformers"
            raise UserError(f"{file}: _class_name {kind!r}; accepted: {ACCEPTED} ({others})")
        for part in PARTS:
            if not (folder / part).is_dir():
                raise UserError(f"{folder}: has no folder {part!r}; a {ACCEPTED} has {', '.join(PARTS)}")
        try:
            from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
            from transformers.models import clip
        except ImportError:
            raise UserError(MISSING_PACKAGES) from None
        self.folder = folder
        self.stage: FirstStage = first_stage(str(folder))
        # latents are not clipped, even if the scheduler's config does not say so
        self.noise_schedule = NoiseSchedule({"clip_sample": False, **read_schedule(folder)})
        self._unet = load_pretrained(UNet2DConditionModel, folder / "unet").requires_grad_(False)
        self._text_encoder = load_pretrained(clip.CLIPTextModel, folder / "text_encoder").requires_grad_(False)
        self._tokenizer = load_tokenizer(folder / "tokenizer")
        if (tokens := len(self._tokenizer)) > (known := self._text_encoder.config.vocab_size):
            raise UserError(f"{folder / 'tokenizer'}: {tokens} tokens; the text encoder knows {known}")
        self._texts: dict[tuple[str, str], Tensor] = {}
        config: Any = self._unet.config
        if config["addition_embed_type"] is not None or config["class_embed_type"] is not None:
            raise UserError(f"{folder / 'unet'}: the U-Net has conditions beside the text; text alone is accepted")
        if config["in_channels"] != self.stage.channels:
            raise UserError(
                f"{folder / 'unet'}: in_channels {config['in_channels']}; the autoencoder has {self.stage.channels} "
                "(inpainting and upscaling models are not supported)"
            )
        self.fewest_pixels = self.stage.factor * 2 ** (len(config["block_out_channels"]) - 1)

    @property
    def fingerprint(self) -> str:
        parts = [weights_fingerprint(self.folder / part) for part in PARTS]
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    def unet(self) -> nn.Module:
        """Return a new U-Net with the shared, frozen weights."""
        return copy.deepcopy(self._unet, {id(parameter): parameter for parameter in self._unet.parameters()})

    def embed(self, prompts: Sequence[str], device: torch.device | str) -> Tensor:
        """Return the text encoder's last hidden states, (k, l, d), computed once for each prompt; texts that are too
        long are truncated, as Stable Diffusion does."""
        keys = [(str(device), prompt) for prompt in prompts]
        new = [key for key in dict.fromkeys(keys) if key not in self._texts]
        if new:
            try:
                self._text_encoder.to(device)
                for key in new:
                    # one at a time, so that no bit of the result depends on other texts
                    tokens = self._tokenizer(
                        key[1],
                        padding="max_length",
                        max_length=self._tokenizer.model_max_length,
                        truncation=True,
                        return_tensors="pt",
                    )
                    with torch.no_grad():
                        self._texts[key] = self._text_encoder(tokens.input_ids.to(device))[0][0].float().cpu()
            finally:
                self._text_encoder.to("cpu")
        return torch.stack([self._texts[key] for key in keys]).to(device)


@lru_cache(maxsize=2)
def pipeline(reference: str) -> Pipeline:
    """Return the pipeline of a folder or hub id."""
    return Pipeline(folder_of(reference))
