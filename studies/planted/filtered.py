"""A retraining with a null player: a contributor who signed up, but whose images were all filtered out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from diffcredit.diffusion.protocol import DiffusionModel
from diffcredit.errors import UserError
from diffcredit.retraining.protocol import Ground
from diffcredit.retraining.sparsified import Sparsified


@dataclass
class Filtered(Sparsified):
    """Sparsified fine-tuning in which the contributor ``filtered`` changes nothing: F(S ∪ {filtered}) = F(S) for every
    coalition S, of nobody as well, where both are the untrained network. The null axiom then gives the credit 0.
    """

    filtered: str = field(kw_only=True)

    def prepare(self, ground: Ground) -> None:
        contributors = ground.contributions.contributors
        if self.filtered not in contributors:
            raise UserError(f"filtered: {self.filtered!r} is no contributor; there are: {', '.join(contributors)}")
        self._left = np.array([name != self.filtered for name in contributors])
        super().prepare(ground)

    def models_for(self, coalitions: NDArray[np.bool_], seeds: Sequence[int]) -> Iterator[DiffusionModel]:
        return super().models_for(coalitions & self._left, seeds)
