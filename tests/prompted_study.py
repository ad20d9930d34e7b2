"""A text-to-image study with properties for some of its prompts: three contributors' captions, tiny models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diffcredit.util.seeds import derive_seed
from diffusion import tiny_pipelines
from tiny_study import write_study

CAPTIONS = {
    "ann": ["a cat", "a dog", "a cat"],
    "bob": ["a cat", "the sea", "a dog"],
    "cem": ["the sea", "a dog", "a cat"],
}
ORDER = sorted(["a cat", "a dog", "the sea"], key=lambda text: derive_seed("prompt", text))
IMAGES, SEED = 8, 4
OTHERS = ["the sea", "a dog"]
PROPERTIES: list[dict[str, Any]] = [
    {"name": "colourfulness", "as": "cats", "prompts": ["a cat"]},
    {"name": "colourfulness", "as": "others", "prompts": OTHERS},
    {"name": "kid", "features": "layout", "as": "likeness", "prompts": OTHERS},
    {"name": "cluster_entropy", "clusters": 2, "as": "kinds", "prompts": OTHERS},
    {"name": "colourfulness"},
]


def write_prompted(folder: Path, pipeline: Path, **changes: Any) -> Path:
    """``study.yaml`` and, unless they are there, its images in ``folder``, with ``changes`` of whole sections."""
    if not (folder / "images").exists():
        tiny_pipelines.captioned_folder(folder / "images", CAPTIONS)
    sections = {
        "contributions": {"source": "imagefolder", "path": "images", "resolution": 16},
        "model": {
            "family": "lora",
            "pretrained": str(pipeline),
            "rank": 2,
            "train": {"steps": 2, "batch_size": 4, "learning_rate": 0.01},
        },
        "retraining": {"method": "fine_tune", "steps": 1, "learning_rate": 0.05},
        "sampling": {"steps": 2, "images": IMAGES, "seed": SEED, "guidance": 2.0},
        "properties": PROPERTIES,
        "surrogates": [{"name": "pools", "coalitions": 6}],
        "stop": {"evaluations": 6},
        "keep": "images",
    }
    return write_study(folder, sections | changes)


def rows_of(prompts: Sequence[str], order: Sequence[str] = ORDER) -> list[int]:
    """The images for some prompts: that of seed s follows prompt s mod k."""
    return [row for row in range(IMAGES) if order[(SEED + row) % len(order)] in prompts]
