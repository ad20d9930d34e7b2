"""A model's loss and prediction as functions of its weights, compiled once for all models of one architecture."""

import copy
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from diffcredit.artifacts import fingerprint
from diffcredit.diffusion.dropping import CountedDropout
from diffcredit.diffusion.fast.stacking import stacked
from diffcredit.diffusion.noises import normals_of
from diffcredit.diffusion.unet import UNetModel

_made: dict[str, "Functions"] = {}


def functions_of(like: UNetModel, count: int, dtype: torch.dtype) -> "Functions":
    """The functions of ``count`` models as ``like``, in numbers of ``dtype``; made once a process."""
    key = f"{architecture(like)} {like.device} {dtype} {count}"
    if key not in _made:
        _made[key] = Functions(like, count, dtype)
    return _made[key]


def architecture(like: UNetModel) -> str:
    """Fingerprint of all of ``like`` but its weights."""
    shapes = {name: [list(weight.shape), weight.requires_grad] for name, weight in like.network.named_parameters()}
    return fingerprint([type(like).__name__, shapes, like.noise_schedule.config, repr(like.network)])


def cache_folder() -> Path:
    """For what other processes and later runs need not find out again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "diffcredit"


class Functions:
    """Loss and prediction of ``count`` models as ``like``, computed in ``dtype`` with weights given at each call."""

    def __init__(self, like: UNetModel, count: int, dtype: torch.dtype) -> None:
        self.count, self.dtype = count, dtype
        compiles = like.device.type == "cuda"
        self._model = copy.copy(like)
        self._model.network = stacked(like.network, count, cuda=compiles)
        self._model.network.register_forward_pre_hook(self._convert, with_kwargs=True)
        self._module = _Calls(self._model)
        self._dropouts = [module for module in self._model.network.modules() if isinstance(module, CountedDropout)]
        # the schedule moves its table to the device at first use, which would make the compiler start again
        nothing = torch.zeros(1, 1, 1, 1, device=like.device)
        like.noise_schedule.add_noise(nothing, nothing, torch.zeros(1, dtype=torch.long, device=like.device))
        self.losses: Callable[..., Tensor] = self._losses
        self.prediction: Callable[..., Tensor] = self._prediction
        if compiles:
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "compiled"))
            self.losses = torch.compile(self._losses, dynamic=False, fullgraph=True)
            self.prediction = torch.compile(self._prediction, dynamic=False, fullgraph=True)

    @property
    def drops(self) -> bool:
        """Whether the network drops out some of what it sees."""
        return bool(self._dropouts)

    def given(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The network's ``weights``, each (K, …) or frozen, as the functions want them."""
        return {f"network.{name}": weight for name, weight in weights.items()}

    def _losses(
        self,
        weights: dict[str, Tensor],
        x: Tensor,
        mirrored: Tensor,
        flip: Tensor,
        t: Tensor,
        keys: Tensor,
        counters: Tensor,
        quantiles: Tensor,
        condition: Tensor | None,
        min_snr: float | None,
        table: Tensor | None,
    ) -> Tensor:
        """The mean loss (K,) of each model on its images x (K·b, c, h, w), ``mirrored`` where ``flip`` (K·b,), at time
        steps t (K·b,), with the noises of its key of ``keys`` (K,); ``table`` has the counters for dropout."""
        x = torch.where(flip[:, None, None, None], mirrored, x)
        noise = normals_of(keys, counters, quantiles)[:, : x.numel() // self.count].reshape(x.shape).to(x.dtype)
        for dropout in self._dropouts:
            dropout.keys, dropout.table = keys, table
        losses = functional_call(self._module, weights, ("loss", x, t, noise, condition))
        for dropout in self._dropouts:
            dropout.keys = dropout.table = None
        if min_snr is not None:
            losses = losses * self._model.noise_schedule.min_snr_weights(t, min_snr)
        return losses.view(self.count, -1).mean(dim=1)

    def _prediction(self, weights: dict[str, Tensor], x: Tensor, t: Tensor) -> Tensor:
        return functional_call(self._module, weights, ("predict", x, t, None, None)).to(x.dtype)

    def _convert(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The network's inputs in this type of numbers, and channels last."""

        def one(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return value
            return value.to(self.dtype, memory_format=torch.channels_last if value.ndim == 4 else torch.preserve_format)

        return tuple(map(one, args)), {key: one(value) for key, value in kwargs.items()}


class _Calls(nn.Module):
    """A model's loss and prediction as a module that has the network's parameters."""

    def __init__(self, model: UNetModel) -> None:
        super().__init__()
        self.network = model.network
        self._model = model

    def forward(self, what: str, x: Tensor, t: Tensor, noise: Tensor | None, condition: Tensor | None) -> Tensor:
        if what == "predict" or noise is None:
            return self._model.predict(x, t, condition)
        return self._model.losses(x, t, noise, condition)
