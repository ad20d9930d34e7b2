"""Every identity of a study: what is hashed, and so what fixes its numbers.

An *identity* is a JSON value, or its fingerprint. Two runs with equal identities give equal numbers within one numerics
class. The names of artifacts carry identities, and the ledger records those of recipes and properties. A change to
anything here makes old ledgers and artifacts unusable: it needs a migration.

Files are identified by their content and not by their place, so that a study may move to another machine.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from diffcredit.errors import located
from diffcredit.features.weights import file_hash, folder_hash
from diffcredit.properties.base import Property, needs_fitting
from diffcredit.properties.prompted import PromptedProperty
from diffcredit.study.config import StudyConfig
from diffcredit.study.sections import PATHS, ModelSection, RetrainingSection
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.plugins import code_of, settings_of

if TYPE_CHECKING:
    from diffcredit.contributions import Contributions
    from diffcredit.diffusion.model import Family
    from diffcredit.diffusion.settings import Sampling


def model_settings(section: ModelSection, family: "Family", where: str) -> dict[str, Any]:
    """Return all that fixes the base model but the data and the seed. ``where`` begins error messages."""
    with located(where):
        identity = {**family.identity(), **code_of(family)}
        return {"family": section.family, **identity, "train": dataclasses.asdict(section.train)}


def base_identity(contributions: "Contributions", model: Mapping[str, Any], seed: int) -> str:
    """Return the fingerprint of the base model: its data, its settings, its seed."""
    return fingerprint([contributions.fingerprint, model, seed])


def recorded_base(recipe: Mapping[str, Any]) -> str:
    """Return :func:`base_identity` from the settings of a recipe in the ledger."""
    model = dict(recipe["model"])
    seed = model.pop("seed", recipe["seed"])  # there only where the model has a seed of its own
    return fingerprint([recipe["data"]["fingerprint"], model, seed])


def generated_identity(base: str, sampling: "Sampling") -> str:
    """Return the fingerprint of the base model's images."""
    return fingerprint([base, sampling.identity])


def data_settings(config: StudyConfig, contributions: "Contributions") -> dict[str, Any]:
    """Return what a recipe has of the data."""
    return {
        "fingerprint": contributions.fingerprint,
        "images": dict(zip(contributions.contributors, contributions.counts.tolist(), strict=True)),
        "resolution": config.contributions.resolution,
        **({"house": int(contributions.house.sum())} if contributions.has_house else {}),
        **_against_gaming(contributions),
    }


def _against_gaming(contributions: "Contributions") -> dict[str, Any]:
    """Return what the data have of identities, near-copies and lots: nothing where there are none, as in older
    ledgers."""
    found: dict[str, Any] = {}
    if contributions.accounts:
        found["accounts"] = {person: list(accounts) for person, accounts in contributions.accounts.items()}
    if contributions.near_copies is not None:
        found["near_copies"] = {
            "credit": contributions.near_copies.credit,
            "distance": contributions.near_copies.distance,
            "excluded": len(contributions.excluded),
            **({"stated": contributions.near_copies.stated} if contributions.near_copies.stated else {}),
        }
    if contributions.lot:
        found["lots"] = {"lot": contributions.lot, "whose": dict(contributions.whose)}
    return found


def retraining_settings(section: RetrainingSection, retraining: Any) -> dict[str, Any]:
    """Return what a recipe has of its retraining, which was built from ``section``."""
    return {"method": section.method, **settings_of(retraining, section.options)}


def recipe_settings(
    config: StudyConfig, data: Mapping[str, Any], model: Mapping[str, Any], retraining: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all that fixes an evaluation's images but its coalition and replicate, as the ledger keeps it."""
    return {
        "data": dict(data),
        "model": dict(model) | ({} if config.model_seed == config.seed else {"seed": config.model_seed}),
        "retraining": dict(retraining),
        "sampling": config.sampling.identity,
        "seed": config.seed,
    }


def prepared_identity(recipe: Mapping[str, Any]) -> str:
    """Return the fingerprint of a prepared retraining, from the settings of its recipe."""
    return fingerprint([recipe["data"], recipe["model"], recipe["retraining"], recipe["seed"]])


def property_settings(prop: Property, options: Mapping[str, Any], features: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings of a property as the ledger keeps them; ``features`` is its extractor's identity."""
    settings = stated_settings(prop, options)
    for key, place in places_of(settings).items():
        # the content of a file that a property is fitted to is in its state
        settings[key] = place.name if needs_fitting(prop) else content_of(place, key)
    return settings if features is None else {**settings, "features": features}


def stated_settings(prop: Property, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the study file states of a property: its options, and the prompts that it is measured for."""
    return {**settings_of(prop, options), **prompts_setting(prop.prompts if isinstance(prop, PromptedProperty) else ())}


def prompts_setting(prompts: Sequence[str]) -> dict[str, Any]:
    """Return the prompts of a property as a setting: in any order, and none where it is measured on all images."""
    return {"prompts": sorted(prompts)} if prompts else {}


def state_identity(
    base: str, sampling: "Sampling", name: str, settings: dict[str, Any], features: Mapping[str, Any] | None
) -> str:
    """Return the fingerprint of what the property ``name`` with these ``settings`` is fitted to.

    Files that the settings name count by size and time, wherever they lie: where one has changed, the property is
    fitted again, and the ledger shows whether it came out as before.
    """
    if features is not None:
        settings = {**settings, "features": features}
    places = places_of(settings)
    files = [entry for place in places.values() for entry in files_of(place)]
    settings = settings | {key: place.name for key, place in places.items()}
    return fingerprint([base, sampling.identity, name, settings, *([files] if files else [])])


def quality_identity(base: str, start: str, sampling: "Sampling", properties: Sequence[str]) -> str:
    """Return the fingerprint of a comparison of the base model with the model ``start`` by these properties."""
    return fingerprint([base, start, sampling.identity, list(properties)])


def surrogate_identity(recipe: str, prop: str, name: str, settings: Mapping[str, Any]) -> str:
    """Return the fingerprint of a surrogate's values, from the fingerprints of the recipe and the property."""
    # how many coalitions are asked for changes no value
    return fingerprint([recipe, prop, name, {key: value for key, value in settings.items() if key != "coalitions"}])


def pictures_identity(weights: str, recipe: str, coalition: str, sampling: "Sampling") -> str:
    """Return the fingerprint of the images of one coalition's model that a report shows."""
    return fingerprint([weights, recipe, coalition, sampling.identity])


def thumbnails_identity(contributions: str, each: int, pixels: int) -> str:
    """Return the fingerprint of ``each`` so many of every contributor's images as a report shows them."""
    return fingerprint([contributions, each, pixels])


def places_of(settings: Mapping[str, Any]) -> dict[str, Path]:
    """Return the options that name a file or folder; resolved study files hold these as full paths."""
    named = {key: settings.get(key) for key in PATHS}
    return {
        key: Path(value) for key, value in named.items() if isinstance(value, str) and PurePath(value).is_absolute()
    }


def files_of(place: Path) -> list[tuple[str, int, int]]:
    """Return the files at ``place`` with their sizes and times."""
    found = []
    for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
        if file.is_file():
            status = file.stat()
            found.append((file.relative_to(place).as_posix(), status.st_size, status.st_mtime_ns))
    return found


def content_of(place: Path, key: str) -> str:
    """Return the hash of a file or folder; the name of anything else."""
    if place.is_dir():
        return folder_hash(place, key)
    return file_hash(place, key) if place.is_file() else place.name
