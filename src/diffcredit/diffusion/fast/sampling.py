"""Sampling of one model after another, with all steps from noise to image in one CUDA graph."""

import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress

import numpy as np
import torch

from diffcredit.diffusion.diffusers_model import DiffusersModel, Guide, check_finite, initial_noise
from diffcredit.diffusion.fast.cuda_graph import Replayed
from diffcredit.diffusion.fast.eligibility import dtype_of, samples_fast
from diffcredit.diffusion.fast.functional import Functions, Layout, functions_of
from diffcredit.diffusion.model import Images
from diffcredit.diffusion.session import Session
from diffcredit.diffusion.settings import Sampling


def prepare_sampler(session: Session, like: DiffusersModel) -> None:
    """Begin to prepare, in a thread, the sampler of models like ``like``, if such are expected."""
    whole = all(weight.requires_grad for weight in like.network.parameters())  # else another network is sampled
    sampling = session.expected_sampling
    if sampling is not None and session.preparation is None and whole and samples_fast(like):
        session.expected_sampling = None

        def prepare() -> None:
            there = torch.cuda.device(like.device) if like.device.type == "cuda" else nullcontext()
            with suppress(Exception), there:  # sampling will fail in the same way, and report it
                _sampler_for(session, like, sampling).record()

        session.preparation = threading.Thread(target=prepare, daemon=True)
        session.preparation.start()


def sampler_for(session: Session, like: DiffusersModel, sampling: Sampling) -> "FastSampler":
    """Return a sampler of models like ``like``: the session's last one where it fits."""
    preparation, session.preparation = session.preparation, None
    if preparation is not None:
        preparation.join()
    return _sampler_for(session, like, sampling)


def _sampler_for(session: Session, like: DiffusersModel, sampling: Sampling) -> "FastSampler":
    functions = functions_of(session, like, 1, dtype_of(sampling.precision, like.device))
    # models that share frozen weights share a sampler
    frozen = [weight.data_ptr() for weight in like.network.parameters() if not weight.requires_grad]
    conditioner = None if like.conditioner is None else like.conditioner.fingerprint
    followed = [conditioner, tuple(like.prompts), like.guidance]
    key: list[object] = [functions, sampling, frozen, *followed]
    if session.sampler is None or session.sampler[0] != key:
        session.sampler = None  # before the next one is made: both may not fit into memory
        session.sampler = key, FastSampler(like, functions, sampling)
    return session.sampler[1]


class FastSampler:
    """A sampler of models like ``like``, ``sampling.batch_size`` images at a time."""

    def __init__(self, like: DiffusersModel, functions: Functions, sampling: Sampling) -> None:
        self._sampling, self._like = sampling, like
        device = like.device
        weights = dict(like.network.named_parameters())
        trained = {name: weight for name, weight in weights.items() if weight.requires_grad}
        layout = Layout(trained)
        line = torch.zeros(1, layout.size, dtype=functions.dtype, device=device)
        self._trained = [view[0] for view in layout.views(line)]
        frozen = functions.frozen(like)
        self._weights = [*self._trained, *frozen.values()]
        self._size = min(sampling.batch_size, sampling.images)
        guide = self._guide(0)
        self._predict = functions.prediction([*layout.names, *frozen], guide)
        # the same for every model, hence drawn once
        self._noises = initial_noise(like.shape, sampling.seeds).to(device)
        self._x = torch.zeros(self._size, *like.shape, device=device)
        self._followed = [
            torch.zeros(self._size, *each.shape[1:], dtype=each.dtype, device=device) for each in guide.tensors
        ]
        self._times = like.objective.sampler(sampling.scheduler, sampling.steps).times
        self._asked = self._times.to(device)[:, None].expand(-1, self._size).contiguous()
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.denoise: Callable[[], None] = (
            self._all_steps if self._stream is None else Replayed(self._all_steps, self._stream, functions.recording)
        )

    def _guide(self, first: int) -> Guide:
        """Return what the images of one batch follow; the texts of all images may fill gigabytes."""
        sampling = self._sampling
        return self._like.guide(sampling.seeds[first : first + self._size], sampling.guidance, sampling.prompts)

    def record(self) -> None:
        """Compile and record the sampling, if that is still to be done."""
        if isinstance(self.denoise, Replayed):
            self.denoise.record()

    @torch.no_grad()
    def sample(self, model: DiffusersModel) -> Images:
        """Return the images (m, h, w, 3) of ``model``."""
        trained = (weight for weight in model.network.parameters() if weight.requires_grad)
        for mine, weight in zip(self._trained, trained, strict=True):
            mine.copy_(weight)
        self.record()
        found = []
        for first in range(0, len(self._noises), self._size):
            noises = self._noises[first : first + self._size]
            self._x[: len(noises)] = noises
            for mine, each in zip(self._followed, self._guide(first).tensors, strict=True):
                mine[: len(noises)] = each
            if self._stream is not None:
                self._stream.wait_stream(torch.cuda.current_stream())
            self.denoise()
            if self._stream is not None:
                torch.cuda.current_stream().wait_stream(self._stream)
            x = self._x[: len(noises)]
            check_finite(x)
            found.append(model.decode(x))
        return np.concatenate(found)

    @torch.no_grad()
    def _all_steps(self) -> None:
        """Denoise ``_x`` in place, from pure noise to samples."""
        sampler = self._like.objective.sampler(self._sampling.scheduler, self._sampling.steps)
        x = self._x
        for k, asked in enumerate(self._asked):
            (prediction,) = self._predict(*self._weights, x, asked, *self._followed)
            x = sampler.step(k, prediction, x)
        self._x.copy_(x)
