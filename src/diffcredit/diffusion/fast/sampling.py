"""Images of one model after another, all steps from the noises to the images in one recording."""

import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress

import numpy as np
import torch

from diffcredit.diffusion.fast.eligibility import dtype_of, samples_fast
from diffcredit.diffusion.fast.flat import Layout
from diffcredit.diffusion.fast.functional import Functions, functions_of
from diffcredit.diffusion.fast.replaying import Replayed
from diffcredit.diffusion.protocol import Images
from diffcredit.diffusion.settings import Sampling
from diffcredit.diffusion.unet import UNetModel, check_finite, initial_noise

_latest: list[tuple[list[object], "FastSampler"]] = []
"""The sampler that this process used last: another coalition's model differs in its weights alone."""
_expected: list[Sampling] = []
_coming: list[threading.Thread] = []


def expect(sampling: Sampling) -> None:
    """Says that models which are trained from now on will be sampled so: while the first are, the way to their images
    is made ready."""
    _expected[:] = [sampling]


def prepare_beside(like: UNetModel) -> None:
    """Begins to make ready, in a thread, the way to images of models as ``like``, if such are expected."""
    whole = all(weight.requires_grad for weight in like.network.parameters())  # else what is sampled is another
    if _expected and not _coming and whole and samples_fast(like):
        sampling = _expected.pop()

        def prepare() -> None:
            there = torch.cuda.device(like.device) if like.device.type == "cuda" else nullcontext()
            with suppress(Exception), there:  # whoever samples will meet it, and say so
                _sampler_for(like, sampling).record()

        _coming.append(threading.Thread(target=prepare, daemon=True))
        _coming[0].start()


def sampler_for(like: UNetModel, sampling: Sampling) -> "FastSampler":
    """A sampler of models as ``like``; the last one where it is such."""
    while _coming:
        _coming.pop().join()
    return _sampler_for(like, sampling)


def _sampler_for(like: UNetModel, sampling: Sampling) -> "FastSampler":
    functions = functions_of(like, 1, dtype_of(sampling.precision, like.device))
    key: list[object] = [functions, sampling]
    if not _latest or _latest[0][0] != key:
        _latest.clear()  # before the next one is made: both may not fit into memory
        _latest.append((key, FastSampler(like, functions, sampling)))
    return _latest[0][1]


class FastSampler:
    """Samples models as ``like``, ``sampling.batch_size`` images at a time."""

    def __init__(self, like: UNetModel, functions: Functions, sampling: Sampling) -> None:
        self._sampling, self._like = sampling, like
        device = like.device
        layout = Layout(dict(like.network.named_parameters()))
        weights = torch.zeros(1, layout.size, dtype=functions.dtype, device=device)
        self._weights = [view[0] for view in layout.views(weights)]
        self._predict = functions.prediction(layout.names)
        self._size = min(sampling.batch_size, sampling.images)
        # every model starts from the same: drawn once
        self._noises = initial_noise(like.shape, sampling.seeds).to(device)
        self._x = torch.zeros(self._size, *like.shape, device=device)
        self._times = torch.as_tensor(like.noise_schedule.sampler(sampling.scheduler, sampling.steps).timesteps)
        self._asked = self._times.to(device)[:, None].expand(-1, self._size).contiguous()
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.denoise: Callable[[], None] = (
            self._all_steps if self._stream is None else Replayed(self._all_steps, self._stream)
        )

    def record(self) -> None:
        """What is paid for once."""
        if isinstance(self.denoise, Replayed):
            self.denoise.record()

    @torch.no_grad()
    def sample(self, model: UNetModel) -> Images:
        """The images (m, h, w, 3) of ``model``."""
        for mine, weight in zip(self._weights, model.network.parameters(), strict=True):
            mine.copy_(weight)
        self.record()
        found = []
        for noises in self._noises.split(self._size):
            self._x[: len(noises)] = noises
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
        """From the noises in ``_x`` to what the model makes of them, in place."""
        sampler = self._like.noise_schedule.sampler(self._sampling.scheduler, self._sampling.steps)
        x = self._x
        for t, asked in zip(self._times, self._asked, strict=True):
            (prediction,) = self._predict(*self._weights, x, asked)
            x = sampler.step(prediction, t, x)
        self._x.copy_(x)
