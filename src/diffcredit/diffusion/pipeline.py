"""The frozen parts of a text-to-image model: a pipeline of diffusers, read once per process and shared."""

import hashlib
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from diffcredit.diffusion.conditions import ClassLabels, Conditioner
from diffcredit.diffusion.denoisers import PIPELINES
from diffcredit.diffusion.denoisers.base import PipelineDenoiser, TextDenoiser
from diffcredit.diffusion.denoisers.refusals import reason_against
from diffcredit.diffusion.eight_bit import in_8_bits
from diffcredit.diffusion.first_stage import FirstStage, first_stage
from diffcredit.diffusion.frozen import FrozenBase
from diffcredit.diffusion.objectives import FlowMatching, NoiseSchedule, Objective
from diffcredit.diffusion.objectives.flow import Density
from diffcredit.diffusion.pretrained import (
    convert,
    folder_of,
    labels_of,
    load_pretrained,
    loading,
    quiet,
    read_json,
    read_schedule,
    weights_fingerprint,
)
from diffcredit.diffusion.texts import MISSING_PACKAGES, TextEncoders
from diffcredit.errors import UserError, located
from diffcredit.util.plugins import build
from diffcredit.util.sanitize import shortened

BasePrecision = Literal["float32", "bf16", "8bit"]


class Pipeline(FrozenBase):
    """A pipeline in ``folder``: network, autoencoder, text encoders, objective. ``denoiser`` is the user's own, if not
    one of ours; ``precision`` is that of the frozen weights. The network is read when it is first needed."""

    def __init__(
        self, folder: Path, denoiser: PipelineDenoiser | None = None, precision: BasePrecision | None = None
    ) -> None:
        self.folder = folder
        self.index = read_json(folder / "model_index.json")
        self.denoiser: PipelineDenoiser = denoiser or find_denoiser(folder, self.index)
        name = self.denoiser.component
        texts = self.denoiser.parts if isinstance(self.denoiser, TextDenoiser) else ()
        self.parts: tuple[str, ...] = (name, "vae", *texts, "scheduler")
        for part in self.parts:
            if not (folder / part).is_dir() and (self.index.get(part) or [None])[0] is not None:
                raise UserError(f"{folder}: has no folder {part!r}, which model_index.json names")
        for part in (name, "vae", "scheduler"):
            if not (folder / part).is_dir():
                kind = self.index["_class_name"]
                raise UserError(f"{folder}: has no folder {part!r}; a {kind} has {', '.join(self.parts)}")
        self.precision: BasePrecision = precision or self.denoiser.precision
        self.config = read_json(folder / name / "config.json")
        self.denoiser.check(folder, self.index, self.config)
        if (kind := self.config.get("_class_name")) != self.denoiser.network:
            accepted = self.denoiser.network
            raise UserError(f"{folder / name / 'config.json'}: _class_name {kind!r}; accepted: {accepted}")
        self.computes = None if self.precision == "float32" else torch.bfloat16
        self.guidance, self.fingerprint = self.denoiser.guidance, self._fingerprint()
        self.stage: FirstStage = first_stage(str(folder))
        self.conditioner: Conditioner = self._make_conditioner()
        self.objective(8)  # refuses what it cannot read now, not later

    @cached_property
    def outline(self) -> nn.Module:
        """The network without numbers, by its config; linear layers are not in 8 bits."""
        import diffusers

        with loading(getattr(diffusers, self.denoiser.network), self.folder / self.denoiser.component), quiet():
            network = empty_network(self.denoiser.network, dict(self.config))
        convert(network, self.computes or torch.float32)
        return self.denoiser.prepared(network.eval()).requires_grad_(False)

    @cached_property
    def _network(self) -> nn.Module:
        import diffusers

        kind, folder = getattr(diffusers, self.denoiser.network), self.folder / self.denoiser.component
        loaded = self.denoiser.prepared(load_pretrained(kind, folder, self.computes or torch.float32))
        if self.precision == "8bit":
            in_8_bits(loaded)
        return loaded.requires_grad_(False)

    def _make_conditioner(self) -> Conditioner:
        if not isinstance(self.denoiser, TextDenoiser):
            classes = self.config["num_embeds_ada_norm"]
            labels = labels_of(self.folder) or tuple(map(str, range(classes)))
            if len(labels) != classes:  # the class after the last one is that of no label
                file = self.folder / "model_index.json"
                raise UserError(f"{file}: id2label names {len(labels)} classes, and the network has {classes}")
            return ClassLabels(labels)
        return TextEncoders(self.folder, self.denoiser, self.index, self.computes or torch.float32)

    def _fingerprint(self) -> str:
        parts = [weights_fingerprint(self.folder / part) for part in self.parts if (self.folder / part).is_dir()]
        settings = self.denoiser.told if isinstance(self.denoiser, TextDenoiser) else ("id2label",)
        told = [f"{name}={self.index[name]}" for name in settings if name in self.index]
        lossy = [] if self.precision == "float32" else [self.precision]
        return hashlib.sha256("".join([*parts, *told, *lossy]).encode()).hexdigest()

    def objective(self, side: int, density: Density | None = None) -> Objective:
        """Return the objective for latents (c, side, side); ``density`` is the training density of σ, by default the
        usual one of this kind of pipeline with the scheduler's static shift."""
        file = self.folder / "scheduler" / "scheduler_config.json"
        config = read_json(file)
        if not is_flow(config):
            if density is not None:
                raise UserError(f"model.density: {self.folder} has a noise schedule and no density of σ; leave it out")
            # latents are not clipped, even if the scheduler's config does not say so
            return NoiseSchedule({"clip_sample": False, **read_schedule(self.folder)})
        with located(file):
            scheduler = flow_scheduler(config)
        settings: Any = scheduler.config
        dynamic, usual = settings.get("use_dynamic_shifting"), self.denoiser.density
        shift = float(settings.get("flow_shift") or settings.get("shift") or 1.0)
        return FlowMatching(
            density or Density(usual.name, usual.mean, usual.std, usual.shift if dynamic else shift),
            1.0 if dynamic else shift,
            lambda steps: self.denoiser.sigmas(type(scheduler).from_config(settings), steps, side),
        )


def is_flow(config: dict[str, Any]) -> bool:
    """Return whether a scheduler's config is that of flow matching."""
    return "FlowMatch" in str(config.get("_class_name")) or bool(config.get("use_flow_sigmas"))


def flow_scheduler(config: dict[str, Any]) -> Any:
    """Return the scheduler that gives the noise levels of sampling: Euler's, or one of DPM-Solver++, whose own levels
    Euler's method takes as well."""
    from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
    from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler

    kind = str(config.get("_class_name"))
    if kind == "FlowMatchEulerDiscreteScheduler":
        return FlowMatchEulerDiscreteScheduler.from_config(config)
    if kind == "DPMSolverMultistepScheduler":
        return DPMSolverMultistepScheduler.from_config(config)
    raise UserError(
        f"_class_name {kind!r}; accepted for flow matching: FlowMatchEulerDiscreteScheduler, "
        "DPMSolverMultistepScheduler"
    )


def find_denoiser(folder: Path, index: dict[str, Any]) -> PipelineDenoiser:
    """Return the denoiser of a pipeline, given its ``model_index.json``."""
    kind = index.get("_class_name")
    if kind not in PIPELINES and (reason := reason_against(str(kind))) is not None:
        raise UserError(
            f"{folder / 'model_index.json'}: _class_name {kind!r}: {reason}; accepted: {', '.join(PIPELINES)}"
        )
    if kind not in PIPELINES:
        raise UserError(
            f"{folder / 'model_index.json'}: _class_name {kind!r}; accepted: {', '.join(PIPELINES)}, or a class of "
            "your own as model.denoiser: my_package.module:MyDenoiser"
        )
    module, _, name = PIPELINES[kind].partition(":")
    return getattr(import_module(module), name)()


def own_denoiser(reference: str, beside: Path) -> PipelineDenoiser:
    """Return the denoiser of a user's class, ``package.module:Class``, which is looked for ``beside`` the study file as
    well as among installed packages."""
    denoiser = build(reference, {}, {}, where="model.denoiser", beside=beside)
    if not isinstance(denoiser, PipelineDenoiser):
        raise UserError(
            f"model.denoiser: {shortened(reference)} is no PipelineDenoiser; a class that inherits from TextDenoiser, "
            "or from PipelineDenoiser for class labels, is expected (diffcredit.diffusion.denoisers.base)"
        )
    for member in ("network", "guidance", *(("parts",) if isinstance(denoiser, TextDenoiser) else ())):
        if not hasattr(denoiser, member):
            raise UserError(f"model.denoiser: {shortened(reference)} has no {member}, which a denoiser has")
    return denoiser


def empty_network(kind: str, config: dict[str, Any]) -> nn.Module:
    """Return a network of diffusers' class ``kind`` without weights, which its ``config`` describes."""
    import diffusers

    with torch.device("meta"):
        return getattr(diffusers, kind).from_config(config)


@lru_cache(maxsize=2)
def pipeline(
    reference: str,
    denoiser: str | None = None,
    precision: BasePrecision | None = None,
    beside: Path = Path(),
) -> Pipeline:
    """Return the pipeline of a folder or hub id. ``denoiser`` names a class of the user's own,
    ``package.module:Class``, which is looked for ``beside`` the study file."""
    try:
        import peft  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        raise UserError(MISSING_PACKAGES) from None
    own = None if denoiser is None else own_denoiser(denoiser, beside)
    return Pipeline(folder_of(reference), own, precision)
