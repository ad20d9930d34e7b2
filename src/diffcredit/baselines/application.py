"""The study's own property, measured on every training image by itself."""

from dataclasses import dataclass
from importlib import import_module

import numpy as np

from diffcredit.baselines.base import Evidence, Scoring
from diffcredit.errors import UserError
from diffcredit.features import Features
from diffcredit.properties import PROPERTIES, Images, Property, as_property
from diffcredit.properties.base import has_value_of_each, needs_features
from diffcredit.properties.measuring import copied
from diffcredit.util.arrays import FloatArray

BLOCK = 1024  # images at a time


@dataclass
class ApplicationScores(Scoring):
    """The property of each training image by itself: its aesthetic score, its colourfulness, or minus the entropy of
    its classes for the Inception Score.

    It looks at no generated image. Only properties with ``of_each`` are accepted: a single image has no diversity, and
    no distance between two sets of images.
    """

    name = "application_scores"
    title = "Property of each training image"
    category = "application"
    of_property = True
    aggregations = ("mean", "max")

    def scores(self, evidence: Evidence) -> FloatArray:
        prop, images = as_property(evidence.required_property(self.name)), evidence.contributions.images
        if not has_value_of_each(prop):
            raise UserError(
                f"application_scores: property {prop.name!r} cannot be measured on a single image; accepted: "
                f"{', '.join(_accepted())}, or a plug-in with of_each"
            )
        if needs_features(prop):
            observed: Images | Features = evidence.extractors.kept(prop.features, images, "the training images")
        else:
            observed = images
        scores = np.empty(len(images))
        for start in range(0, len(images), BLOCK):
            rows = slice(start, start + BLOCK)
            part = observed.select(rows) if isinstance(observed, Features) else observed[rows]
            scores[rows] = _of_each(prop, part)
            evidence.progress(f"{prop.name} of each training image", min(start + BLOCK, len(images)), len(images))
        return scores


def _of_each(prop: Property, observed: Images | Features) -> FloatArray:
    values = np.asarray(prop.of_each(copied(observed)), dtype=np.float64)
    if values.shape != (len(observed),):
        raise UserError(
            f"property {prop.name!r}: of_each returned the shape {values.shape} for {len(observed)} images; one "
            "number for each is expected"
        )
    return values


def _accepted() -> list[str]:
    """Return the names of our properties that can be measured on a single image."""
    places = {name: reference.partition(":") for name, reference in PROPERTIES.items()}
    kinds = {name: getattr(import_module(module), kind) for name, (module, _, kind) in places.items()}
    return [name for name, kind in kinds.items() if kind.of_each is not Property.of_each]
