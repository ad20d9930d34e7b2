"""Folders as transformers' ``save_pretrained`` writes them, with real models of a few thousand random weights; and
images to look at."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from diffcredit.features.base import Images

SIDE = 32  # of what the models look at
BLOCKS = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
VIT = {"image_size": SIDE, "patch_size": 8, **BLOCKS}
CLASSES = {0: "cat", 1: "dog", 2: "teapot"}
LABELLED = {"id2label": CLASSES, "label2id": {label: index for index, label in CLASSES.items()}}
MEAN, DEVIATION = [0.5, 0.4, 0.3], [0.3, 0.25, 0.2]


def some_images(m: int = 5, height: int = 20, width: int = 20, seed: int = 0) -> Images:
    """Random patches of colour: noise of single pixels would resize to grey."""
    coarse = np.random.default_rng(seed).integers(0, 256, (m, -(-height // 4), -(-width // 4), 3), dtype=np.uint8)
    return coarse.repeat(4, axis=1).repeat(4, axis=2)[:, :height, :width]


def seeded(make: Any, config: Any, **options: Any) -> Any:
    """A model whose weights are far from the tiny ones of construction, so that images matter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = make(config, **options).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(0, parameter[0].numel() ** -0.5)
                else:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def preprocessor(folder: Path, kind: str, **told: Any) -> Path:
    """Tells the image processor's settings."""
    settings = {"image_processor_type": kind, "image_mean": MEAN, "image_std": DEVIATION, **told}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


def clip(folder: Path) -> Path:
    """A CLIP that reads letters alone, with texts of at most 12 tokens, and takes images' centres."""
    letters = [chr(code) for code in range(33, 127)]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    tokens = {word: index for index, word in enumerate(words)}
    text = {
        **BLOCKS,
        "vocab_size": len(words),
        "max_position_embeddings": 12,
        "bos_token_id": tokens["<|startoftext|>"],
        "eos_token_id": tokens["<|endoftext|>"],
        "pad_token_id": tokens["<|endoftext|>"],
    }
    seeded(
        transformers.CLIPModel, transformers.CLIPConfig(text_config=text, vision_config=VIT, projection_dim=10)
    ).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps(tokens))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    crop = {"height": SIDE, "width": SIDE}
    return preprocessor(folder, "CLIPImageProcessor", size={"shortest_edge": SIDE}, crop_size=crop)


def blip(folder: Path) -> Path:
    text = {**BLOCKS, "vocab_size": 20, "encoder_hidden_size": 16, "max_position_embeddings": 8, "bos_token_id": 1}
    config = transformers.BlipConfig(text_config=text, vision_config=VIT, projection_dim=10, image_text_hidden_size=10)
    seeded(transformers.BlipForQuestionAnswering, config).save_pretrained(folder)
    return preprocessor(folder, "BlipImageProcessor", size={"height": SIDE, "width": SIDE})


def saved(folder: Path, make: Any, config: Any, processor: str, **options: Any) -> Path:
    """Any vision model with an image processor that resizes to ``SIDE`` pixels."""
    seeded(make, config, **options).save_pretrained(folder)
    square = {"height": SIDE, "width": SIDE}
    return preprocessor(folder, processor, size=square, crop_size=square)


def reference(folder: Path, images: Images) -> torch.Tensor:
    """What transformers' own image processor of the folder makes of each image as Pillow knows it."""
    from PIL import Image

    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    made = [processor(images=Image.fromarray(image), return_tensors="pt")["pixel_values"] for image in images]
    return torch.cat(made)


def agrees(extractor: Any, other: Any, images: Images) -> None:
    """Asserts that both see the same to 1e-3 of the largest number."""
    for found, expected in zip(
        extractor.extract(images).arrays().values(), other.extract(images).arrays().values(), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 * np.abs(expected).max())
