"""The study's own property, measured on each contributor's training images: a control without any model."""

from dataclasses import dataclass

import numpy as np

from diffcredit.baselines.base import Crediting, Evidence
from diffcredit.errors import UserError
from diffcredit.properties import as_property
from diffcredit.properties.base import needs_features, needs_model
from diffcredit.properties.measuring import measured_value
from diffcredit.util.arrays import FloatArray


@dataclass
class TrainingProperty(Crediting):
    """The property of each contributor's own images."""

    name = "training_property"
    title = "Property of the training images"
    category = "control"
    of_property = True

    def credits(self, evidence: Evidence) -> FloatArray:
        prop, given = as_property(evidence.required_property(self.name)), evidence.contributions
        if needs_model(prop):
            raise UserError(f"{self.name}: {prop.name!r} measures the model itself, and images have none")
        owned = [np.flatnonzero(given.owner == index) for index in range(given.n)]
        if needs_features(prop):
            features = evidence.extractors.kept(prop.features, given.images, "the training images")
            return np.array([measured_value(prop, features.select(rows)) for rows in owned])
        return np.array([measured_value(prop, given.images[rows]) for rows in owned])
