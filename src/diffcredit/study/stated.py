"""The settings that a study file states now, beside those that the ledger recorded, as far as reading needs.

Nothing is trained, downloaded or loaded, and no plug-in runs that is not allowed, or did not run on this machine
before with the same code. What cannot be known that way stands as it was recorded, and :attr:`Stated.unknown` says what
it is.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.ledger import PropertyRecord
from diffcredit.study import identity
from diffcredit.study.sections import MODELS, PropertySection, RetrainingSection
from diffcredit.util.consent import code_hash, is_allowed
from diffcredit.util.plugin_code import has_code, known_code, plugin_file

if TYPE_CHECKING:
    from diffcredit.properties import Property
    from diffcredit.study.study import Study

DIGITS = 64  # of a file's hash


class Stated:
    """The settings that ``study`` states. ``unknown`` lists what was taken from the record instead."""

    def __init__(self, study: "Study") -> None:
        self._study, self._config, self._beside = study, study.config, study.file.parent
        self.unknown: list[str] = []

    def recipe(self, section: RetrainingSection, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Return a recipe's settings, with the data as they are recorded but for their resolution."""
        data = {**recorded["data"], "resolution": self._config.contributions.resolution}
        model, retraining = self._model(recorded["model"]), self._retraining(section, recorded["retraining"])
        stated = identity.recipe_settings(self._config, data, model, retraining)
        stated["sampling"] = _without_newer(stated["sampling"], recorded.get("sampling", {}), Sampling)
        stated["model"]["train"] = _without_newer(
            stated["model"]["train"], recorded["model"].get("train", {}), Training
        )
        return stated

    def property(self, section: PropertySection, recorded: PropertyRecord) -> dict[str, Any]:
        """Return a property's settings."""
        old = recorded.settings
        prop = self._built(section.name, old, lambda: self._property(section))
        if prop is not None:
            features = self._features(prop.features, old.get("features")) if _has_features(prop) else None
            settings = {"name": section.name, **identity.property_settings(prop, section.options, features)}
        else:
            options = {key: value for key, value in section.options.items() if key != "features"}
            before = {key: value for key, value in old.items() if key != "prompts"}
            options |= identity.prompts_setting(section.prompts or ())
            settings = {**_overlaid(before, options), "name": section.name, **self._code(section.name, old)}
            if "features" in section.options:
                settings["features"] = self._features(section.options["features"], old.get("features"))
        for key, place in identity.places_of(section.options).items():
            settings[key] = self._place(key, place, old.get(key), section)
        return settings

    # Its parts.
    def _model(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        section = self._config.model
        elsewhere = [f"model.{key}" for key in MODELS if key in section.options and not _is_here(section.options[key])]
        denoiser = section.options.get("denoiser")
        code = recorded.get("denoiser") or {}
        known_denoiser = denoiser is None or self._may_build(denoiser, code)
        if not elsewhere and known_denoiser and self._may_build(section.family, recorded):
            from diffcredit.study.prepared import build_family

            family = build_family(self._config, self._study.file)
            return identity.model_settings(section, family, f"{self._study.file}: model")
        self.unknown += elsewhere
        options = {key: value for key, value in section.options.items() if key not in MODELS}
        if isinstance(denoiser, str):
            options["denoiser"] = {"name": denoiser, **self._code(denoiser, code)}
        old = {key: value for key, value in recorded.items() if key != "seed"}
        known = {"family": section.family, "train": dataclasses.asdict(section.train)}
        return {**_overlaid(old, options, listed=False), **known, **self._code(section.family, recorded)}

    def _retraining(self, section: RetrainingSection, recorded: Mapping[str, Any]) -> dict[str, Any]:
        built = self._built(section.method, recorded, lambda: self._study.recipe_with(section, 0).build())
        if built is not None:
            return identity.retraining_settings(section, built)
        known = {"method": section.method, **self._code(section.method, recorded)}
        return {**_overlaid(recorded, section.options), **known}

    def _features(self, option: Any, recorded: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return an extractor's identity; its weights are not loaded, so that they are what was recorded."""
        from diffcredit.features.base import option_name
        from diffcredit.features.extractors import make_extractor

        name, old = option_name(option), dict(recorded or {})
        if old.get("name") != name:
            return {**old, "name": name}
        if ":" not in name and not old.get("weights"):  # it has none
            return {"name": name, **make_extractor(option, self._beside).identity()}
        self.unknown.append(f"the weights of {name}")
        options = option if isinstance(option, dict) else {}
        return {**_overlaid(old, {**options, "weights": old.get("weights")}, listed=False), **self._code(name, old)}

    def _place(self, key: str, place: Path, recorded: Any, section: PropertySection) -> Any:
        """Return what stands for a file or folder: its name where the property was fitted to it, else its content."""
        fitted = len(str(recorded)) != DIGITS
        if place.name == recorded if fitted else not place.exists():
            self.unknown.append(f"the files of {section.label or section.name} ({key}: {place.name})")
            return recorded
        return place.name if fitted else identity.content_of(place, key)

    # Plug-ins.
    def _built(self, reference: str, recorded: Mapping[str, Any], build: Any) -> Any:
        """Return the component that ``build`` makes, or None where that would run unknown code."""
        return build() if self._may_build(reference, recorded) else None

    def _may_build(self, reference: str, recorded: Mapping[str, Any]) -> bool:
        if ":" not in reference:
            return True
        file, code = plugin_file(reference, self._beside), str(recorded.get("code"))
        return file is not None and known_code(code) and has_code(file, code) and is_allowed(code_hash(file))

    def _code(self, reference: str, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Return the hash of a plug-in's code now; that recorded where the code is not here."""
        if ":" not in reference:
            return {}
        file, code = plugin_file(reference, self._beside), recorded.get("code")
        if file is None:
            self.unknown.append(f"the code of {reference}")
        return {"code": code if file is None or has_code(file, str(code)) else code_hash(file)}

    def _property(self, section: PropertySection) -> "Property":
        from diffcredit.study.prepared import build_property

        index = self._config.properties.index(section)
        return build_property(section, f"{self._study.file}: properties.{index}", self._beside)


def _has_features(prop: "Property") -> bool:
    from diffcredit.properties.base import needs_features

    return needs_features(prop)


def _overlaid(recorded: Mapping[str, Any], options: Mapping[str, Any], *, listed: bool = True) -> dict[str, Any]:
    """Return the ``recorded`` settings with ``options`` in their places. ``listed``: a record has every option, so that
    one which is not there is new."""
    known = {key: value for key, value in options.items() if listed or key in recorded}
    return {**recorded, **{key: _as_recorded(recorded.get(key), value) for key, value in known.items()}}


def _as_recorded(old: Any, new: Any) -> Any:
    """Return ``new`` as it would be recorded: 1 where 1.0 was recorded is the same number."""
    if isinstance(old, dict) and isinstance(new, dict):
        return _overlaid(old, new)
    return old if old == new and not isinstance(new, bool) else new


def _is_here(place: Any) -> bool:
    return PurePath(str(place)).is_absolute() and Path(str(place)).exists()


def _without_newer(stated: Mapping[str, Any], recorded: Mapping[str, Any], section: Any) -> dict[str, Any]:
    """Leave out settings that the record misses and the study file does not set: they are newer than the record."""
    defaults = {field.name: field.default for field in dataclasses.fields(section)}
    return {key: value for key, value in stated.items() if key in recorded or value != defaults.get(key, value)}
