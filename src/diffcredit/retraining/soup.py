"""Model soup: each contributor's fine-tuned model, computed once and cached, and the averages of coalitions. House
images make one model more, which is in every average."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from diffcredit.contributions import Contributions
from diffcredit.diffusion.digests import tensors_fingerprint
from diffcredit.diffusion.fast.eligibility import fleet_size
from diffcredit.diffusion.model import Batch, DiffusionModel
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.training import train_each
from diffcredit.retraining.base import OneByOne, Rehearsal, RetrainingContext
from diffcredit.retraining.fine_tune import FineTune
from diffcredit.retraining.pruning import Sparsity
from diffcredit.retraining.pruning.sparsity import rehearsal_of, start_of
from diffcredit.util.artifacts import atomic_file, fingerprint, fingerprint_arrays
from diffcredit.util.seeds import derive_seed

Make = Callable[[Sequence[int], Batch, Sequence[Tensor]], Iterable[Mapping[str, Tensor]]]


@dataclass(frozen=True)
class ForEachContributor:
    """One safetensors file per group of images: each contributor's, then the house's if there are house images."""

    files: tuple[Path, ...]

    @classmethod
    def prepare(cls, context: RetrainingContext, kind: str, identity: Any, make: Make, at_once: int = 1) -> Self:
        """Call ``make([i, …], data, [indices of group i's images in data, …])`` for the groups without a file,
        ``at_once`` of them at a time. A file is named by the fingerprint of ``identity`` (JSON: all that fixes the
        tensors beside the images) and of the group's images, captions and indices, in the folder ``kind``."""
        groups = context.contributions.groups
        names = [_name(context, identity, rows) for rows in groups]
        files = tuple(context.folder / kind / f"{name}.safetensors" for name in names)
        missing = [index for index, file in enumerate(files) if not file.exists()]
        if missing:
            data = context.data()
            for some in (missing[first : first + at_once] for first in range(0, len(missing), at_once)):
                places = [torch.from_numpy(groups[index]) for index in some]
                for index, made in zip(some, make(some, data, places), strict=True):
                    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in made.items()}
                    with atomic_file(files[index]) as temporary:
                        save_file(tensors, temporary, {"content": tensors_fingerprint(tensors)})
        return cls(files)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the contents of all files, as they were written."""
        with ExitStack() as stack:
            opened = [stack.enter_context(safe_open(file, framework="pt")) for file in self.files]
            return fingerprint([file.metadata()["content"] for file in opened])


def _name(context: RetrainingContext, identity: Any, rows: NDArray[np.int64]) -> str:
    contributions = context.contributions
    captions = contributions.captions and [contributions.captions[row] for row in rows]
    images = fingerprint_arrays({"images": contributions.images[rows], "rows": rows})
    return fingerprint([identity, images, captions])[:12]


@dataclass(frozen=True)
class ContributorModels:
    """``start``, fine-tuned once on the images of each contributor, and of the house; the trainable weights of each are
    cached on disk. All have the same seed, hence the same time steps and noises: only the images differ."""

    start: DiffusionModel
    kept: ForEachContributor

    @classmethod
    def prepare(cls, context: RetrainingContext, start: DiffusionModel, training: Training) -> Self:
        """Fine-tune ``start`` on each group of images that has no model yet."""
        seed, n = derive_seed(context.seed, "contributor models"), len(context.contributions.groups)
        at_once = fleet_size(start, training)

        def make(some: Sequence[int], data: Batch, places: Sequence[Tensor]) -> Iterator[Mapping[str, Tensor]]:
            def report(done: int, total: int) -> None:
                context.progress("fine-tuning each contributor", some[0] * training.steps + done, n * training.steps)

            models = [start.clone() for _ in some]
            seeds = [seed] * len(some)
            errors = train_each(models, data, places, training, seeds=seeds, at_once=at_once, on_step=report)
            for model, error in zip(models, errors, strict=True):
                if error is not None:
                    raise error
                yield _trainable(model)

        identity = [start.fingerprint, dataclasses.asdict(training), seed]
        return cls(start, ForEachContributor.prepare(context, "contributors", identity, make, at_once))

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the start and of all weights."""
        return fingerprint([self.start.fingerprint, self.kept.fingerprint])

    def model(self, index: int) -> DiffusionModel:
        return self.average(np.arange(len(self.kept.files)) == index)

    def average(self, weights: NDArray[np.bool_] | NDArray[np.float64]) -> DiffusionModel:
        """Return the model with the weights Σ_i w_i θ_i, given w of each group. Low-rank factors are averaged one by
        one."""
        model = self.start.clone()
        with torch.no_grad(), ExitStack() as stack:
            mixed = [
                (float(weight), stack.enter_context(safe_open(file, framework="pt")))
                for weight, file in zip(weights, self.kept.files, strict=True)
                if weight
            ]
            for name, parameter in _trainable(model).items():
                # in double precision, so that a single model with weight 1 is reproduced bit for bit
                total = torch.zeros(parameter.shape, dtype=torch.float64)
                for weight, file in mixed:
                    total.add_(file.get_tensor(name), alpha=weight)
                parameter.copy_(total)
        return model


def _trainable(model: DiffusionModel) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in model.network.named_parameters() if parameter.requires_grad}


@dataclass
class Soup(OneByOne, FineTune):
    """Fine-tune the base or the ``sparse`` model as :class:`FineTune` does, once for each contributor i: θ_i.

    A coalition S trains nothing: its weights are Σ_{i∈S} (m_i/m_S) θ_i, with m_i images of contributor i and m_S of all
    in S (Wortsman et al. 2022); the house is one more i that is in every S. To first order in the learning rate this
    equals fine-tuning on S. Nothing is random: the seed of an evaluation changes nothing.
    """

    sparse: Sparsity | None = None

    def prepare(self, context: RetrainingContext) -> None:
        self.start, self.context = start_of(context, self.sparse), context
        self.settings = self.training(context.training)
        self.contributor_models = ContributorModels.prepare(context, self.start, self.settings)
        self.weights = self.contributor_models.fingerprint

    def rehearse(self, start: DiffusionModel, training: Training, contributions: Contributions) -> Rehearsal:
        steps = len(contributions.groups) * self.steps
        return rehearsal_of(start, self.training(training), self.sparse, coalition=None, prepared_steps=steps)

    def model_for(self, coalition: NDArray[np.bool_], seed: int) -> DiffusionModel:
        return self.contributor_models.average(self.context.contributions.weights(coalition))
