"""The study's own property, of every training image alone."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from diffcredit.baselines.protocol import Category, Evidence, How
from diffcredit.errors import UserError
from diffcredit.features import Features
from diffcredit.properties import PROPERTIES, Images
from diffcredit.properties.measuring import copied, needs_features
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
        prop, images = evidence.prop, evidence.contributions.images
        if prop is None:
            raise UserError("application_scores: needs the property that contributors are credited for")
        if not hasattr(prop, "of_each"):
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


def _of_each(prop: Any, observed: Images | Features) -> FloatArray:
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
    return [
        name for name, (module, _, kind) in places.items() if hasattr(getattr(import_module(module), kind), "of_each")
    ]
