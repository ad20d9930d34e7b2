"""One training for every purpose: the base model, recovery after pruning, a coalition's fine-tuning.

Step k's images, mirrorings, time steps, noises and dropout follow from (seed, k) alone, so a run that was cut
off continues exactly where it stood, and no number depends on the machine's other work.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diffcredit.diffusion.diverging import TrainingDiverged, diverged
from diffcredit.diffusion.fast.eligibility import give_up, trains_fast
from diffcredit.diffusion.fast.training import fleet_for, plan_among, train_fleet
from diffcredit.diffusion.model import Batch, DiffusionModel
from diffcredit.diffusion.session import current_session
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.stepwise import train_stepwise

__all__ = ["TrainingDiverged", "train", "train_each"]

WORTHWHILE = 1000  # steps; a shorter training, if there is only one, is over before it would be compiled


def train(
    model: DiffusionModel,
    data: Batch,
    settings: Training,
    *,
    seed: int,
    checkpoint: Path | None = None,
    on_step: Callable[[int, int], None] | None = None,
    on_batch: Callable[[int, Batch, Tensor, Tensor], None] | None = None,
    ascend: bool = False,
) -> None:
    """Trains the parameters of ``model.network`` that require gradients, in place, on ``data``.

    The denoising loss is minimised, or maximised to ``ascend``; see :class:`Training` for the step. With a
    ``checkpoint`` file the run saves itself every few seconds and on Ctrl-C, and continues from the file bit for
    bit; the caller removes it when the result is safe. ``on_step(done, total)`` reports progress.
    ``on_batch(step, batch, t, noise)`` looks at the model before each step, and leaves it as it was. Where
    ``torch.distributed`` is set up, all its processes call this alike and train together; the first one writes
    the checkpoint and reports.
    """
    if on_batch is None and settings.steps >= WORTHWHILE and trains_fast(model, settings):
        identity = [seed, len(data), ascend]
        complaints = _as_fleet(
            [model],
            data,
            [torch.arange(len(data))],
            settings,
            [seed],
            1,
            ascend=ascend,
            checkpoint=checkpoint,
            identity=identity,
            on_step=on_step,
        )
        if complaints is not None:
            if complaints[0] is not None:
                raise diverged(complaints[0], settings)
            return
    train_stepwise(
        model,
        data,
        settings,
        seed=seed,
        checkpoint=checkpoint,
        on_step=on_step,
        on_batch=on_batch,
        ascend=ascend,
    )


def train_each(
    models: Sequence[DiffusionModel],
    data: Batch,
    places: Sequence[Tensor],
    settings: Training,
    *,
    seeds: Sequence[int],
    at_once: int = 1,
    on_step: Callable[[int, int], None] | None = None,
) -> list[TrainingDiverged | None]:
    """Trains each of ``models``, all of one architecture, in place as :func:`train` does, on its images of ``data`` at
    its ``places`` (m,); of each, None or how it diverged. On a GPU ``at_once`` of them are trained as one fleet.
    ``on_step(done, total)`` counts the steps of all."""
    found: list[TrainingDiverged | None] = []

    def tell(count: int) -> Callable[[int, int], None] | None:
        if on_step is None:
            return None
        return lambda done, steps: on_step(len(found) * steps + count * done, len(models) * steps)

    for first in range(0, len(models), at_once):
        some = slice(first, first + at_once)
        crew = models[some]
        complaints = None
        if trains_fast(crew[0], settings):
            complaints = _as_fleet(crew, data, places[some], settings, seeds[some], at_once, on_step=tell(len(crew)))
        if complaints is not None:
            found += [None if each is None else diverged(each, settings) for each in complaints]
            continue
        for model, where, seed in zip(crew, places[some], seeds[some], strict=True):
            try:
                train(model, data.select(where), settings, seed=seed, on_step=tell(1))
                found.append(None)
            except TrainingDiverged as error:
                found.append(error)
    return found


def _as_fleet(
    models: Sequence[Any],
    data: Batch,
    places: Sequence[Tensor],
    settings: Training,
    seeds: Sequence[int],
    at_once: int,
    *,
    ascend: bool = False,
    **options: Any,
) -> list[str | None] | None:
    """What is wrong with each of ``models`` after their training; None: they are as before, for the fast path cannot
    go."""
    session = current_session()
    try:
        plans = [
            plan_among(data, where, settings, seed, models[0].time_steps)
            for where, seed in zip(places, seeds, strict=True)
        ]
        fleet = fleet_for(session, models[0], data, settings, at_once, ascend=ascend)
        fleet.load(models, plans)
    except torch.OutOfMemoryError:
        if len(models) > 1:
            raise  # fewer at once may fit
        session.release_fleet()
        return None  # samples in smaller pieces may
    except Exception as error:  # of a compiler, which may fail in any way
        give_up(session, "training", error)
        session.release_fleet()
        return None
    return train_fleet(session, fleet, models, **options)
