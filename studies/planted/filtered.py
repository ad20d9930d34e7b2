"""A retraining with a null player: a contributor who signed up, but whose images were all filtered out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from diffcredit.diffusion.model import DiffusionModel
from diffcredit.errors import UserError
from diffcredit.retraining.base import RetrainingContext
from diffcredit.retraining.sparsified import Sparsified


@dataclass
class Filtered(Sparsified):
    """Sparsified fine-tuning in which the contributor ``filtered`` changes nothing: F(S ∪ {filtered}) = F(S) for every
    coalition S, of nobody as well, where both are the untrained network. The null axiom then gives the credit 0.
    """

    filtered: str = field(kw_only=True)

    def prepare(self, context: RetrainingContext) -> None:
        contributors = context.contributions.contributors
        if self.filtered not in contributors:
            raise UserError(f"filtered: {self.filtered!r} is no contributor; there are: {', '.join(contributors)}")
        self._left = np.array([name != self.filtered for name in contributors])
        super().prepare(context)

    def models_for(self, coalitions: NDArray[np.bool_], seeds: Sequence[int]) -> Iterator[DiffusionModel]:
        return super().models_for(coalitions & self._left, seeds)
