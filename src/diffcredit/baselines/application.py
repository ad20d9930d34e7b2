"""The study's own property, of every training image alone."""

from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

import numpy as np

from diffcredit.baselines.protocol import Category, Evidence, How
from diffcredit.errors import UserError
from diffcredit.features import Features
from diffcredit.properties import PROPERTIES, Images, Property, as_property
from diffcredit.properties.base import has_value_of_each, needs_features
from diffcredit.properties.measuring import copied
from diffcredit.util.arrays import FloatArray

BLOCK = 1024  # images at a time


@dataclass
class ApplicationScores:
    """The property of each training image by itself: its aesthetic score, its colourfulness, minus the entropy of its
    classes for the Inception Score.

    It looks at no generated image, and takes properties that have ``of_each`` alone: of diversity, or of the distance
    between two sets of images, one image has none.
    """

    name: ClassVar[str] = "application_scores"
    title: ClassVar[str] = "Property of each training image"
    category: ClassVar[Category] = "application"
    of_property: ClassVar[bool] = True
    aggregations: ClassVar[tuple[How, ...]] = ("mean", "max")

    def scores(self, evidence: Evidence) -> FloatArray:
        images = evidence.contributions.images
        if evidence.prop is None:
            raise UserError("application_scores: needs the property that contributors are credited for")
        prop = as_property(evidence.prop)
        if not has_value_of_each(prop):
            raise UserError(
                f"application_scores: property {prop.name!r} is none of a single image; accepted: "
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
            f"property {prop.name!r}: of_each returned the shape {values.shape} of {len(observed)} images; one number "
            "an image is expected"
        )
    return values


def _accepted() -> list[str]:
    """The names of our properties that a single image has."""
    places = {name: reference.partition(":") for name, reference in PROPERTIES.items()}
    kinds = {name: getattr(import_module(module), kind) for name, (module, _, kind) in places.items()}
    return [name for name, kind in kinds.items() if kind.of_each is not Property.of_each]
