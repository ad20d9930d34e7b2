"""Whether a study file still describes what its ledger has recorded.

A run registers its recipe and properties, and a ledger refuses changed ones. A command that only reads would put old
numbers under new words, so it compares as well and refuses with the same message. It always compares settings, and
images where they are here. What was compared is noted on this machine: the next command needs neither torch nor the
images, until the study file, a file that it names, or diffcredit itself has changed.

A recipe that another program has entered, without the settings that a run enters, is not compared.
"""

import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffcredit.contributions.sources import METADATA
from diffcredit.contributions.sources.folders import BUNDLED
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.ledger import Ledger, NoLedger, PropertyRecord, RecipeRecord, changed_settings, differences
from diffcredit.study import identity
from diffcredit.study.config import StudyConfig, references
from diffcredit.study.data_section import HouseSection
from diffcredit.study.sections import PropertySection
from diffcredit.study.stated import Stated
from diffcredit.util.consent import code_hash, is_allowed
from diffcredit.util.notes import note, noted
from diffcredit.util.plugin_code import code_change, known_code, note_code, plugin_file

if TYPE_CHECKING:
    from diffcredit.study.recipe import Recipe
    from diffcredit.study.study import Study

WITH_IMAGES = "openmoji"  # the source whose images come with the package


def check_recorded(study: "Study", *, pixels: bool = True) -> None:
    """Refuse a study whose recipe, properties or images are other than the ledger's; warn of what cannot be compared.
    A study is compared once. ``pixels``: decode images that are here and were never compared as they are now."""
    if study.compared:
        return
    with suppress(NoLedger), study.ledger(create=False) as ledger:
        recipe = study.recipe.recorded(ledger)
        if recipe is None or not {"data", "model", "retraining"} <= recipe.settings.keys():
            return
        properties = described(study.config, ledger.properties(study.name))
        about = _about_settings(study, recipe, properties)
        unknown = noted("settings", about)
        if unknown is None:
            stated = Stated(study)
            refuse_changed(study, recipe, stated.recipe(study.config.retraining, recipe.settings))
            for section, record in properties:
                refuse_changed(study, record, stated.property(section, record))
            unknown = list(dict.fromkeys(stated.unknown))
            note("settings", about, unknown)
        unknown = [*unknown, *_compare_images(study, recipe, pixels=pixels)]
        study.compared = True
        if unknown:
            said = f"{study.file}: not compared with the ledger: {'; '.join(unknown)}"
            warnings.warn(said, DiffcreditWarning, stacklevel=2)


def check_recipe(recipe: "Recipe", ledger: Ledger) -> None:
    """Refuse a recipe whose settings changed, before its weights are known. A new recipe passes."""
    if (recorded := recipe.recorded(ledger)) is not None:
        refuse_changed(recipe.study, recorded, recipe.settings)


def register_properties(study: "Study", ledger: Ledger) -> None:
    """Enter the study's properties, or check that those already there are the same. Note that a study whose recipe is
    entered agrees with its ledger, for :func:`check_recorded`."""
    recorded = {record.name: record for record in ledger.properties(study.name)}
    for record in study.prepared.property_records():
        if record.name in recorded:
            refuse_changed(study, recorded[record.name], record.settings)
        ledger.register_property(study.name, record)
    recipe, properties = study.recipe.recorded(ledger), described(study.config, ledger.properties(study.name))
    if recipe is not None:
        note("settings", _about_settings(study, recipe, properties), [])
        if (about := _about_images(study)) is not None:
            note("images", about, recipe.settings["data"])
        codes = _codes([recipe.settings, *(record.settings for _, record in properties)])
        for file in filter(None, (plugin_file(each, study.file.parent) for each in plugins(study.config))):
            note_code(file, codes)


def described(config: StudyConfig, records: Iterable[PropertyRecord]) -> list[tuple[PropertySection, PropertyRecord]]:
    """Return each recorded property that the study file describes, with the section that does."""
    by_name = {section.label or section.name: section for section in config.properties}
    plain = {section.name: section for section in config.properties if section.label is None and ":" in section.name}
    # a plug-in without a label names itself
    found = [(by_name.get(record.name) or plain.get(str(record.settings.get("name"))), record) for record in records]
    return [(section, record) for section, record in found if section is not None]


def plugins(config: StudyConfig) -> list[str]:
    """Return the plug-ins that the study file names."""
    return list(dict.fromkeys(reference for _, reference in references(config) if ":" in reference))


def refuse_changed(study: "Study", recorded: RecipeRecord | PropertyRecord, now: Mapping[str, Any]) -> None:
    """Raise a UserError where the settings ``now`` are not those ``recorded``."""
    if lines := differences(recorded.settings, dict(now)):
        lines = [_code_line(study, line, recorded.settings) or line for line in lines]
        kind = "recipe" if isinstance(recorded, RecipeRecord) else "property"
        raise UserError(f"{study.file}: {changed_settings(kind, recorded.name, lines)}")


def _code_line(study: "Study", line: str, recorded: Mapping[str, Any]) -> str | None:
    """Return in words what a ``line`` about a plug-in's code means; None where it is about something else."""
    *above, last = line.partition(" ")[0].split(".")
    for key in above:
        recorded = recorded.get(key, {})
    name = next((recorded[key] for key in ("name", "method", "family") if key in recorded), "")
    file = plugin_file(name, study.file.parent)
    if last != "code" or file is None:
        return None
    used = [each.partition(":")[2] for each in plugins(study.config) if plugin_file(each, study.file.parent) == file]
    return code_change(file, str(recorded.get("code")), used)


def _codes(settings: Any) -> set[str]:
    """Return the hashes of all plug-ins' code in recorded settings."""
    if isinstance(settings, list):
        return set().union(*map(_codes, settings))
    if not isinstance(settings, dict):
        return set()
    return {settings["code"]} if isinstance(settings.get("code"), str) else set() | _codes(list(settings.values()))


# What a note is about.
def _about_settings(
    study: "Study", recipe: RecipeRecord, properties: Iterable[tuple[PropertySection, PropertyRecord]]
) -> Any:
    """Return all that decides whether a study's settings agree with those recorded."""
    config = study.config
    stated = config.model_dump(mode="json", include={"seed", "model", "retraining", "sampling", "properties"})
    stated["resolution"] = config.contributions.resolution
    recorded = {record.name: record.fingerprint for _, record in properties}
    files = [identity.files_of(place) for place in _places(stated)]
    return [_version(), stated, _code_hashes(study, plugins(config)), files, recipe.fingerprint, recorded]


def _about_images(study: "Study") -> Any:
    """Return all that decides what a study's contributions are, with their files' sizes and times; None where they are
    not on this machine, or may have changed without a trace here."""
    section = study.config.contributions
    house = section.house if isinstance(section.house, HouseSection) else None
    sources = [each for each in (section, house) if each is not None]
    if any(each.path is None and each.source != WITH_IMAGES for each in sources):
        return None
    given = [BUNDLED if each.source == WITH_IMAGES else each.path for each in sources]
    files = () if section.near_copies is None else section.near_copies.files
    places = [each for each in (*given, section.holdout, section.identities, *files) if isinstance(each, Path)]
    if not all(place.exists() for place in places):
        return None
    folders = [place.parent if place.name in METADATA else place for place in places]
    code = _code_hashes(study, [each.source for each in sources if ":" in each.source])
    found = [identity.files_of(folder) for folder in folders]
    return [_version(), _by_name(section.model_dump()), study.config.data_seed, code, found]


def _compare_images(study: "Study", recipe: RecipeRecord, *, pixels: bool) -> list[str]:
    """Refuse contributions that are not those of the recipe; return what was not compared."""
    about, section = _about_images(study), study.config.contributions
    house = recipe.settings["data"].get("house")
    if study.config.has_house == (house is None):  # shows without the images, and decides what F(none) is
        made = f"with {house:,}" if house else "without"
        raise UserError(
            f"{study.file}: contributions.house: the ledger's evaluations are {made} house images; restore it"
        )
    if about is None:
        place = section.path or section.source
        return [f"the images ({place} is not here)"]
    data = noted("images", about)
    if data is None:
        if not pixels:
            return ["the images (no command has read them since their files changed)"]
        codes = _code_hashes(study, [section.source] if ":" in section.source else []).values()
        if not all(code is not None and known_code(code) and is_allowed(code) for code in codes):
            return [f"the images (the code of {section.source} is not allowed or has not run on this machine)"]
        data = identity.data_settings(study.config, study.contributions)
        note("images", about, data)
    refuse_changed(study, recipe, {**recipe.settings, "data": data})
    return []


def _by_name(value: Any) -> Any:
    """Return options with files and folders by their names, so that a study may move."""
    if isinstance(value, dict):
        return {key: _by_name(part) for key, part in value.items()}
    return value.name if isinstance(value, Path) else value


def _places(stated: Any) -> list[Path]:
    """Return the files and folders that settings name by full paths."""
    if isinstance(stated, dict | list):
        parts = stated.values() if isinstance(stated, dict) else stated
        return [place for part in parts for place in _places(part)]
    here = isinstance(stated, str) and Path(stated).is_absolute() and Path(stated).exists()
    return [Path(stated)] if here else []


def _code_hashes(study: "Study", names: Iterable[str]) -> dict[str, str | None]:
    files = {name: plugin_file(name, study.file.parent) for name in names}
    return {name: None if file is None else code_hash(file) for name, file in files.items()}


def _version() -> str:
    with suppress(PackageNotFoundError):
        return version("diffcredit")
    return ""
