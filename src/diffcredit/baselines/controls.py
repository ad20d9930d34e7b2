"""Floors that every method should beat, and controls that look at the training images alone, without any model."""

from dataclasses import dataclass
from importlib import import_module

import numpy as np

from diffcredit.baselines.base import Crediting, Evidence, Scoring
from diffcredit.errors import UserError
from diffcredit.features import Features
from diffcredit.properties import PROPERTIES, Images, Property, as_property
from diffcredit.properties.base import has_value_of_each, needs_features, needs_model
from diffcredit.properties.measuring import copied, measured_value
from diffcredit.util.arrays import FloatArray
from diffcredit.util.seeds import derive_seed

BLOCK = 1024  # images at a time


@dataclass
class ImageCount(Crediting):
    """How many training images each contributor gave."""

    name = "image_count"
    title = "Number of images"
    category = "floor"

    def credits(self, evidence: Evidence) -> FloatArray:
        return evidence.contributions.counts.astype(np.float64)


@dataclass
class RandomRanking(Crediting):
    """The numbers 1 to n in an order derived from the seed."""

    name = "random_ranking"
    title = "Random ranking"
    category = "floor"

    def credits(self, evidence: Evidence) -> FloatArray:
        generator = np.random.Generator(np.random.PCG64(derive_seed("baselines", "random_ranking", evidence.seed)))
        order = np.argsort(generator.random(evidence.contributions.n), kind="stable")
        return (order + 1).astype(np.float64)


@dataclass
class TrainingProperty(Crediting):
    """The property of each contributor's own images."""

    name = "training_property"
    title = "Property of the training images"
    category = "control"
    of_property = True

    def check(self, evidence: Evidence) -> None:
        prop = as_property(evidence.required_property(self.name))
        if needs_model(prop):
            raise UserError(f"{self.name}: {prop.name!r} measures the model itself, and images have none")

    def credits(self, evidence: Evidence) -> FloatArray:
        self.check(evidence)
        prop, given = as_property(evidence.prop), evidence.contributions
        owned = [np.flatnonzero(given.owner == index) for index in range(given.n)]
        if needs_features(prop):
            features = evidence.extractors.kept(prop.features, given.images, "the training images")
            return np.array([measured_value(prop, features.select(rows)) for rows in owned])
        return np.array([measured_value(prop, given.images[rows]) for rows in owned])


@dataclass
class ApplicationScores(Scoring):
    """The property of each training image by itself, such as its aesthetic score.

    It looks at no generated image. Only properties with ``of_each`` are accepted: a single image has no diversity.
    """

    name = "application_scores"
    title = "Property of each training image"
    category = "application"
    of_property = True
    aggregations = ("mean", "max")

    def check(self, evidence: Evidence) -> None:
        prop = as_property(evidence.required_property(self.name))
        if not has_value_of_each(prop):
            raise UserError(
                f"application_scores: property {prop.name!r} cannot be measured on a single image; accepted: "
                f"{', '.join(_accepted())}, or a plug-in with of_each"
            )

    def scores(self, evidence: Evidence) -> FloatArray:
        self.check(evidence)
        prop, images = as_property(evidence.prop), evidence.contributions.images
        observed: Images | Features = images
        if needs_features(prop):
            observed = evidence.extractors.kept(prop.features, images, "the training images")
        scores = np.empty(len(images))
        for start in range(0, len(images), BLOCK):
            rows = slice(start, start + BLOCK)
            part = observed.select(rows) if isinstance(observed, Features) else observed[rows]
            values = np.asarray(prop.of_each(copied(part)), dtype=np.float64)
            if values.shape != (len(part),):
                raise UserError(
                    f"property {prop.name!r}: of_each returned the shape {values.shape} for {len(part)} images; one "
                    "number for each is expected"
                )
            scores[rows] = values
            evidence.progress(f"{prop.name} of each training image", min(start + BLOCK, len(images)), len(images))
        return scores


def _accepted() -> list[str]:
    """Return the names of our properties that can be measured on a single image."""
    places = {name: reference.partition(":") for name, reference in PROPERTIES.items()}
    kinds = {name: getattr(import_module(module), kind) for name, (module, _, kind) in places.items()}
    return [name for name, kind in kinds.items() if kind.of_each is not Property.of_each]
