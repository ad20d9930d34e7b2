"""Training by fleets, which are kept and reloaded with the next coalitions' models."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor

from diffcredit.diffusion import checkpoints
from diffcredit.diffusion.checkpoints import interruption, read_checkpoint, write_checkpoint
from diffcredit.diffusion.draws import Plan, plan
from diffcredit.diffusion.fast.eligibility import dtype_of
from diffcredit.diffusion.fast.fleet import Fleet
from diffcredit.diffusion.fast.functional import functions_of
from diffcredit.diffusion.fast.sampling import prepare_sampler
from diffcredit.diffusion.model import Batch
from diffcredit.diffusion.session import Session
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.unet import UNetModel
from diffcredit.util.artifacts import fingerprint

LOOK_STEPS = 25  # between two checks of the losses, for which the host waits for the device


def fleet_for(
    session: Session, like: UNetModel, data: Batch, settings: Training, count: int, *, ascend: bool = False
) -> Fleet:
    """Return a fleet of ``count`` models like ``like``: the session's last one where it fits."""
    functions = functions_of(session, like, count, dtype_of(settings.precision, like.device))
    frozen = [weight.data_ptr() for weight in like.network.parameters() if not weight.requires_grad]
    key: list[object] = [functions, settings, ascend, frozen]
    if session.fleet is not None and session.fleet[0] == key and session.fleet[1] is data:
        return session.fleet[2]
    session.release_fleet()  # before the next one is made: both may not fit into memory
    fleet = Fleet(like, functions, data, settings, ascend=ascend)
    session.fleet = key, data, fleet
    return fleet


def plan_among(data: Batch, places: Tensor, settings: Training, seed: int, time_steps: int) -> Plan:
    """Plan a training on the images at ``places`` (m,) of ``data``; the plan's places are indices in ``data``."""
    own = plan(data.rows[places], settings, seed, time_steps)
    return Plan(places[own.places], own.flip, own.t, own.keys)


def train_fleet(
    session: Session,
    fleet: Fleet,
    models: Sequence[UNetModel],
    *,
    checkpoint: Path | None = None,
    identity: object = None,
    on_step: Callable[[int, int], None] | None = None,
) -> list[str | None]:
    """Train ``models``, with which ``fleet`` is loaded, in place; return for each None or what is wrong with it.

    With a ``checkpoint`` the run of this ``identity`` is saved and continued as in ``train``.
    """
    prepare_sampler(session, models[0])
    steps = fleet.settings.steps
    mark = fingerprint([identity, fleet.shape, repr(fleet.settings)])
    done = 0
    if checkpoint is not None:
        state = read_checkpoint(checkpoint, mark, models[0].device)
        done = 0 if state is None else fleet.restore(state)
    saved = time.monotonic()
    with interruption(checkpoint is not None) as interrupted:
        while done < steps and fleet.sound(done):  # unload reports models that are not
            for _ in range(min(LOOK_STEPS, steps - done)):
                fleet.step()
                done += 1
            if on_step is not None:
                on_step(done, steps)
            overdue = time.monotonic() - saved > checkpoints.CHECKPOINT_SECONDS
            if checkpoint is not None and (overdue or interrupted.is_set()):
                if fleet.sound(done):  # only a sound state is worth saving
                    write_checkpoint(checkpoint, mark, fleet.state(done))
                saved = time.monotonic()
            if interrupted.is_set():
                raise KeyboardInterrupt
    complaints = fleet.unload(models)
    for model in models:
        model.network.eval()
        model.made = fleet.numerics
    return complaints
