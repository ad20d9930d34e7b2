"""Everything that a study makes once and keeps: its base model, that model's images, its fitted properties. It needs
torch, which reading a ledger does not."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from diffcredit.diffusion import FAMILIES
from diffcredit.diffusion.conditions import ClassLabels
from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.model import DiffusionModel, Family, Images
from diffcredit.diffusion.training import kept_model
from diffcredit.errors import UserError, located
from diffcredit.execution.threads import limited_threads
from diffcredit.features.extractors import Extractors
from diffcredit.ledger import PropertyRecord
from diffcredit.properties import PROPERTIES, Context, Property, named_property
from diffcredit.properties.base import State, needs_features, needs_fitting, property_of
from diffcredit.properties.prompted import for_prompts
from diffcredit.study import identity
from diffcredit.study.config import StudyConfig
from diffcredit.study.sections import PropertySection
from diffcredit.util.artifacts import fingerprint_arrays, read_arrays, write_arrays
from diffcredit.util.events import stage
from diffcredit.util.plugins import build, in_plugin
from diffcredit.util.seeds import derive_seed

if TYPE_CHECKING:
    from diffcredit.study.study import Study


class Prepared:
    """The models, images and fitted properties of one study, each made on first use and found again in its cache.
    Several processes may prepare one study: one makes an artifact while the others wait. An object belongs to one
    thread."""

    def __init__(self, study: "Study") -> None:
        self.config, self.file, self.contributions = study.config, study.file, study.contributions
        self.cache, self.progress = study.cache, study.progress

    @cached_property
    def device(self) -> torch.device:
        """The study's device; ``auto`` is the first CUDA device, or else the CPU."""
        name = self.config.device
        if name == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        device = torch.device(name)
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            seen = torch.cuda.device_count() or "no"
            raise UserError(
                f"{self.file}: device: {name!r}, but torch sees {seen} CUDA devices here; accepted: auto, cpu"
            )
        return device

    # The base model.
    @cached_property
    def family(self) -> Family:
        """The study file's model section, built."""
        return build_family(self.config, self.file)

    @cached_property
    def model_settings(self) -> dict[str, Any]:
        return identity.model_settings(self.config.model, self.family, f"{self.file}: model")

    @cached_property
    def base_identity(self) -> str:
        return identity.base_identity(self.contributions, self.model_settings, self.config.model_seed)

    @property
    def base_folder(self) -> Path:
        return self.cache.path("base", self.base_identity)

    @property
    def has_base(self) -> bool:
        """Whether the base model needs no training: it came trained, or it is in the cache."""
        return self.family.trained or self.base_folder.exists()

    @cached_property
    def base(self) -> DiffusionModel:
        """The study file's model trained on all contributions; one that comes trained is taken as it is."""
        with stage("base model"):
            return self.start() if self.family.trained else self._trained(0, "training the base model")

    def start(self, replicate: int = 0) -> DiffusionModel:
        """Return the base model before its training, on the study's device."""
        with located(self.file):
            start = self.family.start(self.contributions, self._seed("base", replicate))
            # raises where the model's noise schedule cannot be sampled with these settings
            start.objective.sampler(self.config.sampling.scheduler, self.config.sampling.steps)
        self.prompts(start)  # raises where it cannot follow them
        return self._keeping_conditions(start).to(self.device)

    def _keeping_conditions(self, model: DiffusionModel) -> DiffusionModel:
        """Have the conditions of texts, which ``model`` makes, kept beside the study's encoded images."""
        conditioner = model.conditioner if isinstance(model, DiffusersModel) else None
        if conditioner is not None and conditioner.costly:
            conditioner.kept_in = self.cache.folder
        return model

    def start_and_seed(self) -> tuple[DiffusionModel, int]:
        """Return the base model before its training, and the seed of that training."""
        return self.start(), self._seed("train")

    def replicate(self, number: int) -> DiffusionModel:
        """Return a model trained like the base model from another initialisation and data order: 1, 2, …"""
        return self._trained(number, f"training replicate {number} of the base model")

    def load(self, folder: Path) -> DiffusionModel:
        """Return a model that was saved in ``folder``, on the study's device."""
        return self._keeping_conditions(self.family.load(folder)).to(self.device)

    def _trained(self, replicate: int, what: str) -> DiffusionModel:
        kind = f"replicate-{replicate}" if replicate else "base"
        folder = self.cache.path(kind, self.base_identity)

        def trained() -> DiffusionModel:
            timed = nullcontext() if folder.exists() else self.cache.timed(folder.name)
            with limited_threads(self.config.threads), timed:
                return kept_model(
                    folder,
                    self.load,
                    lambda: self.start(replicate),
                    self.contributions,
                    self.config.model.train,
                    seed=self._seed("train", replicate),
                    what=what,
                    progress=self.progress,
                    device=self.device,
                )

        if folder.exists():
            return trained()
        return self.cache.made_once(folder.name, what.removeprefix("training "), trained)

    def _seed(self, use: str, replicate: int = 0) -> int:
        return derive_seed(self.config.model_seed, use, *([replicate] if replicate else []))

    def generated_images(self) -> Images:
        """Return the base model's images from the study's initial noises, (m, h, w, 3)."""
        sampling = self.config.sampling

        def sample(file: Path) -> None:
            self.progress("sampling the base model", 0, sampling.images)
            with limited_threads(self.config.threads):
                images = generate(self.base, sampling)
            write_arrays(file, {"images": images})
            self.progress("sampling the base model", sampling.images, sampling.images)

        what = "the base model's images"
        return self.cache.get(
            "generated", self._generated_identity, sample, read_arrays, suffix=".safetensors", what=what
        )["images"]

    @property
    def has_generated(self) -> bool:
        """Whether the base model's images are in the cache."""
        return self.cache.path("generated", self._generated_identity, ".safetensors").exists()

    @property
    def _generated_identity(self) -> str:
        return identity.generated_identity(self.base_identity, self.config.sampling)

    def prompts(self, model: DiffusionModel) -> tuple[str, ...] | None:
        """Return the prompt of each of the study's images, by its seed; None for a model without prompts."""
        if self.config.sampling.prompts is not None:
            with located(f"{self.file}: sampling.prompts"):
                _check_prompts(model, self.config.sampling.prompts)
        return self.config.sampling.prompts_of_images(model.prompts)

    # Properties.
    @cached_property
    def extractors(self) -> Extractors:
        """The study's feature extractors, each loaded once, on its device."""
        return Extractors(str(self.device), self.file.parent, self.cache.folder, self.progress)

    @cached_property
    def properties(self) -> list[Property]:
        """The study file's properties, fitted once to the base model's images where they need fitting."""
        with stage("properties"):
            properties = build_properties(self.config, self.file)
            for index, prop in enumerate(properties):
                if needs_fitting(prop):
                    with located(f"{self.file}: properties.{index}"):
                        state = self._state(index, prop, len(properties))
                        with in_plugin(f"{prop.name}: restore(state)"):
                            prop.restore(state)
            return properties

    def _state(self, index: int, prop: Property, count: int) -> State:
        """Return what a property has learned, from the cache or by fitting it now."""

        def fit(file: Path) -> None:
            self.progress("fitting properties", index, count)
            context = self.context()
            with in_plugin(f"{prop.name}: fit(context)"), limited_threads(self.config.threads):
                write_arrays(file, {name: np.asarray(array) for name, array in prop.fit(context).items()})

        key, what = self._state_identity(index, prop), f"property {prop.name!r}"
        return self.cache.get("property", key, fit, read_arrays, suffix=".safetensors", what=what)

    def context(self) -> Context:
        """Return the data that the study's properties are fitted to."""
        return Context(self.generated_images(), self.contributions, self.extractors, self.prompts(self.base))

    def states(self, properties: Sequence[Property]) -> dict[str, State]:
        """Return the cached states of the fitted ones among the study file's ``properties``, by name."""
        files = {prop.name: self._state_file(at, prop) for at, prop in enumerate(properties) if needs_fitting(prop)}
        return {name: read_arrays(file) for name, file in files.items() if file.exists()}

    def property_records(self) -> list[PropertyRecord]:
        """Return each property's record for the ledger, from the files as they are now."""
        records = []
        for index, (section, prop) in enumerate(zip(self.config.properties, self.properties, strict=True)):
            settings = identity.property_settings(prop, section.options, self._features(prop))
            state = fingerprint_arrays(read_arrays(self._state_file(index, prop))) if needs_fitting(prop) else ""
            settings = {"name": section.name, **settings}
            records.append(PropertyRecord(prop.name, settings, prop.higher_is_better, state))
        return records

    def _state_identity(self, index: int, prop: Property) -> str:
        section, sampling = self.config.properties[index], self.config.sampling
        settings = identity.stated_settings(prop, section.options)
        return identity.state_identity(self.base_identity, sampling, section.name, settings, self._features(prop))

    def _state_file(self, index: int, prop: Property) -> Path:
        return self.cache.path("property", self._state_identity(index, prop), ".safetensors")

    def _features(self, prop: Property) -> dict[str, Any] | None:
        """Return the identity of a property's extractor, if it has one."""
        return self.extractors.identity(prop.features) if needs_features(prop) else None


def _check_prompts(model: DiffusionModel, prompts: Sequence[str]) -> None:
    """Refuse prompts for a model that follows none, or that are none of its classes."""
    if not model.prompts:
        raise UserError("the model follows no prompts; leave them out")
    labels = getattr(model, "conditioner", None)
    if isinstance(labels, ClassLabels):
        for prompt in prompts:
            labels.place(prompt)


def build_family(config: StudyConfig, file: Path) -> Family:
    """Build the model section of a study file; nothing is trained or loaded."""
    section, where = config.model, f"{file}: model"
    family = build(section.family, section.options, FAMILIES, where=where, beside=file.parent)
    for member in ("nobody", "trained", "identity", "start", "load"):
        if not hasattr(type(family), member):
            raise UserError(f"{where}: {section.family!r} has no {member}; a Family is expected")
    if isinstance(family, Family):
        object.__setattr__(family, "beside", file.parent)  # families are frozen
    follows = section.family not in ("ddpm", "latent") or section.options.get("conditions") is not None
    if config.sampling.guidance is not None and not follows:
        raise UserError(
            f"{file}: sampling.guidance: this model follows nothing; leave it out, or give model.conditions"
        )
    never = "preset" in section.options and section.options.get("condition_dropout") == 0
    if config.sampling.guidance not in (None, 1) and never:
        raise UserError(
            f"{file}: sampling.guidance: {config.sampling.guidance:g}, and with model.condition_dropout: 0 the model "
            "does not learn what guidance starts from; leave one of them out"
        )
    return family


def build_properties(config: StudyConfig, file: Path) -> list[Property]:
    """Build the properties of a study file, not yet fitted."""
    properties = []
    for index, section in enumerate(config.properties):
        where = f"{file}: properties.{index}"
        prop = build_property(section, where, file.parent)
        if prop.name in [other.name for other in properties]:
            raise UserError(f"{where}: {prop.name!r} is there twice; distinguish them with 'as: another-name'")
        properties.append(prop)
    return properties


def build_property(section: PropertySection, where: str, beside: Path) -> Property:
    """Build one property, not yet fitted. ``where`` begins error messages; plug-ins are looked for in ``beside``."""
    component = build(section.name, section.options, PROPERTIES, where=where, beside=beside, of_function=property_of)
    with located(where):
        return for_prompts(named_property(component, section.name, section.label), section.prompts)
