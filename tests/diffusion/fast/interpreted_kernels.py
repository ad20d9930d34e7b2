"""Compares the kernels with torch's own layers, in a process of its own in which Triton's interpreter runs them. With
the argument ``compiled``, all around them is compiled."""

import os
import sys
from dataclasses import replace
from functools import cache
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F
from triton.runtime import interpreter

from diffcredit.diffusion import counter_rng, networks
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.fast import compiling, functional, norms
from diffcredit.diffusion.fast.compiling import Compiled, traced
from diffcredit.diffusion.fast.stacking import stacked
from diffcredit.diffusion.session import Session
from diffusion.fast.tiny_models import data_of, whole
from diffusion.tiny import CONFIG

# made fit for kernels once and for all, not with every call of a function
interpreter._patch_lang = cache(interpreter._patch_lang)
interpreter._LangPatchScope.restore = lambda self: None
builder = interpreter.interpreter_builder
builder.options = replace(builder.options, sanitize_overflow=False)  # nothing here is large enough to overflow

CONFIG = CONFIG | {"block_out_channels": (16, 16), "attention_head_dim": 16}


def compare(what: object, y: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    slope = torch.randn_like(expected)
    found = [y, *torch.autograd.grad(y, inputs, slope)]
    theirs = [expected, *torch.autograd.grad(expected, inputs, slope, retain_graph=True)]
    for one, other in zip(found, theirs, strict=True):
        assert one.shape == other.shape
        assert (one - other).norm() < 1e-5 * other.norm(), what


def norms_alone() -> None:
    """As of latent models, whose convolutions are cuDNN's."""

    def slopes(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        x = x.detach().requires_grad_()
        return torch.autograd.grad((norms.normed(x, None, weight, bias, 2, 1e-5, silu=True) * x).sum(), [x])

    graph, _ = traced(slopes, [torch.randn(2, 4, 3, 3), torch.ones(1, 4), torch.zeros(1, 4)])
    assert not hasattr(torch.ops.diffcredit, "convolve_back")
    assert any(str(node.target) == "diffcredit.norm_slopes.default" for node in graph.graph.nodes)


def convolutions() -> None:
    from diffcredit.diffusion.fast.convolution import convolved

    # models, images, pixels a side, channels in and out, taps a side, stride, padding
    shapes = [
        (2, 3, 6, 32, 3, 3, 1, 1),  # sums over pixels by windows, in two steps
        (1, 2, 5, 3, 130, 3, 1, 1),  # by lines; more outputs than a tile has
        (2, 1, 6, 40, 72, 3, 2, 1),
        (3, 1, 7, 24, 20, 3, 2, 0),
        (2, 2, 4, 40, 24, 1, 1, 0),
    ]
    for what in shapes:
        models, images, size, into, out, side, stride, padding = what
        x = torch.randn(models * images, into, size, size, requires_grad=True)
        # of the flat weights of each model, as a fleet has them
        numbers = out * side * side * into
        flat = torch.randn(models, numbers + 17, requires_grad=True)
        weight = flat[:, :numbers].view(models, out, side, side, into)
        bias = torch.randn(models, out, requires_grad=True)
        expected = torch.cat(
            [
                F.conv2d(own, weight[k].permute(0, 3, 1, 2), bias[k], stride, padding)
                for k, own in enumerate(x.chunk(models))
            ]
        )
        more = torch.randn_like(expected).requires_grad_()
        y = convolved(x, weight, bias, stride, padding, more)
        compare(what, y, expected + more, [x, flat, bias, more])
        if what == shapes[0]:
            y = convolved(x, weight.detach(), None, stride, padding)  # frozen
            compare(what, y, expected - bias.repeat_interleave(images, 0)[:, :, None, None], [x])


def normalisations() -> None:
    for norms.REGISTERS in (32768, 512):  # all pixels at once, and some at a time
        # models, images, pixels a side, channels, groups, whether there is a shift, and SiLU
        for what in [(2, 2, 5, 24, 4, True, True), (1, 2, 6, 32, 16, False, False), (1, 1, 4, 5, 1, False, True)]:
            models, images, size, channels, groups, shifted, silu = what
            x, shift = torch.randn(models * images, channels, size, size), torch.randn(models * images, channels)
            inputs = [x, shift, torch.randn(models, channels), torch.randn(models, channels)]
            inputs = [each.requires_grad_() for each in inputs]
            y = norms.normed(x, shift if shifted else None, *inputs[2:], groups, 1e-5, silu=silu)
            moved = x + shift[:, :, None, None] if shifted else x
            expected = torch.cat(
                [F.group_norm(own, groups, inputs[2][k], inputs[3][k]) for k, own in enumerate(moved.chunk(models))]
            )
            expected = F.silu(expected) if silu else expected
            inputs = [each for each in inputs if shifted or each is not shift]
            compare(what, y, expected, inputs)
            one, other = x[:, : channels // 3 + 1], x[:, channels // 3 + 1 :]  # channels in two parts
            y = norms.normed(one, shift if shifted else None, *inputs[-2:], groups, 1e-5, silu=silu, other=other)
            compare(what, y, expected, inputs)


def single_network(like: DDPM) -> None:
    weights = {name: weight.detach().clone().requires_grad_() for name, weight in like.network.named_parameters()}
    x, t = torch.randn(1, 3, 8, 8), torch.tensor([700])
    y = functional_call(stacked(like.network, 1, cuda=True), weights, (x, t)).sample
    expected = functional_call(like.network, weights, (x, t)).sample
    # the gradient of keys' biases is zero but for rounding
    compare("network", y, expected, [weight for name, weight in weights.items() if not name.endswith("to_k.bias")])


def fleets(likes: list[DDPM], *, compiles: bool) -> None:
    """The first of ``likes`` is a whole network, whose sums and concatenations are all made by kernels."""
    models, here = 2, torch.device("cpu")
    x, t, keys = torch.randn(models, 3, 8, 8), torch.tensor([3, 700]), torch.tensor([5, -6])
    tables = counter_rng.normal_counters(x[0].numel(), here), counter_rng.quantiles(here)
    compiling.AT_ONCE = 1  # Triton's interpreter knows no threads
    for like in likes:
        weights = dict(like.network.named_parameters())
        trained = {
            name: torch.stack([weight.detach() + 0.01 * torch.randn_like(weight) for _ in range(models)])
            for name, weight in weights.items()
            if weight.requires_grad
        }
        frozen = {name: weight.detach() for name, weight in weights.items() if name not in trained}
        given = [*trained.values(), *frozen.values(), x, x.flip(3), torch.tensor([True, False]), t, keys, *tables]

        def gradients(like: DDPM = like, trained: Any = trained, frozen: Any = frozen) -> Any:
            functions = functional.functions_of(Session(), like, models, torch.float32)
            function = functions.gradients(list(trained), list(frozen), [], None, 1)
            return lambda *some: function(*some, None)

        functional.stacked = stacked
        expected = gradients()(*given)
        functional.stacked = lambda network, count, cuda: stacked(network, count, cuda=True)
        graph, constants = traced(gradients(), given)
        calls = {"convolve": [], "norm_slopes": []}
        for node in graph.graph.nodes:
            calls.get(str(node.target).removeprefix("diffcredit.").removesuffix(".default"), []).append(node)
        first = [node.args[1] for node in calls["convolve"]]
        assert constants
        assert 0 < len(first) == len(set(first)), "each convolution is computed once"
        if like is likes[0]:
            put_together = [node for node in graph.graph.nodes if str(node.target) == "aten.cat.default"]
            assert not [node for node in put_together if node.meta["val"].ndim == 4]
            slopes = calls["norm_slopes"]
            assert sum(node.args[9] is not None for node in slopes) > len(slopes) / 3
            assert sum(node.args[2] is not None for node in slopes) > 1
        found = Compiled(gradients(), "it")(*given) if compiles else graph(*given, *constants)
        for name, one, other in zip(["losses", *trained], found, expected, strict=True):
            if not name.endswith("to_k.bias"):
                assert (one - other).norm() < 1e-4 * other.norm(), name


def transformers() -> None:
    """Two whole transformers at a time, whose linear layers are computed by kernels."""
    here, places = torch.device("cpu"), torch.arange(4)
    for kind in ("dit", "sd3"):
        crew = [whole(kind, seed) for seed in range(2)]
        data, named = data_of(crew[0]), [dict(model.network.named_parameters()) for model in crew]
        weights = {name: torch.stack([own[name].detach() for own in named]) for name in named[0]}
        condition = sorted((data.conditions_at(places) or {}).items())
        tables = counter_rng.normal_counters(2 * data.x[0].numel(), here), counter_rng.quantiles(here)
        inputs = [data.x[:4], data.flipped[:4], torch.zeros(4, dtype=torch.bool), torch.tensor([3, 700, 20, 900])]
        given = [*weights.values(), *inputs, torch.tensor([5, -6]), *tables, None, *(each for _, each in condition)]
        found = []
        for on_gpu in (False, True):
            functional.stacked = lambda network, count, cuda, on_gpu=on_gpu: stacked(network, count, cuda=on_gpu)
            functions = functional.functions_of(Session(), crew[0], 2, torch.float32)
            found.append(functions.gradients(list(weights), [], [name for name, _ in condition], None, 1)(*given))
        for name, one, other in zip(["losses", *weights], *found, strict=True):
            if not name.endswith("to_k.bias"):
                assert (one - other).norm() <= 1e-4 * other.norm(), name


if __name__ == "__main__":
    torch.manual_seed(0)
    base = DDPM(networks.build(CONFIG, 0), CONFIG)
    if sys.argv[1:] == ["compiled"]:
        from diffcredit.retraining.lora import LoRA, _frozen

        fleets([base, LoRA(rank=16, dropout=0.0)._adapted(_frozen(base), 0)], compiles=True)
    else:
        norms_alone()  # before a convolution is imported
        convolutions()
        normalisations()
        single_network(base)
        fleets([base], compiles=False)
        transformers()
    sys.stdout.write("equal\n")
