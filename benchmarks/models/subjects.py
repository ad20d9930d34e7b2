"""The models of the paper's three studies with random weights, at their real size."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, PNDMScheduler, StableDiffusionPipeline, UNet2DConditionModel, VQModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from diffcredit.diffusion.ddpm import DDPM, LatentDiffusion
from diffcredit.diffusion.first_stage import FirstStage
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.pipeline import pipeline
from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.diffusion.text_to_image import TextToImageLoRA


@dataclass(frozen=True)
class Subject:
    """A study's model, how it is trained and sampled, and what it is pruned to."""

    name: str
    make: Callable[[Path], DiffusionModel]
    training: Training
    sampling: Sampling
    parameters: float | int


def cifar(_: Path) -> DiffusionModel:
    return DDPM.create("ddpm-cifar", 32, seed=0)


def celebahq(_: Path) -> DiffusionModel:
    torch.manual_seed(0)
    autoencoder = VQModel(
        block_out_channels=(128, 256, 512),
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        layers_per_block=2,
        latent_channels=3,
        num_vq_embeddings=8192,
        sample_size=256,
    )
    return LatentDiffusion.create("ldm-celebahq", 256, seed=0, stage=FirstStage(autoencoder, "random weights"))


def artbench(folder: Path) -> DiffusionModel:
    """Stable Diffusion 1.5's sizes at 256 px with an adapter of rank 256."""
    if not (folder / "base" / "model_index.json").exists():
        write_stable_diffusion(folder)
    prompt = "a painting"
    return TextToImageLoRA.create(pipeline(str(folder / "base")), 256, [prompt], prompt, 256, seed=0)


def write_stable_diffusion(folder: Path) -> None:
    torch.manual_seed(0)
    letters = [chr(code) for code in range(33, 127)]
    ends = ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: i for i, token in enumerate([*letters, *(f"{letter}</w>" for letter in letters), *ends])}
    tokens = folder / "letters"
    tokens.mkdir(parents=True, exist_ok=True)
    (tokens / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (tokens / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    text: dict[str, Any] = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12}
    parts = {
        "unet": UNet2DConditionModel(
            sample_size=64, cross_attention_dim=768, attention_head_dim=8, block_out_channels=(320, 640, 1280, 1280)
        ),
        "vae": AutoencoderKL(
            block_out_channels=(128, 256, 512, 512),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            layers_per_block=2,
            latent_channels=4,
            sample_size=512,
        ),
        "text_encoder": CLIPTextModel(CLIPTextConfig(**text, num_attention_heads=12, projection_dim=768)),
        "tokenizer": CLIPTokenizer(str(tokens / "vocab.json"), str(tokens / "merges.txt"), model_max_length=77),
        "scheduler": PNDMScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", skip_prk_steps=True, steps_offset=1
        ),
    }
    nothing: dict[str, Any] = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    StableDiffusionPipeline(**parts, **nothing).save_pretrained(folder / "base")


SUBJECTS = (
    Subject(
        "CIFAR-20 DDPM",
        cifar,
        Training(steps=20_000, batch_size=64, learning_rate=1e-4),
        Sampling(images=1000, steps=100, batch_size=500),
        19_800_000,
    ),
    Subject(
        "CelebA-HQ LDM",
        celebahq,
        Training(steps=20_000, batch_size=64, learning_rate=1e-4),
        Sampling(images=1000, steps=100, batch_size=100),
        70_900_000,
    ),
    Subject(
        "Stable Diffusion, LoRA rank 256",
        artbench,
        Training(steps=15_625, batch_size=64, learning_rate=3e-4, optimizer="adamw", weight_decay=1e-6),
        Sampling(images=1000, steps=100, batch_size=50, scheduler="pndm"),
        0.5,
    ),
)
