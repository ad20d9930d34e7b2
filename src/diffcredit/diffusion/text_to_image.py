"""Text-to-image: a LoRA adapter on the network of a frozen pipeline."""

import copy
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from diffcredit.contributions import Contributions
from diffcredit.diffusion.captions import mixed
from diffcredit.diffusion.conditions import ClassLabels
from diffcredit.diffusion.ddpm import texts_of
from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.model import Family, tensors_fingerprint
from diffcredit.diffusion.objectives.flow import Density
from diffcredit.diffusion.pipeline import BasePrecision, Pipeline, pipeline
from diffcredit.diffusion.pretrained import check_undamaged, read_description, read_json, read_weights
from diffcredit.diffusion.settings import Rank
from diffcredit.diffusion.texts import MISSING_PACKAGES
from diffcredit.errors import UserError
from diffcredit.util.artifacts import canonical_json
from diffcredit.util.plugins import code_of

WEIGHTS = "pytorch_lora_weights.safetensors"  # where diffusers looks for an adapter


class TextToImageLoRA(DiffusersModel):
    """A pipeline whose network has an adapter W + B A on every attention projection; only A and B are trained. The
    image of seed s follows prompt s mod k of ``prompts``. ``prompt``, if given, is the caption of all training
    images. ``density`` is the training density of σ, where the pipeline's own is not meant."""

    family = "lora"

    def __init__(
        self,
        network: nn.Module,
        base: Pipeline,
        prompts: Sequence[str],
        prompt: str | None,
        size: int,
        density: Density | None = None,
    ) -> None:
        self.network, self.base, self.density = network.eval(), base, density
        self.denoiser, self.stage, self.conditioner = base.denoiser, base.stage, base.conditioner
        self.objective, self.computes = base.objective(size, density), base.computes
        self.guidance = base.denoiser.guidance
        self.prompts, self.prompt, self.size = tuple(prompts), prompt, size

    @classmethod
    def create(
        cls,
        base: Pipeline,
        rank: int,
        prompts: Sequence[str],
        prompt: str | None,
        resolution: int,
        seed: int,
        density: Density | None = None,
    ) -> Self:
        """Return a model with a fresh adapter (A normal, B zero), which generates the images of the pipeline itself."""
        network, size = base.network(), base.stage.size_of(resolution)
        base.denoiser.check_size(network, size)
        names = projections(network, base.denoiser.targets)
        network = _adapted(base, dict.fromkeys(names, rank), seed)
        return cls(network, base, prompts, prompt, size, density)

    @property
    def encoding(self) -> str:
        return f"{self.base.fingerprint} {canonical_json(self.prompt)}"

    @property
    def fingerprint(self) -> str:
        described = [self.base.fingerprint, list(self.prompts), self.prompt, self.size, *self._more()]
        return tensors_fingerprint(self._adapter(), canonical_json(described))

    def _more(self) -> list[Any]:
        """Return what describes the model beside what the first releases had."""
        return [] if self.density is None else [asdict(self.density)]

    def _adapter(self) -> dict[str, Tensor]:
        """Return the adapter's weights on the CPU, by their names in the U-Net."""
        trained = ((name, p) for name, p in self.network.named_parameters() if p.requires_grad)
        return {name.replace(".default.", "."): p.detach().cpu().contiguous() for name, p in trained}

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
        prefix, scales = self.base.denoiser.component, _ranks_and_scales(_ranks(adapter))
        metadata = canonical_json({f"{prefix}.{key}": value for key, value in scales.items()})
        tensors = {f"{prefix}.{name}": tensor for name, tensor in adapter.items()}
        save_file(tensors, directory / WEIGHTS, {"format": "pt", "lora_adapter_metadata": metadata})
        description = {
            "family": self.family,
            "base": self.base.fingerprint,
            "prompts": self.prompts,
            "prompt": self.prompt,
            "size": self.size,
            **({} if self.density is None else {"density": asdict(self.density)}),
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
        prefix, description = f"{base.denoiser.component}.", read_json(config_file)
        tensors = {name.removeprefix(prefix): tensor for name, tensor in read_weights(file).items()}
        names = projections(base.network(), base.denoiser.targets)
        pairs = {f"{name}.{factor}.weight" for name in names for factor in ("lora_A", "lora_B")}
        if set(tensors) != pairs:
            raise UserError(f"{file}: not an adapter of this network's attention")
        network = _adapted(base, _ranks(tensors), seed=0)  # peft draws weights, which the saved ones replace
        named = dict(network.named_parameters())
        try:
            with torch.no_grad():
                for name, tensor in tensors.items():
                    named[name.replace(".weight", ".default.weight")].copy_(tensor)
        except RuntimeError as error:
            raise UserError(f"{file}: not an adapter of this network's attention ({error})") from None
        density = None if "density" not in description else Density(**description["density"])
        model = cls(network, base, prompts, prompt, size, density)
        check_undamaged(directory, model.fingerprint)
        return model


def projections(network: nn.Module, targets: tuple[str, ...]) -> list[str]:
    """Return the names of the linear layers of ``network`` that end like one of ``targets``."""
    linear = (name for name, module in network.named_modules() if isinstance(module, nn.Linear))
    return [name for name in linear if name.endswith(targets)]


def _ranks(adapter: Mapping[str, Tensor]) -> dict[str, int]:
    ending = ".lora_A.weight"
    return {name.removesuffix(ending): len(a) for name, a in adapter.items() if name.endswith(ending)}


def _adapted(base: Pipeline, ranks: dict[str, int], seed: int) -> nn.Module:
    """Return the network with a fresh adapter of scale α/r = 1, as diffusers reads an adapter file without α."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise UserError(MISSING_PACKAGES) from None
    network: Any = base.network()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = LoraConfig(**_ranks_and_scales(ranks), init_lora_weights="gaussian")
        if hasattr(network, "add_adapter"):
            network.add_adapter(config)
        else:  # some networks of diffusers have no loader of their own
            inject_adapter_in_model(config, network, "default")
    for parameter in network.parameters():
        if parameter.requires_grad:  # a base in bf16 gives adapters in bf16, which small steps would not change
            parameter.data = parameter.data.float()
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
    """``model: {family: lora}``: an adapter of ``rank`` on the network of the pipeline ``pretrained`` (a folder or a
    hub id). All images have one ``prompt`` or, without it, their captions.

    ``base`` is the precision of the pipeline's frozen weights: ``float32``, ``bf16`` or ``8bit`` (bitsandbytes); by
    default that in which such pipelines are used. ``density`` is the training density of σ of flow matching.
    ``denoiser`` names a class of your own, ``package.module:Class``, for a pipeline that is not known here.
    """

    pretrained: str
    rank: Rank = 16
    prompt: str | None = None
    base: BasePrecision | None = None
    density: Density | None = None
    denoiser: str | None = None

    nobody: ClassVar[str] = "the pipeline without an adapter"

    @property
    def pipeline(self) -> Pipeline:
        return pipeline(self.pretrained, self.denoiser, self.base)

    def identity(self) -> dict[str, Any]:
        own = self.pipeline
        known: dict[str, Any] = {"pretrained": own.fingerprint, "rank": self.rank, "prompt": self.prompt}
        if self.density is not None:
            known["density"] = asdict(self.density)
        if self.denoiser is not None:
            known["denoiser"] = code_of(own.denoiser)
        return known

    def start(self, contributions: Contributions, seed: int) -> TextToImageLoRA:
        resolution, prompts = contributions.images.shape[1], self._prompts(contributions)
        return TextToImageLoRA.create(self.pipeline, self.rank, prompts, self.prompt, resolution, seed, self.density)

    def _prompts(self, contributions: Contributions) -> list[str]:
        if self.prompt is not None:
            return [self.prompt]
        texts = texts_of(contributions, "model.prompt")
        if isinstance(labels := self.pipeline.conditioner, ClassLabels):
            for text in set(texts):
                labels.place(text)
        return mixed(texts)

    def load(self, directory: Path) -> TextToImageLoRA:
        return TextToImageLoRA.load(directory, self.pipeline)
