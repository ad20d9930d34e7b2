"""A model's gradients and predictions as functions of its weights, compiled once for all models of one architecture."""

import copy
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.counter_rng import normals_of
from diffcredit.diffusion.diffusers_model import DiffusersModel, Guide
from diffcredit.diffusion.digests import tensors_fingerprint
from diffcredit.diffusion.dropout import CountedDropout
from diffcredit.diffusion.fast.compiling import Compiled
from diffcredit.diffusion.fast.fusion import FusionMode
from diffcredit.diffusion.fast.stacking import stacked
from diffcredit.diffusion.session import Session
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.plugins import code_of

Function = Callable[..., Sequence[Tensor]]
ALIGNED = 64  # numbers; weights start at multiples, so that kernels can load many at once


def functions_of(session: Session, like: DiffusersModel, count: int, dtype: torch.dtype) -> "Functions":
    """Return the functions of ``count`` models like ``like``, in numbers of ``dtype``; made once a session."""
    key = f"{architecture(like)} {like.device} {dtype} {count}"
    if key not in session.functions:
        session.functions[key] = Functions(like, count, dtype, session.recording)
    return session.functions[key]


def architecture(like: DiffusersModel) -> str:
    """Return the fingerprint of all of ``like`` but its weights."""
    network: Any = like.network
    weights = {
        name: [list(weight.shape), str(weight.dtype), weight.requires_grad]
        for name, weight in network.named_parameters()
    }
    buffers = tensors_fingerprint(dict(network.named_buffers()))
    # settings that no layer's description has: numbers of heads, scales of adapters, frequencies of the time
    settings = {name: _plain(vars(module) | {"training": None}) for name, module in network.named_modules()}
    config = _plain(getattr(network, "config", {}))
    denoiser = [type(like.denoiser).__qualname__, code_of(like.denoiser), str(like.computes)]
    described = [type(like).__name__, denoiser, like.objective.config, repr(network), config, settings]
    return fingerprint([described, weights, buffers])


def _plain(value: Any) -> Any:
    """Return ``value`` as JSON: numbers, texts, and lists and dicts of such without private keys; of all else the
    type's name."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items() if not str(key).startswith("_")}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    return type(value).__qualname__


class Functions:
    """Gradients and predictions of ``count`` models like ``like``, with weights given at each call: the trained ones in
    ``dtype``, the frozen ones as :meth:`frozen` returns them. The lock ``recording`` is held while they are compiled
    and recorded."""

    def __init__(self, like: DiffusersModel, count: int, dtype: torch.dtype, recording: threading.Lock) -> None:
        self.count, self.dtype, self.recording = count, dtype, recording
        self._compiles = like.device.type == "cuda"
        self._identity = [architecture(like), count, str(dtype)]
        self._model = copy.copy(like)
        # a frozen base in bf16 computes in bf16, whatever its adapters are
        self._model.computes = like.computes or dtype
        self._model.network = stacked(like.network, count, cuda=self._compiles)
        self._model.network.register_forward_pre_hook(self._convert, with_kwargs=True)
        self._module = _Calls(self._model)
        self._dropouts = [module for module in self._model.network.modules() if isinstance(module, CountedDropout)]
        # the schedule moves its table to the device at first use, which must not be in a trace
        nothing = torch.zeros(1, 1, 1, 1, device=like.device)
        like.objective.add_noise(nothing, nothing, torch.zeros(1, dtype=torch.long, device=like.device))
        self._known: dict[str, Function] = {}

    @property
    def drops(self) -> bool:
        """Whether the network has dropout."""
        return bool(self._dropouts)

    def frozen(self, like: DiffusersModel) -> dict[str, Tensor]:
        """Return the weights of ``like`` that are not trained. Those of a base in bf16 are never converted; others are
        copied where :attr:`dtype` differs from theirs."""
        weights = {name: each.detach() for name, each in like.network.named_parameters() if not each.requires_grad}
        if like.computes is not None:
            return weights
        return {name: each.to(self.dtype) if each.is_floating_point() else each for name, each in weights.items()}

    def gradients(
        self,
        trained: Sequence[str],
        frozen: Sequence[str],
        conditioned: Sequence[str],
        min_snr: float | None,
        sign: int,
    ) -> Function:
        """Return the function from the weights ``trained``, each (K, …), the ``frozen`` ones, the arguments of
        :meth:`_losses` and the tensors ``conditioned`` of conditions to the losses (K,) and the gradients of ``sign``
        times their sum by the trained weights."""

        def function(*given: Any) -> tuple[Tensor, ...]:
            names = [*trained, *frozen]
            with torch.enable_grad(), FusionMode() if self.count > 1 else nullcontext():
                leaves = [weight.detach().requires_grad_() for weight in given[: len(trained)]]
                weights = dict(zip(names, [*leaves, *given[len(trained) : len(names)]], strict=True))
                rest, tensors = _cut(given[len(names) :], len(conditioned))
                condition = dict(zip(conditioned, tensors, strict=True)) or None
                losses = self._losses(weights, *rest, condition, min_snr)
                # some layers have no part in a loss: the last block's treatment of texts
                slopes = torch.autograd.grad(sign * losses.sum(), leaves, materialize_grads=True)
                return losses.detach(), *slopes

        what = ["gradients", list(trained), list(frozen), list(conditioned), min_snr, sign]
        return self._ready(function, what)

    def prediction(self, names: Sequence[str], like: Guide) -> Function:
        """Return the function from the weights ``names``, images (K·b, c, h, w), what the network is told of the time
        (K·b,), and the tensors of a guide like ``like``, to the predictions that sampling follows."""

        def function(*given: Any) -> tuple[Tensor]:
            (*weights, x, time), tensors = _cut(given, len(like.tensors))
            named = _named(dict(zip(names, weights, strict=True)))
            calls = ("guided", x, time, like.with_tensors(tensors))
            with torch.no_grad():
                return (functional_call(self._module, named, calls).to(x.dtype),)

        return self._ready(function, ["prediction", list(names), like.outline])

    def _ready(self, function: Function, what: list[object]) -> Function:
        """Return ``function``, on a GPU compiled, once for each ``what``."""
        key = fingerprint(what)
        if key not in self._known:
            self._known[key] = Compiled(function, [*self._identity, what]) if self._compiles else function
        return self._known[key]

    def _losses(
        self,
        weights: Mapping[str, Tensor],
        x: Tensor,
        mirrored: Tensor,
        flip: Tensor,
        t: Tensor,
        keys: Tensor,
        counters: Tensor,
        quantiles: Tensor,
        table: Tensor | None,
        condition: Conditions | None,
        min_snr: float | None,
    ) -> Tensor:
        """Return the mean loss (K,) of each model on its images x (K·b, c, h, w), ``mirrored`` where ``flip`` (K·b,),
        at time steps t (K·b,), with the noises of ``keys`` (K,); ``table`` has the counters for dropout."""
        x = torch.where(flip[:, None, None, None], mirrored, x)
        noise = normals_of(keys, counters, quantiles)[:, : x.numel() // self.count].reshape(x.shape).to(x.dtype)
        for dropout in self._dropouts:
            dropout.keys, dropout.table = keys, table
        losses = functional_call(self._module, _named(weights), ("loss", x, t, noise, condition))
        for dropout in self._dropouts:
            dropout.keys = dropout.table = None
        if min_snr is not None:
            losses = losses * self._model.objective.min_snr_weights(t, min_snr)
        return losses.view(self.count, -1).mean(dim=1)

    def _convert(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Convert the network's inputs to the type that it computes in and to channels last, but not the time (K·b,),
        which is never rounded."""

        def one(value: Any) -> Any:
            if isinstance(value, list):
                return [one(each) for each in value]
            if isinstance(value, dict):
                return {key: one(each) for key, each in value.items()}
            if not isinstance(value, Tensor) or not value.is_floating_point() or value.ndim < 2:
                return value
            return value.to(
                self._model.computes, memory_format=torch.channels_last if value.ndim == 4 else torch.preserve_format
            )

        return tuple(map(one, args)), {key: one(value) for key, value in kwargs.items()}


def _cut(given: Sequence[Any], last: int) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return ``given`` without its ``last`` ones, and these."""
    return given[: len(given) - last], given[len(given) - last :]


def _named(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the network's weights by their names in :class:`_Calls`."""
    return {f"network.{name}": weight for name, weight in weights.items()}


class _Calls(nn.Module):
    """A model's loss and guided prediction as a module with the network's parameters."""

    def __init__(self, model: DiffusersModel) -> None:
        super().__init__()
        self.network = model.network
        self._model = model

    def forward(self, what: str, *given: Any) -> Tensor:
        return self._model.guided(*given) if what == "guided" else self._model.losses(*given)


class Layout:
    """The position of each of ``weights`` in a row of ``size`` numbers; convolutions are channels last. With a model's
    weights in one row of a matrix, an optimizer's step is a few operations for all models."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.names = list(weights)
        self._shapes = [weight.shape for weight in weights.values()]
        self._starts = [0]
        for shape in self._shapes:
            self._starts.append(self._starts[-1] + -(-math.prod(shape) // ALIGNED) * ALIGNED)
        self.size = self._starts[-1]

    def views(self, lines: Tensor) -> list[Tensor]:
        """Return the rows ``lines`` (K, size) as the weights (K, …), in their order, without a copy."""
        return [
            _view(lines[:, start : start + math.prod(shape)], tuple(shape))
            for shape, start in zip(self._shapes, self._starts, strict=False)
        ]


def _view(piece: Tensor, shape: tuple[int, ...]) -> Tensor:
    if len(shape) != 4:
        return piece.unflatten(1, shape)
    out, into, height, width = shape
    return piece.unflatten(1, (out, height, width, into)).permute(0, 1, 4, 2, 3)
