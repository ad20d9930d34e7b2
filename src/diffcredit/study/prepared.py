"""What is made once a study and kept in its folder: the base model, the prepared retraining, fitted properties.

A file's name carries the fingerprint of what it was made from, so that a changed setting makes another file
and never takes up a stale one.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from diffcredit.contributions import Contributions
from diffcredit.diffusion import FAMILIES
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.kept import kept_model
from diffcredit.diffusion.optimizers import check_optimizer
from diffcredit.diffusion.protocol import DiffusionModel, Family, Images
from diffcredit.errors import UserError, located
from diffcredit.execution.keeping import Keeper
from diffcredit.execution.threads import limited_threads
from diffcredit.features.extractors import Extractors
from diffcredit.features.protocol import option_key, option_name
from diffcredit.features.weights import file_hash, folder_hash
from diffcredit.ledger import Ledger, NoLedger, PropertyRecord, RecipeRecord
from diffcredit.properties import PROPERTIES, Context
from diffcredit.properties.functions import property_of
from diffcredit.properties.measuring import check_enough, needs_features
from diffcredit.properties.protocol import State
from diffcredit.retraining import RETRAININGS
from diffcredit.retraining.protocol import Ground, Rehearsal, Retraining
from diffcredit.study.config import PATHS
from diffcredit.study.schedule import check_schedule
from diffcredit.surrogates import Material
from diffcredit.util.artifacts import (
    canonical_json,
    exclusive_lock,
    fingerprint,
    fingerprint_arrays,
    read_arrays,
    write_arrays,
    write_text,
)
from diffcredit.util.plugins import build, code_of, in_plugin, settings_of
from diffcredit.util.seeds import derive_seed
from diffcredit.util.store import pull, push, redacted_url

if TYPE_CHECKING:
    from diffcredit.study.study import Study

T = TypeVar("T")

MEASURES = ("measure(images)", "measure_features(features)", "measure_model(model)")


def device_of(study: "Study") -> torch.device:
    """The study's device; ``auto`` is the first CUDA device, or else the CPU."""
    name = study.config.device
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        seen = torch.cuda.device_count() or "no"
        raise UserError(f"{study.file}: device: {name!r}, but torch sees {seen} CUDA devices here; accepted: auto, cpu")
    return device


def check(study: "Study") -> None:
    """Finds mistakes that would otherwise show only after hours of training."""
    contributions, images = study.contributions, study.config.sampling.images
    device_of(study)
    properties = build_properties(study)
    for index, prop in enumerate(properties):
        with located(f"{study.file}: properties.{index}"), in_plugin(f"{prop.name}: its check"):
            if hasattr(prop, "check"):
                prop.check(contributions, images)
            if needs_features(prop):
                check_features(prop, study.extractors, contributions, images)
    if study.config.keep == "features" and not any(map(needs_features, properties)):
        raise UserError(f"{study.file}: keep: features, but no property of the study has any; keep images, for example")
    with located(study.file):
        check_schedule(study.config, contributions.n, [prop.name for prop in properties])
    if study.surrogates.names:
        study.surrogates.check(contributions, build_retraining(study))
    with located(study.file):
        check_optimizer(study.config.model.train)
    if not base_is_there(study):
        start, _ = start_and_rehearsal(study)
        for section in study.config.compared:  # which are evaluated much later
            rehearsed(study.by(section, 1), start)
        for index, prop in enumerate(properties):
            if hasattr(prop, "check_prompts"):
                with located(f"{study.file}: properties.{index}"):
                    prop.check_prompts(followed_prompts(study, start))
    try_extractors(study, properties)


def try_extractors(study: "Study", properties: Sequence[Any]) -> None:
    """Has each extractor look at one training image, as it will at others."""
    tried = set()
    for index, prop in enumerate(properties):
        if needs_features(prop) and option_key(prop.features) not in tried:
            tried.add(option_key(prop.features))
            with located(f"{study.file}: properties.{index}"):
                study.extractors.identity(prop.features)
                study.extractors.extract(prop.features, study.contributions.images[:1])


def check_features(prop: Any, extractors: Extractors, contributions: Contributions, images: int) -> None:
    """Loads a property's extractor, and refuses one that it cannot do with."""
    extractor = extractors.get(prop.features)
    if getattr(prop, "classifier", False) and extractor.classes is None:
        raise UserError(
            f"features: {option_name(prop.features)!r} gives no class probabilities, which {prop.name} needs; "
            "accepted: a classifier such as efficientnet_lite0 or inception_v3"
        )
    check_enough(prop, images, extractor.dimensions)
    if hasattr(prop, "check_extractor"):
        prop.check_extractor(extractor, contributions)


def study_extractors(study: "Study") -> Extractors:
    """The study's feature extractors, on its device."""
    return Extractors(str(device_of(study)), study.file.parent, models_folder(study), study.progress)


def models_folder(study: "Study") -> Path:
    """What is made once a study lies here; where it lies at a URL, what was fetched from it."""
    return study.artifacts / "models"


def share_models(study: "Study") -> None:
    """Where the study's artifacts lie at a URL: fetches what is there, and puts what is not."""
    _shared(study, lambda: None)


def _shared(study: "Study", make: Callable[[], T]) -> T:
    """What ``make()`` gives, which finds files of the models folder or makes them: other machines' are there before,
    and it is asked again where one of them has put the same meanwhile, which is there now in the place of ours."""
    store, folder = study.store, models_folder(study)
    if store is None:
        return make()
    pulled = pull(store, folder)
    made = make()
    return make() if push(store, folder, pulled) else made


def _made_alone(study: "Study", name: str, what: str, make: Callable[[], T]) -> T:
    """The same, while no other process that sees the models folder makes what is called ``name``; ``what`` is said to
    be waited for."""
    waiting = f"another process prepares {what}"
    with exclusive_lock(study.artifacts / ".locks" / f"{name}.lock", lambda: study.progress(waiting, 0, 1)) as waited:
        if waited:
            study.progress(waiting, 1, 1)
        return _shared(study, make)


def build_family(study: "Study") -> Family:
    """What the study file says about its model."""
    section, where = study.config.model, f"{study.file}: model"
    family = build(section.family, section.options, FAMILIES, where=where, beside=study.file.parent)
    for member in ("nobody", "trained", "identity", "start", "load"):
        if not hasattr(type(family), member):
            raise UserError(f"{where}: {section.family!r} has no {member}; a Family is expected")
    if study.config.sampling.guidance is not None and section.family in ("ddpm", "latent"):
        raise UserError(
            f"{study.file}: sampling.guidance: the family {section.family!r} follows no prompt; leave it out"
        )
    return family


def start_and_rehearsal(study: "Study") -> tuple[DiffusionModel, Rehearsal]:
    """The study's model before its training, and what its retraining will train."""
    model = _start(study)
    return model, rehearsed(study, model)


def rehearsed(study: "Study", start: DiffusionModel) -> Rehearsal:
    """What the study's retraining will train, if the base model before its training is ``start``."""
    retraining = build_retraining(study)
    with located(f"{study.file}: {retraining_key(study)}"):
        return retraining.rehearse(start, study.config.model.train, study.contributions)


def _start(study: "Study", replicate: int = 0) -> DiffusionModel:
    with located(study.file):
        start = build_family(study).start(study.contributions, _seed(study, "base", replicate))
        _check_sampling(study, start)
    return start.to(device_of(study))


def _check_sampling(study: "Study", model: DiffusionModel) -> None:
    """Refuses what the model's noise schedule cannot be sampled with, before anything is trained."""
    model.noise_schedule.sampler(study.config.sampling.scheduler, study.config.sampling.steps)


def base_start(study: "Study") -> tuple[DiffusionModel, int]:
    """The base model before its training, and the seed of that."""
    return _start(study), _seed(study, "train")


def _seed(study: "Study", of: str, replicate: int = 0) -> int:
    return derive_seed(study.config.seed, of, *([replicate] if replicate else []))


def base_model(study: "Study") -> DiffusionModel:
    """The model of the study file, trained on all contributions; one that comes trained is taken as it is."""
    if build_family(study).trained:
        return _start(study)
    return _trained_model(study, base_folder(study), 0, "training the base model")


def replicate_model(study: "Study", replicate: int) -> DiffusionModel:
    """A model that is trained as the base model was, on all contributions, from another initialisation and with another
    order of the data: ``replicate`` 1, 2, …"""
    folder = models_folder(study) / f"replicate-{replicate}-{base_identity(study)[:12]}"
    return _trained_model(study, folder, replicate, f"training replicate {replicate} of the base model")


def _trained_model(study: "Study", folder: Path, replicate: int, what: str) -> DiffusionModel:
    def kept() -> DiffusionModel:
        with limited_threads(study.config.threads):
            return kept_model(
                folder,
                build_family(study).load,
                lambda: _start(study, replicate),
                study.contributions,
                study.config.model.train,
                seed=_seed(study, "train", replicate),
                what=what,
                progress=study.progress,
                device=device_of(study),
            )

    return kept() if folder.exists() else _made_alone(study, folder.name, what.removeprefix("training "), kept)


def model_loader(study: "Study") -> Callable[[Path], DiffusionModel]:
    """What reads a model that was saved, onto the study's device."""
    family, device = build_family(study), device_of(study)
    return lambda folder: family.load(folder).to(device)


def base_is_there(study: "Study") -> bool:
    """Whether nothing is left to train of the base model."""
    return build_family(study).trained or base_folder(study).exists()


def base_folder(study: "Study") -> Path:
    return models_folder(study) / f"base-{base_identity(study)[:12]}"


def base_identity(study: "Study") -> str:
    return fingerprint([study.contributions.fingerprint, model_settings(study), study.config.seed])


def model_settings(study: "Study") -> dict[str, Any]:
    """All that fixes the base model but the data and the seed; files are known by their content, not their place."""
    section, family = study.config.model, build_family(study)
    with located(f"{study.file}: model"):
        identity = {**family.identity(), **code_of(family)}
        return {"family": section.family, **identity, "train": dataclasses.asdict(section.train)}


def prepared_retraining(study: "Study") -> Retraining:
    """The study file's retraining, ready to make coalitions' models."""
    base, settings = study.base, recipe_settings(study)
    identity = fingerprint([settings["data"], settings["model"], settings["retraining"], study.config.seed])[:12]
    mark = models_folder(study) / f"retraining-{identity}.json"  # that it was prepared: workers wait for nobody

    def prepared() -> Retraining:
        retraining = _prepared(study, base)
        if not mark.exists():
            write_text(mark, canonical_json(settings["retraining"]))
        return retraining

    return prepared() if mark.exists() else _made_alone(study, mark.stem, "the retraining", prepared)


def _prepared(study: "Study", base: DiffusionModel) -> Retraining:
    retraining = build_retraining(study)
    ground = Ground(
        base=base,
        contributions=study.contributions,
        training=study.config.model.train,
        seed=study.config.seed,
        folder=models_folder(study),
        load=build_family(study).load,
        progress=study.progress,
    )
    with limited_threads(study.config.threads), located(f"{study.file}: {retraining_key(study)}"):
        retraining.prepare(ground)
    return retraining


def retraining_key(study: "Study") -> str:
    """Where the study file has the retraining: its own, or one that validation compares with that."""
    section, compared = study.config.retraining, study.config.compared
    return f"validation.retrainings.{compared.index(section)}" if section in compared else "retraining"


def build_retraining(study: "Study") -> Retraining:
    section, where = study.config.retraining, f"{study.file}: {retraining_key(study)}"
    retraining = build(section.method, section.options, RETRAININGS, where=where, beside=study.file.parent)
    for method in ("prepare", "rehearse", "models_for"):
        if not callable(getattr(retraining, method, None)):
            raise UserError(f"{where}: {section.method!r} has no method {method}; a Retraining is expected")
    return retraining


def build_properties(study: "Study") -> list[Any]:
    """The study file's properties, not yet fitted."""
    properties = []
    for index, section in enumerate(study.config.properties):
        where = f"{study.file}: properties.{index}"
        prop = build(
            section.name,
            section.options,
            PROPERTIES,
            where=where,
            beside=study.file.parent,
            of_function=property_of,
        )
        if not any(hasattr(prop, method.partition("(")[0]) for method in MEASURES):
            raise UserError(f"{where}: {section.name!r} has none of {', '.join(MEASURES)}; a property has one of them")
        if needs_features(prop) and not isinstance(getattr(prop, "features", None), str | dict):
            raise UserError(f"{where}: {section.name!r} has measure_features but no features, the extractor's name")
        if hasattr(prop, "fit") and not hasattr(prop, "restore"):
            raise UserError(f"{where}: {section.name!r} has fit(context) but no restore(state)")
        if section.label is not None or not hasattr(prop, "name"):
            # also where the class is frozen: the name is the study's, not one of its settings
            object.__setattr__(prop, "name", section.label or section.name.rpartition(":")[2])
        if prop.name in [other.name for other in properties]:
            raise UserError(f"{where}: {prop.name!r} is there twice; tell them apart with 'as: another-name'")
        properties.append(prop)
    return properties


def fitted_properties(study: "Study") -> list[Any]:
    """The study file's properties; what one has to learn it learns once, from the base model's images."""
    properties = build_properties(study)
    for index, prop in enumerate(properties):
        if hasattr(prop, "fit"):
            file, where = _state_file(study, index, prop), f"{study.file}: properties.{index}"
            if not file.exists():
                study.progress("fitting properties", index, len(properties))
                context = study_context(study)
                with located(where):
                    _made_alone(study, file.stem, f"property {prop.name!r}", partial(_fit, study, prop, context, file))
            with located(where), in_plugin(f"{prop.name}: restore(state)"):
                prop.restore(read_arrays(file))
    return properties


def kept_states(study: "Study", properties: Sequence[Any]) -> dict[str, State]:
    """What the study file's ``properties`` were fitted to, by name, of those that were."""
    files = {prop.name: _state_file(study, at, prop) for at, prop in enumerate(properties) if hasattr(prop, "fit")}
    return {name: read_arrays(file) for name, file in files.items() if file.exists()}


def _fit(study: "Study", prop: Any, context: Context, file: Path) -> None:
    if not file.exists():
        with in_plugin(f"{prop.name}: fit(context)"), limited_threads(study.config.threads):
            write_arrays(file, {name: np.asarray(array) for name, array in prop.fit(context).items()})


def study_context(study: "Study") -> Context:
    """What the study's properties are fitted to."""
    prompts = followed_prompts(study, study.base)
    return Context(generated_images(study), study.contributions, study.extractors, prompts)


def followed_prompts(study: "Study", model: DiffusionModel) -> tuple[str, ...] | None:
    """The prompt of each of the study's images, by its seed; None of a model without texts."""
    prompts = getattr(model, "prompts", None)
    return tuple(prompts[seed % len(prompts)] for seed in study.config.sampling.seeds) if prompts else None


def _state_file(study: "Study", index: int, prop: Any) -> Path:
    settings = settings_of(prop, study.config.properties[index].options)
    if needs_features(prop):
        settings["features"] = study.extractors.identity(prop.features)
    sampling = dataclasses.asdict(study.config.sampling)
    name, files = study.config.properties[index].name, _files_of(settings)
    settings |= {key: Path(settings[key]).name for key in PATHS if _is_place(settings.get(key))}
    identity = fingerprint([base_identity(study), sampling, name, settings, *([files] if files else [])])
    return models_folder(study) / f"property-{identity[:12]}.safetensors"


def _files_of(settings: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """The files that a property's settings name, with their sizes and times, wherever they lie: where one changed, the
    property is fitted anew, and the ledger tells whether it came out as before."""
    found = []
    for path in (Path(settings[key]) for key in PATHS if _is_place(settings.get(key))):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                status = file.stat()
                found.append((file.relative_to(path).as_posix(), status.st_size, status.st_mtime_ns))
    return found


def _is_place(value: Any) -> bool:
    """Whether an option names a file or folder, which the study's settings have with its full path."""
    return isinstance(value, str) and PurePath(value).is_absolute()


def generated_images(study: "Study") -> Images:
    """The base model's images from the study's initial noises, (m, h, w, 3)."""
    sampling = study.config.sampling
    identity = fingerprint([base_identity(study), dataclasses.asdict(sampling)])
    file = models_folder(study) / f"generated-{identity[:12]}.safetensors"

    def sample() -> None:
        if not file.exists():
            study.progress("sampling the base model", 0, sampling.images)
            with limited_threads(study.config.threads):
                images = generate(base, sampling)
            write_arrays(file, {"images": images})
            study.progress("sampling the base model", sampling.images, sampling.images)

    if not file.exists():
        base = study.base
        _made_alone(study, file.stem, "the base model's images", sample)
    return read_arrays(file)["images"]


def prepared_surrogate(study: "Study", surrogate: Any) -> Any:
    """``surrogate``, ready to stand in for coalitions' models."""
    material = Material(
        contributions=study.contributions,
        retraining=study.retraining,
        base=lambda: study.base,
        generated=lambda: generated_images(study),
        sampling=study.config.sampling,
        folder=models_folder(study),
        progress=study.progress,
    )

    def prepared() -> Any:
        with located(f"{study.file}: surrogates"), limited_threads(study.config.threads):
            surrogate.prepare(material)
        return surrogate

    return _made_alone(study, "surrogates", "the surrogates", prepared)


def property_records(study: "Study") -> list[PropertyRecord]:
    """What the ledger keeps of each property."""
    records = []
    for index, (section, prop) in enumerate(zip(study.config.properties, study.properties, strict=True)):
        file = _state_file(study, index, prop)
        settings = settings_of(prop, section.options)
        for key in PATHS:  # a file is known by its content, which is in the state, not by its place
            if _is_place(settings.get(key)):
                place = Path(settings[key])
                settings[key] = place.name if hasattr(prop, "fit") else _content(place, key)
        if needs_features(prop):
            settings["features"] = study.extractors.identity(prop.features)
        records.append(
            PropertyRecord(
                name=prop.name,
                settings={"name": section.name, **settings},
                higher_is_better=getattr(prop, "higher_is_better", True),
                state=fingerprint_arrays(read_arrays(file)) if hasattr(prop, "fit") else "",
            )
        )
    return records


def _content(place: Path, key: str) -> str:
    """The hash of a file or folder, or of what is neither the name."""
    if place.is_dir():
        return folder_hash(place, key)
    return file_hash(place, key) if place.is_file() else place.name


def check_unchanged(study: "Study") -> None:
    """Refuses properties that have become others since they were entered in the ledger, as when a file that they name
    is replaced while the study runs and a worker starts anew."""
    with suppress(NoLedger), study.ledger(create=False) as ledger:
        entered = {record.name: record.fingerprint for record in ledger.properties(study.name)}
        for record in property_records(study):
            if entered.get(record.name, record.fingerprint) != record.fingerprint:
                raise UserError(
                    f"{study.file}: property {record.name!r} is another than the ledger's: a file that it names, its "
                    "extractor or its code has changed; restore it, or give the property another name"
                )


def study_keeper(study: "Study", recipe: RecipeRecord) -> Keeper:
    """Where the evaluations of one of the study's recipes are kept."""
    return Keeper(study.artifacts / "kept" / recipe.fingerprint[:12], study.config.keep, study.store)


def recorded_keeper(study: "Study") -> Keeper | None:
    """Where what the ledger has of the study's recipe was kept, whether or not its models are there; None where it has
    nothing."""
    with suppress(NoLedger), study.ledger(create=False) as ledger:
        if study.name in ledger.studies():
            for recipe in ledger.recipes(study.name):
                if recipe.name == study.recipe:
                    return study_keeper(study, recipe)
    return None


def check_not_lost(study: "Study", ledger: Ledger) -> None:
    """Refuses to train a base model once more that recorded evaluations start from, where that gives another."""
    weights = {recipe.name: recipe.weights for recipe in ledger.recipes(study.name)}.get(study.recipe)
    if not weights or device_of(study).type == "cpu" or base_is_there(study):
        return
    place = redacted_url(study.store.url) if study.store else str(study.artifacts)
    raise UserError(
        f"{study.file}: the base model {base_folder(study).name} is no more in models/ of {place}; the ledger's "
        "evaluations start from it, and training on a GPU does not give it again bit for bit. Restore it from a "
        "backup (artifacts: keeps it at a URL, diffcredit export --with-models in an archive), or begin anew with "
        "another name and results"
    )


def study_recipe(study: "Study") -> RecipeRecord:
    """The recipe of the study file, with its retraining prepared."""
    return RecipeRecord(study.recipe, recipe_settings(study), study.retraining.weights)


def recipe_settings(study: "Study") -> dict[str, Any]:
    """All that fixes an evaluation's images but its coalition and replicate, as the ledger keeps it."""
    config, contributions = study.config, study.contributions
    retraining = build_retraining(study)
    return {
        "data": {
            "fingerprint": contributions.fingerprint,
            "images": dict(zip(contributions.contributors, contributions.counts.tolist(), strict=True)),
            "resolution": config.contributions.resolution,
        },
        "model": model_settings(study),
        "retraining": {
            "method": config.retraining.method,
            **settings_of(retraining, config.retraining.options),
        },
        "sampling": dataclasses.asdict(config.sampling),
        "seed": config.seed,
    }
