"""What every way to a coalition's model offers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.protocol import DiffusionModel
from diffcredit.diffusion.settings import Training
from diffcredit.progress import Progress
from diffcredit.seeds import derive_seed


@dataclass(frozen=True)
class Ground:
    """What a retraining starts from: the base model and how it was trained, the contributions, the study's
    seed, and the folder where prepared models are kept."""

    base: DiffusionModel
    contributions: Contributions
    training: Training
    seed: int
    folder: Path
    progress: Progress

    def untrained(self, like: DiffusionModel) -> DiffusionModel:
        """The model of no contributor: ``like``'s architecture with the study's one set of fresh weights.

        One network a study, so that F(none) is a number and not one more source of noise.
        """
        return like.untrained(derive_seed(self.seed, "untrained"))


@dataclass(frozen=True)
class Rehearsal:
    """What a retraining would train, for foreseeing its cost: a model of the right shape, the settings of the
    one preparation (None: there is none) and those of each coalition."""

    model: DiffusionModel
    preparation: Training | None
    coalition: Training


class Retraining(Protocol):
    """Any way to get a coalition's model. Many coalitions at once, so that a fleet is no special case."""

    def prepare(self, ground: Ground) -> None:
        """Once a study, e.g. prune and recover. What it makes is kept in ``ground.folder`` and found again."""
        ...

    def rehearse(self, untrained: DiffusionModel, training: Training) -> Rehearsal:
        """What there is to train, given the base model's architecture and training. Before ``prepare``."""
        ...

    @property
    def weights(self) -> str:
        """Fingerprint of the weights that coalitions start from, known once prepared; empty if from nothing."""
        ...

    def models_for(self, coalitions: NDArray[np.bool_], seeds: Sequence[int]) -> Iterator[DiffusionModel]:
        """The models of ``coalitions`` (m, n), one per row and seed. Of nobody: the untrained network."""
        ...
