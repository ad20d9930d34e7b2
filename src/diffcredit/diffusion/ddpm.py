"""Networks that are trained whole: on pixels in [−1, 1], or on a frozen autoencoder's latents.

A network is a U-Net or a transformer of diffusers, possibly pruned. It follows nothing, a class label or a caption.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from annotated_types import Ge, Lt
from safetensors.torch import save_file
from torch import nn

from diffcredit.contributions import Contributions
from diffcredit.diffusion import networks, transformers
from diffcredit.diffusion.captions import CaptionEncoder, caption_encoder, mixed
from diffcredit.diffusion.conditions import ClassLabels, Conditioner
from diffcredit.diffusion.denoisers import NETWORKS
from diffcredit.diffusion.denoisers.base import Denoiser
from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.digests import tensors_fingerprint
from diffcredit.diffusion.first_stage import PIXELS, FirstStage, Pixels, first_stage
from diffcredit.diffusion.model import Family
from diffcredit.diffusion.objectives import FlowMatching, NoiseSchedule, Objective, objective_from
from diffcredit.diffusion.objectives.flow import Density
from diffcredit.diffusion.pretrained import (
    PretrainedNetwork,
    check_undamaged,
    read_description,
    read_json,
    read_weights,
)
from diffcredit.errors import UserError, located
from diffcredit.util.artifacts import canonical_json

UNET = "UNet2DModel"
GUIDANCE = 4.0  # of models that follow labels or captions, unless a study says otherwise


@dataclass(frozen=True)
class Following:
    """The labels or captions that images follow: ``conditioner`` makes their conditions, ``prompts`` are those
    that images are generated for, and ``dropout`` is the share of training images without their condition."""

    conditioner: Conditioner
    prompts: tuple[str, ...]
    dropout: float


class DDPM(DiffusersModel):
    """A network on pixels. ``config`` is that of the unpruned architecture, diffusers' class ``kind``; the widths of a
    pruned one follow from its weights. By default it predicts the noise (Ho et al. 2020)."""

    family = "ddpm"
    schedule: ClassVar[Mapping[str, Any]] = {
        "num_train_timesteps": 1000,
        "beta_start": 1e-4,
        "beta_end": 0.02,
        "beta_schedule": "linear",
        "clip_sample": True,
    }
    """The default noise schedule."""

    def __init__(
        self,
        network: nn.Module,
        config: Mapping[str, Any],
        objective: Objective | None = None,
        stage: FirstStage | Pixels = PIXELS,
        kind: str = UNET,
        following: Following | None = None,
    ) -> None:
        self.denoiser = denoiser_of(kind)
        self.network, self.kind = self.denoiser.prepared(network), kind
        self.config, self.stage = dict(config), stage
        self.objective = objective or NoiseSchedule(self.schedule)
        self.size = self.config["sample_size"]
        if following is not None:
            self.conditioner, self.prompts = following.conditioner, following.prompts
            self.condition_dropout, self.guidance = following.dropout, GUIDANCE if following.dropout else 1.0

    @classmethod
    def create(
        cls,
        preset: str,
        resolution: int,
        seed: int,
        stage: FirstStage | Pixels = PIXELS,
        objective: Objective | None = None,
        following: Following | None = None,
    ) -> Self:
        """Return an untrained model of a preset's architecture for square RGB images."""
        size = stage.size_of(resolution)
        labels = following.conditioner if following is not None else None
        classes = len(labels.names) if isinstance(labels, ClassLabels) else 0
        if preset in transformers.PRESETS:
            text = labels.widths if isinstance(labels, CaptionEncoder) else None
            kind, config = transformers.preset_config(
                preset, stage.channels, size, classes=classes, text=text, resolution=resolution
            )
            return cls(transformers.build(kind, config, seed), config, objective, stage, kind, following)
        config = networks.preset_config(preset, stage.channels, size, resolution=resolution)
        if isinstance(labels, CaptionEncoder):
            others = ", ".join(transformers.presets_of(transformers.MMDIT))
            raise UserError(f"model.preset: {preset!r} follows no captions; accepted with captions: {others}")
        if classes:
            config["num_class_embeds"] = classes + 1  # the last is that of no class
        return cls(networks.build(config, seed), config, objective, stage, UNET, following)

    @property
    def encoding(self) -> str:
        captions = self.conditioner if isinstance(self.conditioner, CaptionEncoder) else None
        return self.stage.fingerprint + ("" if captions is None else f" {captions.fingerprint}")

    @property
    def fingerprint(self) -> str:
        described = [self.config, self.objective.config, self.stage.fingerprint, *self._more().values()]
        return tensors_fingerprint(self.network.state_dict(), canonical_json(described))

    def _more(self) -> dict[str, Any]:
        """Return what describes the model beside what the first releases had."""
        more: dict[str, Any] = {} if self.kind == UNET else {"architecture": self.kind}
        if isinstance(self.conditioner, ClassLabels):
            more["labels"] = list(self.conditioner.names)
        elif isinstance(self.conditioner, CaptionEncoder):
            more["captions"] = self.conditioner.fingerprint
        if self.conditioner is not None:
            more |= {"prompts": list(self.prompts), "condition_dropout": self.condition_dropout}
        return more

    def untrained(self, seed: int) -> Self:
        model = self.clone()
        networks.reinitialise(model.network, seed)
        return model

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        save_file(tensors, directory / "model.safetensors")
        description = {"family": self.family, "network": self.config, "schedule": self.objective.config, **self._more()}
        description["fingerprint"] = self.fingerprint
        if self.stage.fingerprint:
            description["autoencoder"] = self.stage.fingerprint
        text = json.dumps(description, indent=2, ensure_ascii=False)
        (directory / "config.json").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: Path, stage: FirstStage | Pixels = PIXELS, captions: CaptionEncoder | None = None) -> Self:
        """Return the model saved in ``directory``, whose inputs are those of ``stage``."""
        config_file, weights_file = directory / "config.json", directory / "model.safetensors"
        schedule, config = read_description(directory, cls.family, "schedule", "network")
        tensors, description = read_weights(weights_file), read_json(config_file)
        try:
            kind = description.get("architecture", UNET)
            network = networks.rebuild(config, tensors, str(weights_file), kind)
            with located(config_file):
                following = _saved_following(description, captions)
                model = cls(network, config, objective_from(schedule), stage, kind, following)
        except (AttributeError, LookupError, TypeError, ValueError, RuntimeError, ArithmeticError) as error:
            raise UserError(f"{config_file}: not the description of a saved model ({error!r})") from None
        if description.get("autoencoder", "") != stage.fingerprint:
            raise UserError(f"{config_file}: made with another autoencoder than the one it is loaded with")
        check_undamaged(directory, model.fingerprint)
        return model


def denoiser_of(kind: str) -> Denoiser:
    """Return the denoiser of a network of diffusers' class ``kind``."""
    if kind not in NETWORKS:
        raise UserError(f"architecture {kind!r} is unknown; accepted: {', '.join(NETWORKS)}")
    module, _, name = NETWORKS[kind].partition(":")
    return getattr(import_module(module), name)()


def _saved_following(description: Mapping[str, Any], captions: CaptionEncoder | None) -> Following | None:
    """Return what a saved model's images follow; ``captions`` is the caption encoder that the study names."""
    if "prompts" not in description:
        return None
    conditioner: Conditioner | None = captions
    if "labels" in description:
        conditioner = ClassLabels(description["labels"])
    elif captions is None or captions.fingerprint != description["captions"]:
        raise UserError("made with another text encoder than the one it is loaded with")
    assert conditioner is not None
    return Following(conditioner, tuple(description["prompts"]), float(description["condition_dropout"]))


class LatentDiffusion(DDPM):
    """A network in the latent space of ``stage`` (Rombach et al. 2022)."""

    family = "latent"
    schedule: ClassVar = {
        **DDPM.schedule,
        "beta_start": 0.0015,
        "beta_end": 0.0195,
        "beta_schedule": "scaled_linear",
        "clip_sample": False,
    }


@dataclass(frozen=True)
class PixelFamily(Family):
    """``model: {family: ddpm}``: the architecture of a ``preset``, or a ``pretrained`` network of diffusers
    (a folder or hub id that ``from_pretrained`` reads), which is then the base model without further training.

    ``objective`` is ``noise`` (a network predicts the noise) or ``flow`` (flow matching), with the training ``density``
    of σ. ``conditions`` says what images follow: ``labels`` or ``captions``, which the contributions have as texts.
    The share ``condition_dropout`` of training images goes without, so that sampling can be guided. Captions need a
    ``text_encoder``, a folder or hub id.
    """

    preset: str | None = None
    pretrained: str | None = None
    objective: Literal["noise", "flow"] = "noise"
    density: Density | None = None
    conditions: Literal["labels", "captions"] | None = None
    condition_dropout: Annotated[float, Ge(0), Lt(1)] | None = None
    text_encoder: str | None = None

    nobody: ClassVar[str] = "the untrained network of the same architecture"
    model: ClassVar[type[DDPM]] = DDPM
    usual_dropout: ClassVar[float] = 0.1

    def __post_init__(self) -> None:
        if (self.preset is None) == (self.pretrained is None):
            raise ValueError("exactly one of preset and pretrained is expected")
        if self.density is not None and self.objective != "flow":
            raise ValueError("density is that of σ, for objective: flow; leave it out")
        if self.condition_dropout is not None and self.conditions is None:
            raise ValueError("condition_dropout needs conditions: labels or captions")
        if (self.text_encoder is not None) != (self.conditions == "captions"):
            raise ValueError("text_encoder and conditions: captions go together; give both or neither")
        if self.pretrained is not None and self.conditions == "captions":
            raise ValueError(
                "pretrained networks follow labels or nothing here; with captions, family: lora takes them"
            )

    @property
    def trained(self) -> bool:
        return self.pretrained is not None

    @property
    def stage(self) -> FirstStage | Pixels:
        return PIXELS

    def identity(self) -> dict[str, Any]:
        if self.pretrained is None:
            known: dict[str, Any] = {"preset": self.preset}
        else:
            known = {"pretrained": PretrainedNetwork.find(self.pretrained).fingerprint}
        if self.objective == "flow":
            known |= {"objective": "flow", "density": asdict(self.density or Density())}
        if self.conditions is not None:
            known |= {"conditions": self.conditions, "condition_dropout": self._dropout}
        if self.text_encoder is not None:
            known["text_encoder"] = caption_encoder(self.text_encoder).fingerprint
        return known

    @property
    def _dropout(self) -> float:
        return self.usual_dropout if self.condition_dropout is None else self.condition_dropout

    def start(self, contributions: Contributions, seed: int) -> DDPM:
        resolution, stage = contributions.images.shape[1], self.stage
        if self.preset is not None:
            following = self._following(contributions)
            return self.model.create(self.preset, resolution, seed, stage, self._objective(), following)
        found = PretrainedNetwork.find(str(self.pretrained))
        following = self._labels_of(found, contributions)
        network, config = found.load(channels=stage.channels, size=stage.size_of(resolution), resolution=resolution)
        objective = self._objective() or NoiseSchedule({**self.model.schedule, **(found.scheduler or {})})
        return self.model(network, config, objective, stage, found.kind, following)

    def _objective(self) -> Objective | None:
        if self.objective == "noise":
            return None
        density = self.density or Density()
        return FlowMatching(density, density.shift)

    def _following(self, contributions: Contributions) -> Following | None:
        if self.conditions is None:
            return None
        texts = texts_of(contributions, f"model.conditions: {self.conditions}: a text for every image is needed")
        if self.conditions == "labels":
            # a rare label may be that of held-out images alone
            labels = ClassLabels(sorted({*texts, *(contributions.heldout_captions or ())} - {""}))
            check_labels(labels, contributions)
            return Following(labels, tuple(mixed(texts)), self._dropout)
        return Following(caption_encoder(str(self.text_encoder)), tuple(mixed(texts)), self._dropout)

    def _labels_of(self, found: PretrainedNetwork, contributions: Contributions) -> Following | None:
        """Return what a pretrained network's images follow, and refuse labels that it does not know."""
        file, config, unet = found.folder / "config.json", found.config, found.kind == UNET
        if (other := config.get("class_embed_type")) is not None:
            raise UserError(f"{file}: class_embed_type {other!r}; accepted: null, with num_class_embeds for labels")
        known = config.get("num_class_embeds") if unet else config.get("num_embeds_ada_norm")
        if self.conditions is None:
            if known is not None and known > 1:
                raise UserError(f"{file}: a class-conditional network; model.conditions: labels is needed")
            return None
        if not known:
            raise UserError(f"{file}: a network without class labels; leave model.conditions out")
        texts = texts_of(contributions, "model.conditions: labels: a text for every image is needed")
        # where conditions are dropped, the last of a U-Net's classes is that of no class, as in our own; a DiT has it
        # beside its classes
        classes = known - 1 if unet and self._dropout else known
        labels = ClassLabels(found.labels or tuple(map(str, range(classes))))
        if len(labels.names) != classes:
            hint = "; condition_dropout: 0 leaves none for no label" if len(labels.names) == known else ""
            raise UserError(f"{file}: {classes} classes beside that of no label, and {len(labels.names)} names{hint}")
        check_labels(labels, contributions)
        return Following(labels, tuple(mixed(texts)), self._dropout)

    def load(self, directory: Path) -> DDPM:
        captions = None if self.text_encoder is None else caption_encoder(self.text_encoder)
        return self.model.load(directory, self.stage, captions)


def texts_of(contributions: Contributions, what: str) -> tuple[str, ...]:
    """Return each image's caption or label; raise a UserError that starts with ``what`` if one is missing."""
    if contributions.captions is None:
        raise UserError(f"{what}; the contributions have none")
    captioned = zip(contributions.names, contributions.captions, strict=True)
    if without := [name for name, caption in captioned if not caption]:
        raise UserError(
            f"{what}; {len(without)} of {len(contributions.names)} images have none, such as {without[0]!r}"
        )
    return contributions.captions


def check_labels(labels: ClassLabels, contributions: Contributions) -> None:
    """Raise a UserError where an image, a held-out one too, has a label that is not known."""
    images = [*zip(contributions.names, contributions.captions or (), strict=False)]
    held_out = contributions.heldout_names or ["a held-out image"] * len(contributions.heldout)
    images += zip(held_out, contributions.heldout_captions or (), strict=False)
    for name, text in images:
        with located(f"contributions: {name}"):
            labels.place(text)


@dataclass(frozen=True)
class LatentFamily(PixelFamily):
    """``model: {family: latent}``, with a ``preset`` or a ``pretrained`` network. ``autoencoder`` is a folder or hub
    id; a pretrained pipeline may have its own."""

    autoencoder: str | None = None

    model: ClassVar[type[DDPM]] = LatentDiffusion

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preset is not None and self.autoencoder is None:
            raise ValueError("autoencoder is missing: a folder or hub id of AutoencoderKL, AutoencoderTiny or VQModel")

    @property
    def stage(self) -> FirstStage:
        return first_stage(str(self.autoencoder or self.pretrained))

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"autoencoder": self.stage.fingerprint}
