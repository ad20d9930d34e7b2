"""Text-to-image: a LoRA adapter on the attention of a frozen Stable Diffusion pipeline."""

import copy
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from diffcredit.contributions import Contributions
from diffcredit.diffusion.model import Family, tensors_fingerprint
from diffcredit.diffusion.pipeline import MISSING_PACKAGES, Pipeline, pipeline
from diffcredit.diffusion.pretrained import check_undamaged, read_description, read_weights
from diffcredit.diffusion.settings import Rank
from diffcredit.diffusion.unet import UNetModel
from diffcredit.errors import UserError
from diffcredit.util.artifacts import canonical_json
from diffcredit.util.seeds import derive_seed

ATTENTION = ("to_q", "to_k", "to_v", "to_out.0")
WEIGHTS = "pytorch_lora_weights.safetensors"  # where diffusers looks for an adapter
GUIDANCE = 7.5  # Stable Diffusion's own default


class TextToImageLoRA(UNetModel):
    """A pipeline whose U-Net has an adapter W + B A on every attention projection; only A and B are trained. The image
    of seed s follows prompt s mod k of ``prompts``. ``prompt``, if given, is the caption of all training images."""

    family = "lora"

    def __init__(
        self, network: nn.Module, base: Pipeline, prompts: Sequence[str], prompt: str | None, size: int
    ) -> None:
        self.network, self.base = network.eval(), base
        self.stage, self.noise_schedule = base.stage, base.noise_schedule
        self.prompts, self.prompt, self.size = tuple(prompts), prompt, size

    @classmethod
    def create(
        cls, base: Pipeline, rank: int, prompts: Sequence[str], prompt: str | None, resolution: int, seed: int
    ) -> Self:
        """Return a model with a fresh adapter (A normal, B zero), which generates the images of the pipeline itself."""
        if resolution % base.fewest_pixels:
            raise UserError(
                f"contributions.resolution: {resolution}; this pipeline takes multiples of {base.fewest_pixels}"
            )
        network = _adapted(base, dict.fromkeys(_projections(base.unet()), rank), seed)
        return cls(network, base, prompts, prompt, base.stage.size_of(resolution))

    @property
    def encoding(self) -> str:
        return f"{self.base.fingerprint} {canonical_json(self.prompt)}"

    @property
    def fingerprint(self) -> str:
        description = canonical_json([self.base.fingerprint, list(self.prompts), self.prompt, self.size])
        return tensors_fingerprint(self._adapter(), description)

    def _adapter(self) -> dict[str, Tensor]:
        """Return the adapter's weights on the CPU, by their names in the U-Net."""
        trained = ((name, p) for name, p in self.network.named_parameters() if p.requires_grad)
        return {name.replace(".default.", "."): p.detach().cpu().contiguous() for name, p in trained}

    def example(self) -> dict[str, Tensor]:
        return super().example() | {"encoder_hidden_states": self.base.embed(self.prompts[:1], "cpu")}

    def conditions(self, captions: Sequence[str] | None, count: int) -> tuple[Tensor, Tensor]:
        if self.prompt is None and captions is None:
            raise UserError("model.prompt: missing, and the images have no captions; one of both is needed")
        texts = list(captions or ()) if self.prompt is None else [self.prompt] * count
        place = {text: index for index, text in enumerate(dict.fromkeys(texts))}
        condition_of = torch.tensor([place[text] for text in texts], dtype=torch.long, device=self.device)
        return self.base.embed(list(place), self.device), condition_of

    def predict(self, x_t: Tensor, t: Tensor, condition: Tensor | None = None) -> Tensor:
        return self.network(x_t, t, encoder_hidden_states=condition).sample

    def guided(self, x: Tensor, t: Tensor, seeds: Sequence[int], guidance: float | None) -> Tensor:
        """Return the prediction with classifier-free guidance (Ho and Salimans 2022): ε(∅) + g (ε(prompt) − ε(∅))."""
        g = GUIDANCE if guidance is None else guidance
        condition = self.base.embed([self.prompts[seed % len(self.prompts)] for seed in seeds], self.device)
        if g == 1:
            return self.predict(x, t, condition)
        nothing = self.base.embed([""], self.device).expand_as(condition)
        both = self.predict(torch.cat([x, x]), torch.cat([t, t]), torch.cat([nothing, condition]))
        without, with_prompt = both.chunk(2)
        return without + g * (with_prompt - without)

    def untrained(self, seed: int) -> Self:
        """Return the pipeline with a fresh adapter of the same ranks."""
        model = copy.copy(self)
        model.network = _adapted(self.base, _ranks(self._adapter()), seed).to(self.device).eval()
        return model

    def save(self, directory: Path) -> None:
        """Write the adapter as diffusers does, so that any pipeline of this base loads it, and a description."""
        directory.mkdir(parents=True, exist_ok=True)
        adapter = self._adapter()
        # without it, older versions of diffusers give layers of unusual rank another scale
        metadata = canonical_json({f"unet.{key}": value for key, value in _ranks_and_scales(_ranks(adapter)).items()})
        tensors = {f"unet.{name}": tensor for name, tensor in adapter.items()}
        save_file(tensors, directory / WEIGHTS, {"format": "pt", "lora_adapter_metadata": metadata})
        description = {
            "family": self.family,
            "base": self.base.fingerprint,
            "prompts": self.prompts,
            "prompt": self.prompt,
            "size": self.size,
            "fingerprint": self.fingerprint,
        }
        text = json.dumps(description, indent=2, ensure_ascii=False)
        (directory / "config.json").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: Path, base: Pipeline) -> Self:
        """Return the adapter in ``directory``, on the pipeline that it was trained on."""
        file, config_file = directory / WEIGHTS, directory / "config.json"
        known, prompts, prompt, size = read_description(directory, cls.family, "base", "prompts", "prompt", "size")
        if known != base.fingerprint:
            raise UserError(f"{config_file}: the adapter of another base than {base.folder}")
        tensors = {name.removeprefix("unet."): tensor for name, tensor in read_weights(file).items()}
        pairs = {f"{name}.{factor}.weight" for name in _projections(base.unet()) for factor in ("lora_A", "lora_B")}
        if set(tensors) != pairs:
            raise UserError(f"{file}: not an adapter of this U-Net's attention")
        network = _adapted(base, _ranks(tensors), seed=0)  # peft draws weights, which the saved ones replace
        named = dict(network.named_parameters())
        try:
            with torch.no_grad():
                for name, tensor in tensors.items():
                    named[name.replace(".weight", ".default.weight")].copy_(tensor)
        except RuntimeError as error:
            raise UserError(f"{file}: not an adapter of this U-Net's attention ({error})") from None
        model = cls(network, base, prompts, prompt, size)
        check_undamaged(directory, model.fingerprint)
        return model


def _projections(network: nn.Module) -> list[str]:
    linear = (name for name, module in network.named_modules() if isinstance(module, nn.Linear))
    return [name for name in linear if name.endswith(ATTENTION)]


def _ranks(adapter: Mapping[str, Tensor]) -> dict[str, int]:
    ending = ".lora_A.weight"
    return {name.removesuffix(ending): len(a) for name, a in adapter.items() if name.endswith(ending)}


def _adapted(base: Pipeline, ranks: dict[str, int], seed: int) -> nn.Module:
    """Return the U-Net with a fresh adapter of scale α/r = 1, as diffusers reads an adapter file without α."""
    try:
        from peft import LoraConfig
    except ImportError:
        raise UserError(MISSING_PACKAGES) from None
    network: Any = base.unet()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network.add_adapter(LoraConfig(**_ranks_and_scales(ranks), init_lora_weights="gaussian"))
    return network


def _ranks_and_scales(ranks: dict[str, int]) -> dict[str, Any]:
    """Return the arguments of peft's LoraConfig for projections of these ranks."""
    usual = Counter(ranks.values()).most_common(1)[0][0]
    others = {f"^{re.escape(name)}$": rank for name, rank in ranks.items() if rank != usual}
    return {
        "r": usual,
        "lora_alpha": usual,
        "rank_pattern": others,
        "alpha_pattern": others,
        "target_modules": list(ranks),
    }


@dataclass(frozen=True)
class LoRAFamily(Family):
    """``model: {family: lora}``: an adapter of ``rank`` on the Stable Diffusion pipeline ``pretrained`` (a folder or a
    hub id). All images have one ``prompt`` or, without it, their captions."""

    pretrained: str
    rank: Rank = 16
    prompt: str | None = None

    nobody: ClassVar[str] = "the pipeline without an adapter"

    @property
    def base(self) -> Pipeline:
        return pipeline(self.pretrained)

    def identity(self) -> dict[str, Any]:
        return {"pretrained": self.base.fingerprint, "rank": self.rank, "prompt": self.prompt}

    def start(self, contributions: Contributions, seed: int) -> TextToImageLoRA:
        resolution = contributions.images.shape[1]
        return TextToImageLoRA.create(self.base, self.rank, self._prompts(contributions), self.prompt, resolution, seed)

    def _prompts(self, contributions: Contributions) -> list[str]:
        if self.prompt is not None:
            return [self.prompt]
        if contributions.captions is None:
            raise UserError("model.prompt: missing, and the contributions have no captions; one of both is needed")
        captioned = zip(contributions.names, contributions.captions, strict=True)
        if without := [name for name, caption in captioned if not caption]:
            raise UserError(
                f"model.prompt: missing, and {len(without)} of {len(contributions.names)} images have no caption, "
                f"such as {without[0]!r}; a prompt, or a caption for every image, is needed"
            )
        # shuffled, so that a few images already follow captions of all kinds; other captions do not change the order
        return sorted(set(contributions.captions), key=lambda caption: derive_seed("prompt", caption))

    def load(self, directory: Path) -> TextToImageLoRA:
        return TextToImageLoRA.load(directory, self.base)
