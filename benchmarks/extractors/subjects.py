"""The extractors that are timed: those whose weights are here, and the others with random ones of the same size."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from diffcredit.features import FeaturesOption


def subjects(folder: Path) -> dict[str, FeaturesOption]:
    """The name in the table and the ``features`` option of each; random weights are written into ``folder``."""
    return {
        "pixels": "pixels",
        "layout": "layout",
        "colours": "colours",
        "efficientnet_lite0": "efficientnet_lite0",
        "inception_v3": {"name": "inception_v3", "weights": _inception(folder), "published": False},
        "clip (ViT-L/14)": {"name": "clip", "model": _clip(folder / "clip")},
        "blip_vqa (ViT-B/16, 384 px)": {"name": "blip_vqa", "model": _blip(folder / "blip")},
        "transformers (ViT-B/16)": {"name": "transformers", "model": _vit(folder / "vit")},
    }


def _inception(folder: Path) -> str:
    from safetensors.torch import save_file

    from diffcredit.features.inception import InceptionNetwork

    file = folder / "inception.safetensors"
    save_file(InceptionNetwork("fid").state_dict(), file)
    return str(file)


def _clip(folder: Path) -> str:
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    text = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12}
    vision = {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "patch_size": 14,
    }
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=768)
    return _saved(CLIPModel, config, CLIPImageProcessor(), folder)


def _blip(folder: Path) -> str:
    from transformers import BlipConfig, BlipForQuestionAnswering, BlipImageProcessor

    config = BlipConfig(vision_config={"image_size": 384}, text_config={"encoder_hidden_size": 768})
    processor = BlipImageProcessor(size={"height": 384, "width": 384})
    return _saved(BlipForQuestionAnswering, config, processor, folder)


def _vit(folder: Path) -> str:
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    config = ViTConfig(num_labels=1000, architectures=["ViTForImageClassification"])
    return _saved(ViTForImageClassification, config, ViTImageProcessor(), folder)


def _saved(kind: Any, config: Any, processor: Any, folder: Path) -> str:
    torch.manual_seed(0)
    kind(config).save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


def noise(count: int, resolution: int) -> np.ndarray:
    """Images to extract from, (count, resolution, resolution, 3) uint8."""
    return np.random.default_rng(0).integers(0, 256, (count, resolution, resolution, 3), dtype=np.uint8)
