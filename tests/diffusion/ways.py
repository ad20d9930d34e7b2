"""Every kind of model that a study may start from, tiny, with contributions that suit it."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DDIMScheduler, DiTPipeline

from diffcredit.contributions import Contributions
from diffcredit.diffusion.ddpm import LatentFamily, PixelFamily
from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.model import Family
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.text_to_image import LoRAFamily
from diffcredit.diffusion.training import train

from . import tiny_pipelines, tiny_text_pipelines, tiny_text_pipelines_b, tiny_texts

LABELS = ("red", "green", "blue")
NUMBERS = ("0", "1", "2")
CAPTIONS = ("a red boat", "the sea, oil", "A tree")
TRAINING = Training(steps=2, batch_size=4, learning_rate=1e-3)


def autoencoder(folder: Path) -> None:
    tiny_pipelines.autoencoder_kl(scaling_factor=0.4, shift_factor=0.1).save_pretrained(folder)


def text_encoder(folder: Path) -> None:
    tiny_texts.clip_encoder().save_pretrained(folder)
    tiny_texts.clip_tokenizer().save_pretrained(folder)


def labelled_unet(folder: Path) -> None:
    """Of three classes, and one more for no class."""
    tiny_text_pipelines_b.varied(tiny_pipelines.unet(num_class_embeds=4)).save_pretrained(folder)


def labelled_dit(folder: Path) -> None:
    """A pipeline that names its three classes, as those on the hub do."""
    DiTPipeline(
        transformer=tiny_text_pipelines_b.dit_network(num_embeds_ada_norm=3),
        vae=tiny_text_pipelines_b.autoencoder_kl(),
        scheduler=DDIMScheduler(**tiny_text_pipelines_b.SCHEDULE),
    ).save_pretrained(folder)
    change(folder / "model_index.json", id2label={str(place): name for place, name in enumerate(LABELS)})


def change(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


MADE: dict[str, Callable[[Path], Any]] = {
    "autoencoder": autoencoder,
    "text_encoder": text_encoder,
    "labelled_unet": labelled_unet,
    "labelled_dit": labelled_dit,
    "sd3": tiny_text_pipelines.stable_diffusion_3,
    "flux": tiny_text_pipelines.flux,
    "sdxl": tiny_text_pipelines.stable_diffusion_xl,
    "z_image": tiny_text_pipelines_b.z_image,
    "pixart": tiny_text_pipelines_b.pixart_sigma,
    "qwen": tiny_text_pipelines_b.qwen_image,
}


@dataclass(frozen=True)
class Way:
    family: type[Any]
    options: dict[str, Any]
    """Of the model section, in which the parts of ``MADE`` stand for their folders."""
    texts: tuple[str, ...] | None = None
    side: int = 16


def adapter(pipeline: str, texts: tuple[str, ...] = CAPTIONS, side: int = 16) -> Way:
    # computing in bfloat16 would hide differences between ways that should give the same
    return Way(LoRAFamily, {"pretrained": pipeline, "rank": 4, "base": "float32"}, texts, side)


FLOW = {"preset": "dit-tiny", "objective": "flow", "conditions": "labels"}
CAPTIONED = {"objective": "flow", "conditions": "captions", "text_encoder": "text_encoder"}
WAYS: dict[str, Way] = {
    "dit flow labels": Way(PixelFamily, FLOW, LABELS),
    "dit noise": Way(PixelFamily, {"preset": "dit-tiny"}),
    "unet labels": Way(PixelFamily, {"preset": "tiny", "conditions": "labels"}, LABELS),
    "latent dit labels": Way(LatentFamily, {**FLOW, "autoencoder": "autoencoder"}, LABELS),
    "latent mmdit captions": Way(
        LatentFamily, {**CAPTIONED, "preset": "mmdit-tiny", "autoencoder": "autoencoder"}, CAPTIONS
    ),
    "lora sd3": adapter("sd3"),
    "lora flux": adapter("flux"),
    "lora sdxl": adapter("sdxl"),
    "lora z_image": adapter("z_image", side=32),
    "lora pixart": adapter("pixart", side=32),
    "lora qwen": adapter("qwen", side=32),
    "lora dit": adapter("labelled_dit", LABELS, 32),
    "pretrained dit": Way(LatentFamily, {"pretrained": "labelled_dit", "conditions": "labels"}, LABELS, 32),
    "pretrained unet": Way(PixelFamily, {"pretrained": "labelled_unet", "conditions": "labels"}, NUMBERS),
}
WHOLE = tuple(name for name, way in WAYS.items() if way.family is not LoRAFamily)


@dataclass(frozen=True)
class Ways:
    """The ways, with their parts in a ``folder``, each made when it is first needed."""

    folder: Path
    _bases: dict[str, DiffusersModel] = field(default_factory=dict)

    def part(self, name: str) -> Path:
        if not (place := self.folder / name).exists():
            MADE[name](place)
        return place

    def options(self, name: str) -> dict[str, Any]:
        """The model section's keys, as a study file has them."""
        options = WAYS[name].options
        return {key: str(self.part(value)) if value in MADE else value for key, value in options.items()}

    def family(self, name: str) -> Family:
        return WAYS[name].family(**self.options(name))

    def start(self, name: str, seed: int = 0) -> DiffusersModel:
        """A model before its training, whose every part matters: adapters and the last layer of a DiT start at 0."""
        model: Any = self.family(name).start(given(name), seed)
        draws = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.network.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn(parameter.shape, generator=draws), alpha=0.03)
        return model

    def base(self, name: str) -> DiffusersModel:
        """A model after two steps on all contributions; nobody may change it."""
        if name not in self._bases:
            model, contributions = self.start(name), given(name)
            train(model, model.encode(contributions.images, contributions.captions), TRAINING, seed=1)
            self._bases[name] = model
        return self._bases[name]


def given(name: str) -> Contributions:
    """Of three people, with three images held out; every text is there."""
    way, random = WAYS[name], np.random.default_rng(0)
    pixels = random.integers(0, 256, (13, way.side, way.side, 3), dtype=np.uint8)
    texts = None if way.texts is None else tuple(way.texts[place % 3] for place in range(13))
    return Contributions(
        images=pixels[:10],
        owner=np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2]),
        contributors=("ann", "bob", "cem"),
        names=tuple(f"{place:02d}.png" for place in range(10)),
        heldout=pixels[10:],
        captions=None if texts is None else texts[:10],
        heldout_captions=None if texts is None else texts[10:],
    )


def relabelled(contributions: Contributions, texts: tuple[str, ...]) -> Contributions:
    return dataclasses.replace(contributions, captions=texts)
