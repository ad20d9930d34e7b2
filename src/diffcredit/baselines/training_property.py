"""The study's own property, of each contributor's training images: a control without any model."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from diffcredit.baselines.protocol import Category, Evidence
from diffcredit.errors import UserError
from diffcredit.surrogates import RealData
from diffcredit.util.arrays import FloatArray


@dataclass
class TrainingProperty:
    """The property of each contributor's own images, as if everybody were alone with the real data."""

    name: ClassVar[str] = "training_property"
    title: ClassVar[str] = "Property of the training images"
    category: ClassVar[Category] = "control"
    of_property: ClassVar[bool] = True

    def credits(self, evidence: Evidence) -> FloatArray:
        if evidence.prop is None:
            raise UserError("training_property: needs the property that contributors are credited for")
        alone = np.eye(evidence.contributions.n, dtype=np.bool_)
        return RealData(evidence.prop, evidence.contributions, evidence.extractors)(alone)
