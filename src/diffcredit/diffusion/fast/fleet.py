"""A fleet: K models of one architecture trained as one, then reloaded with the next coalitions' models, so that
compiling and recording are paid for once."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from diffcredit.diffusion import checkpoints
from diffcredit.diffusion.checkpoints import interruption, read_checkpoint, write_checkpoint
from diffcredit.diffusion.counter_rng import normal_counters, quantiles, word_counters
from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.draws import Plan, plan
from diffcredit.diffusion.fast.compiling import sums_by_rule
from diffcredit.diffusion.fast.cuda_graph import WARM_UP, Replayed
from diffcredit.diffusion.fast.eligibility import dtype_of
from diffcredit.diffusion.fast.functional import Functions, Layout, functions_of
from diffcredit.diffusion.fast.sampling import prepare_sampler
from diffcredit.diffusion.model import Batch
from diffcredit.diffusion.optimizers import averaged_share, learning_rate
from diffcredit.diffusion.session import Session
from diffcredit.diffusion.settings import Training
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.events import event

LOOK_STEPS = 25  # between two checks of the losses, for which the host waits for the device
REPORT_STEPS = 4 * LOOK_STEPS  # between two reports of the loss
DROPPED = 2**20  # words that a dropout may need per sample, or samples


class Fleet:
    """A trainer of ``functions.count`` models like ``like`` on images of ``data`` with ``settings``. On a GPU the step
    is recorded as a CUDA graph, from the choice of images to the averaged weights: the step's number is on the device,
    and its inputs are looked up there."""

    def __init__(
        self, like: DiffusersModel, functions: Functions, data: Batch, settings: Training, *, ascend: bool = False
    ) -> None:
        self.count, self.settings, self._functions, self._data = functions.count, settings, functions, data
        device = like.device
        weights = dict(like.network.named_parameters())
        trained = {name: weight for name, weight in weights.items() if weight.requires_grad}
        self._layout = Layout(trained)
        kind = next(iter(trained.values())).dtype
        real: dict[str, Any] = {"dtype": kind, "device": device}
        self._weights, self._gradient = (torch.zeros(self.count, self._layout.size, **real) for _ in range(2))
        self._average = torch.zeros_like(self._weights) if settings.averages else None
        self._gradients = self._layout.views(self._gradient)
        # the network's weights: the weights themselves, or rounded copies
        self._rounded = self._weights if functions.dtype == kind else self._weights.to(functions.dtype)
        views = self._layout.views(self._rounded)
        frozen = functions.frozen(like)
        self._given = [*(view if self.count > 1 else view[0] for view in views), *frozen.values()]
        sign = -1 if ascend else 1
        self._conditioned = sorted(data.conditions or ())
        names = self._layout.names
        self._slopes = functions.gradients(names, list(frozen), self._conditioned, settings.min_snr, sign)
        size, last = settings.batch_size, settings.steps - 1
        steps = range(max(settings.steps, WARM_UP))  # the warm-up looks its steps up too
        whole: dict[str, Any] = {"dtype": torch.int64, "device": device}
        self._places, self._times = (torch.zeros(len(steps), self.count, size, **whole) for _ in range(2))
        self._flips = torch.zeros(len(steps), self.count, size, dtype=torch.bool, device=device)
        self._dropped = torch.zeros_like(self._flips) if like.condition_dropout else None
        self._keys = torch.zeros(len(steps), self.count, **whole)
        self._rates = torch.tensor([learning_rate(settings, min(step, last)) for step in steps], **real)
        self._shares = torch.tensor([averaged_share(settings, min(step, last) + 1) for step in steps], **real)
        self._losses = torch.zeros(len(steps), self.count, **real)
        self._quantiles, self._counters = quantiles(device), normal_counters(data.x[0].numel() * size, device)
        self._table = word_counters(DROPPED, device) if functions.drops else None
        self._at = torch.zeros(1, **whole)  # the number of the next step
        self._rate = torch.zeros((), **real)
        graphed = device.type == "cuda"
        self._optimizer = self._make_optimizer(capturable=graphed)
        self.stream = torch.cuda.Stream(device) if graphed else None
        self.step: Callable[[], None] = (
            self._advance if self.stream is None else Replayed(self._advance, self.stream, functions.recording)
        )

    def load(self, models: Sequence[DiffusersModel], plans: Sequence[Plan]) -> None:
        """Load ``models``, at most ``count``, each to be trained by its plan."""
        self._reset(models, plans)
        if isinstance(self.step, Replayed) and self.step.record():
            self._reset(models, plans)

    def _reset(self, models: Sequence[DiffusersModel], plans: Sequence[Plan]) -> None:
        # unused places are filled with copies of the first model, whose results are ignored
        idle = self.count - len(models)
        filled, filled_plans = [*models, *[models[0]] * idle], [*plans, *[plans[0]] * idle]
        with torch.no_grad():
            for view, weights in zip(
                self._layout.views(self._weights), zip(*map(_trained, filled), strict=True), strict=True
            ):
                for mine, weight in zip(view, weights, strict=True):
                    mine.copy_(weight)
            if self._rounded is not self._weights:
                self._rounded.copy_(self._weights)
            if self._average is not None:
                self._average.copy_(self._weights)
            for state in self._optimizer.state.values():
                for value in state.values():
                    value.zero_()
            steps = slice(self.settings.steps)
            self._places[steps] = torch.stack([plan.places for plan in filled_plans], dim=1).to(self._places.device)
            self._flips[steps] = torch.stack([plan.flip for plan in filled_plans], dim=1).to(self._flips.device)
            self._times[steps] = torch.stack([plan.t for plan in filled_plans], dim=1).to(self._times.device)
            if self._dropped is not None:
                dropped = [cast(Tensor, plan.dropped) for plan in filled_plans]
                self._dropped[steps] = torch.stack(dropped, dim=1).to(self._dropped.device)
            self._keys[steps] = torch.stack([plan.keys for plan in filled_plans], dim=1).to(self._keys.device)
            self._losses.zero_()
            self._at.zero_()
        self._start_after_current_stream()

    @property
    def numerics(self) -> dict[str, Any]:
        """How results are computed, as far as their last bits depend on it."""
        dtype = str(self._functions.dtype).removeprefix("torch.")
        ruled = {} if self.stream is None else {"sums_by_rule": sums_by_rule()}
        return {"path": "graph", "dtype": dtype, "fleet": self.count, **ruled}

    @property
    def shape(self) -> list[int]:
        """(models, numbers per model) of the weights."""
        return list(self._weights.shape)

    def sound(self, done: int) -> bool:
        """Return whether a model is left whose losses of the first ``done`` steps are finite; waits for the device."""
        self._hold_current_stream()
        return bool(self._losses[:done].isfinite().all(dim=0).any())

    def loss(self, done: int) -> float:
        """Return the first model's mean loss of the last steps, after ``done`` of them; waits for the device."""
        self._hold_current_stream()
        return float(self._losses[max(0, done - REPORT_STEPS) : done, 0].mean())

    def state(self, done: int) -> dict[str, Any]:
        """Return all that changes with the steps, after ``done`` of them."""
        self._hold_current_stream()
        moments = self._optimizer.state[self._master]
        average = {} if self._average is None else {"average": self._average}
        return {"step": done, "weights": self._weights, "losses": self._losses, "optimizer": dict(moments), **average}

    def restore(self, state: dict[str, Any]) -> int:
        """Restore a :meth:`state`; return its number of steps."""
        with torch.no_grad():
            self._weights.copy_(state["weights"])
            self._losses.copy_(state["losses"])
            if self._rounded is not self._weights:
                self._rounded.copy_(self._weights)
            if self._average is not None:
                self._average.copy_(state["average"])
            moments = self._optimizer.state[self._master]
            for name, moment in state["optimizer"].items():
                moments.setdefault(name, torch.zeros_like(moment)).copy_(
                    moment
                )  # in place, as the recording refers to it
            self._at.fill_(state["step"])
        self._start_after_current_stream()
        return state["step"]

    def _start_after_current_stream(self) -> None:
        """Make the fleet's stream wait for the current stream."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())

    def _hold_current_stream(self) -> None:
        """Make the current stream wait for the fleet's."""
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)

    def unload(self, models: Sequence[DiffusersModel]) -> list[str | None]:
        """Copy the trained weights to ``models``; return for each None, or what is not finite: loss or weights."""
        self._hold_current_stream()
        result = self._weights if self._average is None else self._average
        with torch.no_grad():
            for place, model in enumerate(models):
                for view, weight in zip(self._layout.views(result), _trained(model), strict=True):
                    weight.copy_(view[place])
        finite, sound = self._losses[: self.settings.steps].isfinite().cpu(), result.isfinite().all(dim=1).tolist()
        return [_complaint(finite[:, place], sound[place]) for place in range(len(models))]

    def _advance(self) -> None:
        """Take one step of all models."""
        places, flip, t, keys = (
            table.index_select(0, self._at).flatten() for table in (self._places, self._flips, self._times, self._keys)
        )
        data = self._data
        dropped = None if self._dropped is None else self._dropped.index_select(0, self._at).flatten()
        condition = data.conditions_at(places, dropped) or {}
        losses, *gradients = self._slopes(
            *self._given,
            data.x.index_select(0, places),
            data.flipped.index_select(0, places),
            flip,
            t,
            keys,
            self._counters,
            self._quantiles,
            self._table,
            *(condition[name] for name in self._conditioned),
        )
        with torch.no_grad():
            self._gather(gradients if self.count > 1 else [gradient[None] for gradient in gradients])
            if self.settings.gradient_clip is not None:
                # of each model, as torch's clip_grad_norm_ does
                norms = self._gradient.norm(dim=1, keepdim=True)
                self._gradient *= (self.settings.gradient_clip / (norms + 1e-6)).clamp(max=1.0)
            self._rate.copy_(self._rates.index_select(0, self._at)[0])
            self._optimizer.step()
            if self._rounded is not self._weights:
                self._rounded.copy_(self._weights)
            if self._average is not None:
                self._average.lerp_(self._weights, self._shares.index_select(0, self._at)[0])
            self._losses.index_copy_(0, self._at, losses.to(self._losses.dtype)[None])
            self._at += 1

    def _gather(self, gradients: Sequence[Tensor]) -> None:
        """Copy ``gradients``, each (K, …), to their positions; those of equal strides by one kernel."""
        places, alike = [], []
        for place, gradient in zip(self._gradients, gradients, strict=True):
            mine, given = ([each.squeeze() for each in weights] for weights in (place, gradient))
            if mine[0].stride() == given[0].stride():
                places += mine
                alike += given
            else:
                place.copy_(gradient)
        if places:
            torch._foreach_copy_(places, alike)

    def _make_optimizer(self, *, capturable: bool) -> torch.optim.Optimizer:
        self._master = master = nn.Parameter(self._weights)
        master.grad = self._gradient
        if self.settings.optimizer == "sgd":
            return torch.optim.SGD([master], lr=self._rate, fused=True)
        options: dict[str, Any] = {"lr": self._rate, "fused": True, "capturable": capturable}
        if self.settings.optimizer == "adam":
            return torch.optim.Adam([master], **options)
        return torch.optim.AdamW([master], weight_decay=self.settings.weight_decay, **options)


def _trained(model: DiffusersModel) -> list[Tensor]:
    return [weight for weight in model.network.parameters() if weight.requires_grad]


def _complaint(finite: Tensor, sound: bool) -> str | None:
    """Return what is wrong with a model, given whether each loss (steps,) is finite and its weights are ``sound``."""
    if not finite.all():
        return f"the training loss became infinite or nan at step {int((~finite).nonzero()[0]) + 1}"
    return None if sound else f"the weights became infinite or nan at step {len(finite)}"


def fleet_for(
    session: Session, like: DiffusersModel, data: Batch, settings: Training, count: int, *, ascend: bool = False
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


def plan_among(data: Batch, places: Tensor, settings: Training, seed: int, like: DiffusersModel) -> Plan:
    """Plan a training of a model like ``like`` on the images at ``places`` (m,) of ``data``; the plan's places are
    indices in ``data``."""
    own = plan(data.rows[places], settings, seed, like.time_steps, dropout=like.condition_dropout)
    return replace(own, places=places[own.places])


def train_fleet(
    session: Session,
    fleet: Fleet,
    models: Sequence[DiffusersModel],
    *,
    checkpoint: Path | None = None,
    identity: object = None,
    on_step: Callable[[int, int], None] | None = None,
) -> list[str | None]:
    """Train ``models``, with which ``fleet`` is loaded, in place; return for each None or what is wrong with it. With a
    ``checkpoint`` the run of this ``identity`` is saved and continued as in ``train``."""
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
            if checkpoint is not None and done % REPORT_STEPS == 0:
                event("training loss", step=done, loss=fleet.loss(done))
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
