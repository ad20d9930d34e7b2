"""The study's own property, of each contributor's training images: a control without any model."""

import numpy as np

from diffcredit.baselines.protocol import Evidence, FloatArray
from diffcredit.errors import UserError
from diffcredit.surrogates import RealData


def training_property(evidence: Evidence) -> FloatArray:
    """(n,): the property of each contributor's own images, as if everybody were alone with the real data."""
    if evidence.prop is None:
        raise UserError("training_property: needs the property that contributors are credited for")
    alone = np.eye(evidence.contributions.n, dtype=np.bool_)
    return RealData(evidence.prop, evidence.contributions, evidence.extractors)(alone)
