"""The study's own property, measured on each contributor's training images: a control without any model."""

from dataclasses import dataclass

import numpy as np

from diffcredit.baselines.base import Crediting, Evidence
from diffcredit.surrogates import RealData
from diffcredit.util.arrays import FloatArray


@dataclass
class TrainingProperty(Crediting):
    """The property of each contributor's own images."""

    name = "training_property"
    title = "Property of the training images"
    category = "control"
    of_property = True

    def credits(self, evidence: Evidence) -> FloatArray:
        prop, single = evidence.required_property(self.name), np.eye(evidence.contributions.n, dtype=np.bool_)
        return RealData(prop, evidence.contributions, evidence.extractors)(single)
