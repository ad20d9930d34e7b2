"""What every way to a coalition's model offers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.diffusion.encoding import encoded
from diffcredit.diffusion.protocol import Batch, DiffusionModel
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.training import train_each
from diffcredit.util.progress import Progress
from diffcredit.util.seeds import derive_seed


@dataclass(frozen=True)
class Ground:
    """What a retraining starts from: the base model and how it was trained, the contributions, the study's
    seed, the folder where prepared models are kept, and how one that was kept there is loaded."""

    base: DiffusionModel
    contributions: Contributions
    training: Training
    seed: int
    folder: Path
    load: Callable[[Path], DiffusionModel]
    progress: Progress

    def data(self) -> Batch:
        """All contributions as the base model sees them, and with it every model that is made from it."""
        return encoded(self.base, self.contributions, self.folder, mirrored=self.training.flip, progress=self.progress)

    def untrained(self, like: DiffusionModel) -> DiffusionModel:
        """The model of no contributor: ``like``'s architecture with the study's one set of fresh weights.

        One network a study, so that F(none) is a number and not one more source of noise.
        """
        return like.untrained(derive_seed(self.seed, "untrained"))


@dataclass(frozen=True)
class Rehearsal:
    """What a retraining would train, for foreseeing its cost: a model of the right shape, the settings of the
    one preparation and those of each coalition; None: there is nothing to train. ``together``: whether it trains
    several coalitions' models at once where a GPU has room."""

    model: DiffusionModel
    preparation: Training | None
    coalition: Training | None
    together: bool = False


class Retraining(Protocol):
    """Any way to get a coalition's model. Many coalitions at once, so that a fleet is no special case.

    One that does not fine-tune a model that all coalitions start from says ``fine_tunes = False``: surrogates that
    fine-tune it too are then refused before anything is trained.
    """

    def prepare(self, ground: Ground) -> None:
        """Once a study, e.g. prune and recover. What it makes is kept in ``ground.folder`` and found again."""
        ...

    def rehearse(self, start: DiffusionModel, training: Training, contributions: Contributions) -> Rehearsal:
        """What there is to train, given the base model's architecture and training. Before ``prepare``."""
        ...

    @property
    def weights(self) -> str:
        """Fingerprint of the weights that coalitions start from, known once prepared; empty if from nothing."""
        ...

    # ``at_once: int``, where it has it, says how many coalitions' models it makes best together

    def models_for(self, coalitions: NDArray[np.bool_], seeds: Sequence[int]) -> Iterator[DiffusionModel]:
        """The models of ``coalitions`` (m, n), one per row and seed. Of nobody: the untrained network.

        All that is random follows from the seed; where nothing is, another seed gives the same model.
        """
        ...


def in_fleets(
    ground: Ground,
    start: DiffusionModel,
    coalitions: NDArray[np.bool_],
    seeds: Sequence[int],
    at_once: int,
    begin: Callable[[int], DiffusionModel],
    data: Batch,
    settings: Training,
) -> Iterator[DiffusionModel]:
    """The model of each row of ``coalitions`` (m, n): ``begin(seed)``, trained on its images of ``data`` as
    ``settings`` say, ``at_once`` together; of nobody, the untrained ``start``."""
    for first in range(0, len(seeds), at_once):
        some = slice(first, first + at_once)
        peopled = [place for place, coalition in enumerate(coalitions[some]) if coalition.any()]
        own = [seeds[some][place] for place in peopled]
        models = [begin(seed) for seed in own]
        images = [torch.from_numpy(ground.contributions.of(coalitions[some][place])) for place in peopled]
        errors = train_each(models, data, images, settings, seeds=own, at_once=at_once)
        made = dict(zip(peopled, zip(models, errors, strict=True), strict=True))
        for place in range(len(coalitions[some])):
            model, error = made.pop(place, (None, None))
            if error is not None:
                raise error
            yield ground.untrained(start) if model is None else model


def one_by_one(
    ground: Ground,
    start: DiffusionModel,
    coalitions: NDArray[np.bool_],
    seeds: Sequence[int],
    model_for: Callable[[NDArray[np.bool_], int], DiffusionModel],
) -> Iterator[DiffusionModel]:
    """``model_for(coalition, seed)`` of each row of ``coalitions`` (m, n); of nobody, the untrained ``start``."""
    for coalition, seed in zip(coalitions, seeds, strict=True):
        yield model_for(coalition, seed) if coalition.any() else ground.untrained(start)
