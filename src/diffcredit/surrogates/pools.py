"""Each contributor's own model generates a pool of images once; a coalition's images are drawn from its members'."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from diffcredit.diffusion.settings import Count
from diffcredit.properties import Images
from diffcredit.surrogates.base import Material, Work
from diffcredit.surrogates.contributor_models import contributor_models, identity
from diffcredit.util.arrays import BoolArray
from diffcredit.util.artifacts import read_arrays, write_arrays

WHAT = "sampling the contributors' models"


@dataclass
class Pools:
    """The members' pools, mixed in proportion to their data.

    Image j of a coalition starts from the study's initial noise j, as image j of every model does, and is taken from
    one member's pool. No training and no sampling per coalition, only measuring.
    """

    coalitions: Count = 1000

    needs_start: ClassVar[bool] = True
    keeps_seeds: ClassVar[bool] = True

    def work(self, n: int, coalitions: int) -> Work:
        return Work(fine_tunings=n, samplings=n)

    def prepare(self, material: Material) -> None:
        from diffcredit.diffusion.generating import generate

        name, n = identity(material, "pools")[:12], material.contributions.n
        files = [material.folder / f"pool-{name}-{index}.safetensors" for index in range(n)]
        if not all(file.exists() for file in files):
            models = contributor_models(material, "pools")
            for index, file in enumerate(files):
                material.progress(WHAT, index, n)
                if not file.exists():
                    write_arrays(file, {"images": generate(models.model(index), material.sampling, often=True)})
            material.progress(WHAT, n, n)
        self.library = np.concatenate([read_arrays(file)["images"] for file in files])
        self._counts = material.contributions.counts

    def rows(self, coalition: BoolArray) -> NDArray[np.int64]:
        seeds = np.arange(len(self.library) // len(self._counts))
        return shared_out(coalition, self._counts, len(seeds)) * len(seeds) + seeds

    def images(self, coalition: BoolArray) -> Images:
        return self.library[self.rows(coalition)]


def shared_out(coalition: BoolArray, counts: NDArray[np.int64], images: int) -> NDArray[np.int64]:
    """(images,): whose pool each image comes from, every member as often as its share of the coalition's data says.

    Image j goes to the member whose part of [0, 1) holds the j-th point of van der Corput's sequence: numbers are
    right to about log₂(images)/3, also among any first images, and depend on the coalition alone.
    """
    from scipy.stats import qmc

    members = np.flatnonzero(coalition)
    bounds = np.cumsum(counts[members]) / counts[members].sum()
    points = qmc.Halton(d=1, scramble=False).random(images)[:, 0]
    return members[np.minimum(np.searchsorted(bounds, points, side="right"), len(members) - 1)]
