"""Checks that find mistakes before they cost anything: before a training, and before a worker evaluates."""

from contextlib import suppress
from typing import TYPE_CHECKING

from diffcredit.contributions import Contributions
from diffcredit.diffusion.optimizers import check_optimizer
from diffcredit.errors import UserError, located
from diffcredit.features.base import option_key, option_name
from diffcredit.features.extractors import Extractors
from diffcredit.ledger import Ledger, NoLedger
from diffcredit.properties import Property
from diffcredit.properties.base import needs_features
from diffcredit.properties.measuring import check_enough
from diffcredit.properties.prompted import PromptedProperty, images_of
from diffcredit.study.prepared import build_properties
from diffcredit.study.recorded import refuse_changed
from diffcredit.study.schedule import check_schedule
from diffcredit.util.plugins import in_plugin
from diffcredit.util.store import redacted_url

if TYPE_CHECKING:
    from diffcredit.diffusion.model import DiffusionModel
    from diffcredit.study.recipe import Recipe
    from diffcredit.study.study import Study


def check(study: "Study") -> None:
    """Refuse a study with a mistake that would otherwise show only after hours of training. A study is checked once."""
    if study.checked:
        return
    contributions, images, prepared = study.contributions, study.config.sampling.images, study.prepared
    _ = prepared.device  # raises where there is none
    properties = build_properties(study.config, study.file)
    _choose_images(study, properties)
    for index, prop in enumerate(properties):
        with located(f"{study.file}: properties.{index}"), in_plugin(f"{prop.name}: its check"):
            prop.check(contributions, images)
            if needs_features(prop):
                _check_features(prop, prepared.extractors, contributions, images_of(prop, images))
    if study.config.keep == "features" and not any(map(needs_features, properties)):
        raise UserError(f"{study.file}: keep: features, but no property of the study has any; keep images, for example")
    with located(study.file):
        check_schedule(study.config, contributions.n, [prop.name for prop in properties])
    if study.surrogates.names:
        study.surrogates.check(contributions, study.recipe.build())
    with located(study.file):
        check_optimizer(study.config.model.train)
    if not prepared.has_base:
        start = prepared.start()
        _check_min_snr(study, start)
        study.recipe.rehearse(start)
        for section in study.config.compared:  # these are evaluated much later
            study.recipe_with(section, 1).rehearse(start)
        for index, prop in enumerate(properties):
            with located(f"{study.file}: properties.{index}"):
                prop.check_prompts(prepared.prompts(start))
    _try_extractors(study, properties)
    study.checked = True


def _check_min_snr(study: "Study", start: "DiffusionModel") -> None:
    import torch

    if (gamma := study.config.model.train.min_snr) is not None:
        with located(f"{study.file}: model.train"):
            start.objective.min_snr_weights(torch.zeros(1, dtype=torch.long), gamma)


def _choose_images(study: "Study", properties: list[Property]) -> None:
    """Choose the images of each property with prompts, for which the model is needed; refuse prompts that it does not
    follow."""
    prompted = {at: prop for at, prop in enumerate(properties) if isinstance(prop, PromptedProperty)}
    if not prompted and study.config.sampling.prompts is None:
        return
    prepared = study.prepared
    prompts = prepared.prompts(prepared.base if prepared.has_base else prepared.start())
    for index, prop in prompted.items():
        with located(f"{study.file}: properties.{index}"):
            prop.choose(prompts)


def _check_features(prop: Property, extractors: Extractors, contributions: Contributions, images: int) -> None:
    """Load a property's extractor, and refuse one that does not suit it."""
    extractor = extractors.get(prop.features)
    if prop.classifier and extractor.classes is None:
        raise UserError(
            f"features: {option_name(prop.features)!r} gives no class probabilities, which {prop.name} needs; "
            "accepted: a classifier such as efficientnet_lite0 or inception_v3"
        )
    check_enough(prop, images, extractor.dimensions)
    prop.check_extractor(extractor, contributions)


def _try_extractors(study: "Study", properties: list[Property]) -> None:
    """Extract the features of one training image by each extractor."""
    tried, extractors = set(), study.prepared.extractors
    for index, prop in enumerate(properties):
        if needs_features(prop) and option_key(prop.features) not in tried:
            tried.add(option_key(prop.features))
            with located(f"{study.file}: properties.{index}"):
                extractors.identity(prop.features)
                extractors.extract(prop.features, study.contributions.images[:1])


def check_unchanged(study: "Study") -> None:
    """Refuse properties that have changed since the ledger registered them: a worker that starts late may find that a
    file which a property names was replaced."""
    with suppress(NoLedger), study.ledger(create=False) as ledger:
        entered = {record.name: record for record in ledger.properties(study.name)}
        for record in study.prepared.property_records():
            if (old := entered.get(record.name)) is not None:
                refuse_changed(study, old, record.settings)
                if old.fingerprint != record.fingerprint:
                    raise UserError(
                        f"{study.file}: property {record.name!r} differs from the ledger's: a file that it names has "
                        "changed since it was fitted; restore it, or give the property another name"
                    )


def check_not_lost(recipe: "Recipe", ledger: Ledger) -> None:
    """Refuse to train the base model again if recorded evaluations start from it and a GPU would train another one."""
    study, prepared, record = recipe.study, recipe.study.prepared, recipe.recorded(ledger)
    if record is None or not record.weights or prepared.device.type == "cpu" or prepared.has_base:
        return
    store = study.cache.store
    place = redacted_url(store.url) if store else str(study.cache.root)
    raise UserError(
        f"{study.file}: the base model {prepared.base_folder.name} is missing from models/ of {place}. The ledger's "
        "evaluations start from it, and training on a GPU does not reproduce it bit for bit. Restore it from a "
        "backup (artifacts: keeps it at a URL, diffcredit export --with-models in an archive), or start again with "
        "another name and results"
    )
