"""Text-to-image: a LoRA adapter on the network of a frozen pipeline."""

import copy
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
from torch import nn

from diffcredit.contributions import Contributions
from diffcredit.diffusion.adapter_files import read_adapter
from diffcredit.diffusion.adapters import (
    WEIGHTS,
    Adapter,
    adapter_of,
    fitting,
    fresh,
    projections,
    with_adapter,
    write_adapter,
)
from diffcredit.diffusion.captions import mixed
from diffcredit.diffusion.conditions import ClassLabels
from diffcredit.diffusion.ddpm import check_labels, texts_of
from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.digests import tensors_fingerprint
from diffcredit.diffusion.frozen import FrozenBase
from diffcredit.diffusion.model import Family
from diffcredit.diffusion.objectives.flow import Density
from diffcredit.diffusion.pipeline import BasePrecision, Pipeline, pipeline
from diffcredit.diffusion.pretrained import check_undamaged, read_description, read_json, read_weights
from diffcredit.diffusion.saved_base import is_saved, saved_base
from diffcredit.diffusion.settings import Rank
from diffcredit.diffusion.sharing import copy_sharing_frozen
from diffcredit.errors import UserError, located
from diffcredit.util.artifacts import canonical_json
from diffcredit.util.plugins import code_of

PROMPT_OR_CAPTIONS = "model.prompt: missing, and then a caption for every image is needed"


class TextToImageLoRA(DiffusersModel):
    """A pipeline whose network has an adapter W + s B A, by default on every attention projection; only A and B are
    trained. The image of seed s follows prompt s mod k of ``prompts``. ``prompt``, if given, is the caption of all
    training images. ``density`` is the training density of σ, where the pipeline's own is not meant."""

    family = "lora"

    def __init__(
        self,
        network: nn.Module,
        base: FrozenBase,
        prompts: Sequence[str],
        prompt: str | None,
        size: int,
        density: Density | None = None,
    ) -> None:
        self.network, self.base, self.density = network.eval(), base, density
        self.denoiser, self.stage, self.conditioner = base.denoiser, base.stage, base.conditioner
        self.objective, self.computes = base.objective(size, density), base.computes
        self.guidance = base.guidance
        self.prompts, self.prompt, self.size = tuple(prompts), prompt, size

    @classmethod
    def create(
        cls,
        base: FrozenBase,
        adapter: int | Adapter,
        prompts: Sequence[str],
        prompt: str | None,
        resolution: int,
        seed: int,
        density: Density | None = None,
    ) -> Self:
        """Return a model with a fresh adapter of this rank (A normal, B zero), which generates the images of the
        pipeline itself, or with a trained one."""
        size = base.stage.size_of(resolution)
        with located(f"contributions.resolution: {resolution}"):
            base.denoiser.check_size(base.outline, size)
        if isinstance(adapter, Adapter):
            return cls(with_adapter(base, adapter), base, prompts, prompt, size, density)
        ranks = dict.fromkeys(projections(base.outline, base.denoiser.targets), adapter)
        return cls(fresh(base, ranks, {}, seed), base, prompts, prompt, size, density)

    def clone(self) -> Self:
        clone = copy.copy(self)
        clone.network = copy_sharing_frozen(self.network, buffers=True)
        return clone

    def to(self, device: torch.device | str) -> Self:
        self.base.move(self.network, device)
        return self

    @property
    def encoding(self) -> str:
        return f"{self.base.fingerprint} {canonical_json(self.prompt)}"

    @property
    def fingerprint(self) -> str:
        adapter = adapter_of(self.network)
        described = [self.base.fingerprint, list(self.prompts), self.prompt, self.size, *self._more(adapter).values()]
        return tensors_fingerprint(adapter.tensors, canonical_json(described))

    def _more(self, adapter: Adapter) -> dict[str, Any]:
        """Return what describes the model beside what the first releases had."""
        density = {} if self.density is None else {"density": asdict(self.density)}
        return density | ({"scales": dict(adapter.scales)} if adapter.scales else {})

    def untrained(self, seed: int) -> Self:
        """Return the pipeline with a fresh adapter of the same layers, ranks and scales."""
        model, adapter = copy.copy(self), adapter_of(self.network)
        model.network = fresh(self.base, adapter.ranks, adapter.scales, seed).eval()
        return model.to(self.device)

    def save(self, directory: Path) -> None:
        """Write the adapter as diffusers does, so that any pipeline of this base loads it, and a description."""
        directory.mkdir(parents=True, exist_ok=True)
        adapter = adapter_of(self.network)
        write_adapter(adapter, self.base.denoiser.component, directory / WEIGHTS)
        description = {
            "family": self.family,
            "base": self.base.fingerprint,
            "prompts": self.prompts,
            "prompt": self.prompt,
            "size": self.size,
            **self._more(adapter),
            "fingerprint": self.fingerprint,
        }
        text = json.dumps(description, indent=2, ensure_ascii=False)
        (directory / "config.json").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: Path, base: FrozenBase) -> Self:
        """Return the adapter in ``directory``, on the pipeline that it was trained on."""
        file, config_file = directory / WEIGHTS, directory / "config.json"
        known, prompts, prompt, size = read_description(directory, cls.family, "base", "prompts", "prompt", "size")
        if known != base.fingerprint:
            raise UserError(f"{config_file}: the adapter of another base than {base.folder}")
        prefix, description = f"{base.denoiser.component}.", read_json(config_file)
        tensors = {name.removeprefix(prefix): tensor for name, tensor in read_weights(file).items()}
        fitting(tensors, base, file)
        adapter = Adapter(tensors, description.get("scales", {}))
        density = None if "density" not in description else Density(**description["density"])
        model = cls(with_adapter(base, adapter), base, prompts, prompt, size, density)
        check_undamaged(directory, model.fingerprint)
        return model


@dataclass(frozen=True)
class LoRAFamily(Family):
    """``model: {family: lora}``: an adapter of ``rank`` on the network of the pipeline ``pretrained`` (a folder or a
    hub id). All images have one ``prompt`` or, without it, their captions.

    ``adapter`` is a safetensors file, or a folder with one, that was trained on all contributions elsewhere. It is then
    the base model without further training, with its own layers, ranks and scales.

    ``base`` is the precision of the pipeline's frozen weights: ``float32``, ``bf16`` or ``8bit`` (bitsandbytes); by
    default that in which such pipelines are used. ``density`` is the training density of σ of flow matching.
    ``denoiser`` names a class of your own, ``package.module:Class``, for a pipeline that is not known here.

    ``pretrained`` may also be a model that follows labels or captions and that another study trained whole; what it
    was trained with, an ``autoencoder`` and a ``text_encoder``, is then named again.
    """

    pretrained: str
    rank: Rank | None = None
    prompt: str | None = None
    base: BasePrecision | None = None
    density: Density | None = None
    denoiser: str | None = None
    autoencoder: str | None = None
    text_encoder: str | None = None
    adapter: str | None = None

    nobody: ClassVar[str] = "the pipeline without an adapter"
    usual_rank: ClassVar[int] = 16

    def __post_init__(self) -> None:
        if is_saved(self.pretrained):
            if self.base is not None or self.denoiser is not None or self.adapter is not None:
                raise ValueError("base, denoiser and adapter go with a pipeline; pretrained is the model of a study")
        elif self.autoencoder is not None or self.text_encoder is not None:
            raise ValueError("autoencoder and text_encoder are for a model of a study; a pipeline has its own")

    @property
    def frozen(self) -> FrozenBase:
        """The frozen base that the adapter changes."""
        if is_saved(self.pretrained):
            return saved_base(self.pretrained, self.autoencoder, self.text_encoder)
        return pipeline(self.pretrained, self.denoiser, self.base, self.beside)

    @property
    def trained(self) -> bool:
        return self.adapter is not None

    @cached_property
    def first_adapter(self) -> int | Adapter:
        """The adapter that was trained elsewhere, or the rank of a fresh one; no weight of the pipeline is read."""
        if self.adapter is None:
            return self.usual_rank if self.rank is None else self.rank
        given = read_adapter(Path(self.adapter).expanduser(), cast(Pipeline, self.frozen))
        if self.rank is not None and (ranks := {*given.ranks.values()}) != {self.rank}:
            has = f"rank {min(ranks)}" if len(ranks) == 1 else f"ranks from {min(ranks)} to {max(ranks)}"
            raise UserError(f"model.rank: {self.rank}, but {self.adapter} has {has}; leave rank out")
        return given

    def identity(self) -> dict[str, Any]:
        own, adapter = self.frozen, self.first_adapter
        start = {"adapter": adapter.fingerprint} if isinstance(adapter, Adapter) else {"rank": adapter}
        known: dict[str, Any] = {"pretrained": own.fingerprint, **start, "prompt": self.prompt}
        if self.density is not None:
            known["density"] = asdict(self.density)
        if self.denoiser is not None:
            known["denoiser"] = {"name": self.denoiser, **code_of(own.denoiser)}
        return known

    def start(self, contributions: Contributions, seed: int) -> TextToImageLoRA:
        resolution, prompts = contributions.images.shape[1], self._prompts(contributions)
        return TextToImageLoRA.create(
            self.frozen, self.first_adapter, prompts, self.prompt, resolution, seed, self.density
        )

    def _prompts(self, contributions: Contributions) -> list[str]:
        if self.prompt is not None:
            return [self.prompt]
        if isinstance(labels := self.frozen.conditioner, ClassLabels):
            check_labels(labels, contributions)
        return mixed(texts_of(contributions, PROMPT_OR_CAPTIONS))

    def load(self, directory: Path) -> TextToImageLoRA:
        return TextToImageLoRA.load(directory, self.frozen)
