"""The kernels against torch's own layers, run by Triton's interpreter where there is no GPU."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="needs Triton")

BEGINNING = """
from dataclasses import replace
from functools import cache

import torch
from torch.nn import functional as F
from triton.runtime import interpreter

torch.manual_seed(0)
# made fit for kernels once and for all, not with every call of a function
interpreter._patch_lang = cache(interpreter._patch_lang)
interpreter._LangPatchScope.restore = lambda self: None
builder = interpreter.interpreter_builder
builder.options = replace(builder.options, sanitize_overflow=False)  # nothing here is large enough to overflow

def compare(what, y, expected, inputs):
    slope = torch.randn_like(expected)
    found = [y, *torch.autograd.grad(y, inputs, slope)]
    theirs = [expected, *torch.autograd.grad(expected, inputs, slope, retain_graph=True)]
    for one, other in zip(found, theirs):
        assert one.shape == other.shape
        assert (one - other).norm() < 1e-5 * other.norm(), what
"""

NORMS_ALONE = """
from diffcredit.diffusion.fast.compiling import traced
from diffcredit.diffusion.fast.norms import normed

def slopes(x, weight, bias):
    x = x.detach().requires_grad_()
    return torch.autograd.grad((normed(x, None, weight, bias, 2, 1e-5, silu=True) * x).sum(), [x])

# as of latent models, whose convolutions are cuDNN's
graph, _ = traced(slopes, [torch.randn(2, 4, 3, 3), torch.ones(1, 4), torch.zeros(1, 4)])
assert not hasattr(torch.ops.diffcredit, "convolve_back")
assert any(str(node.target) == "diffcredit.norm_slopes.default" for node in graph.graph.nodes)
"""

CONVOLUTIONS = """
from diffcredit.diffusion.fast.convolution import convolved

# models, images, pixels a side, channels in and out, taps a side, stride, padding
for what in [
    (2, 3, 6, 32, 16, 3, 1, 1),
    (2, 2, 5, 3, 32, 3, 1, 1),
    (2, 2, 8, 64, 48, 3, 2, 1),
    (2, 2, 8, 32, 64, 3, 2, 1),
    (3, 2, 9, 24, 20, 3, 2, 0),
    (1, 2, 4, 32, 3, 3, 1, 1),
    (2, 2, 4, 96, 130, 3, 1, 1),
    (2, 2, 4, 40, 24, 1, 1, 0),
    (2, 2, 4, 64, 32, 1, 1, 0),
    (2, 2, 4, 48, 24, 3, 1, 1),
    (2, 2, 6, 40, 72, 3, 2, 1),
]:
    models, images, size, into, out, side, stride, padding = what
    x = torch.randn(models * images, into, size, size, requires_grad=True)
    # of the flat weights of each model, as a fleet has them
    numbers = out * side * side * into
    flat = torch.randn(models, numbers + 17, requires_grad=True)
    weight, bias = flat[:, :numbers].view(models, out, side, side, into), torch.randn(models, out, requires_grad=True)
    y = convolved(x, weight, bias, stride, padding)
    expected = torch.cat(
        [
            F.conv2d(own, weight[k].permute(0, 3, 1, 2), bias[k], stride, padding)
            for k, own in enumerate(x.chunk(models))
        ]
    )
    compare(what, y, expected, [x, flat, bias])
    more = torch.randn_like(expected).requires_grad_()
    y = convolved(x, weight, bias, stride, padding, more)
    compare(what, y, expected + more, [x, flat, bias, more])
    y = convolved(x, weight.detach(), None, stride, padding)  # frozen
    compare(what, y, expected - bias.repeat_interleave(images, 0)[:, :, None, None], [x])
"""

NORMS = """
from diffcredit.diffusion.fast import norms

for norms.REGISTERS in (32768, 256):  # all pixels at once, and some at a time
    # models, images, pixels a side, channels, groups, whether there is a shift, and SiLU
    for what in [
        (2, 2, 5, 24, 4, True, True),
        (1, 2, 6, 32, 16, False, False),
        (2, 2, 3, 48, 16, True, True),
        (2, 2, 4, 6, 3, True, False),
        (1, 2, 4, 5, 1, False, True),
    ]:
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
"""

NETWORK = """
from torch.func import functional_call
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.fast.stacking import stacked

network = DDPM.create("tiny", 8, 0).network
for models in (1, 2):
    weights = {
        name: torch.stack([weight.detach() + 0.01 * torch.randn_like(weight) for _ in range(models)]).requires_grad_()
        for name, weight in network.named_parameters()
    }
    given = weights if models > 1 else {name: weight[0] for name, weight in weights.items()}
    x, t = torch.randn(models, 3, 8, 8), torch.tensor([3, 700])[:models]
    y = functional_call(stacked(network, models, cuda=True), given, (x, t)).sample
    expected = torch.cat(
        [
            functional_call(network, {name: weight[k] for name, weight in weights.items()}, (x[[k]], t[[k]]))[0]
            for k in range(models)
        ]
    )
    # the gradient of keys' biases is zero but for rounding
    compare(models, y, expected, [weight for name, weight in weights.items() if not name.endswith("to_k.bias")])
"""

TRACED = """
from diffcredit.diffusion import counter_rng, networks
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.fast import compiling, functional
from diffcredit.diffusion.fast.compiling import Compiled, traced
from diffcredit.diffusion.fast.stacking import stacked
from diffcredit.diffusion.session import Session

models, images, here = 2, 2, torch.device("cpu")
x, t, keys = torch.randn(models * images, 3, 8, 8), torch.tensor([3, 700, 20, 400]), torch.tensor([5, -6])
flip = torch.tensor([True, False, False, True])
tables = counter_rng.normal_counters(x[0].numel() * images, here), counter_rng.quantiles(here)
config = {
    "sample_size": 8,
    "in_channels": 3,
    "out_channels": 3,
    "block_out_channels": (16, 16),
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    "attention_head_dim": 16,
}
base = DDPM(networks.build(config, 0), config)
compiling.AT_ONCE = 1  # Triton's interpreter knows no threads
COMPILES = False
LIKES = [base]

def of_kind(graph, kind):
    return [node for node in graph.graph.nodes if str(node.target) == f"diffcredit.{kind}.default"]

for like in LIKES:
    weights = dict(like.network.named_parameters())
    trained = {
        name: torch.stack([weight.detach() + 0.01 * torch.randn_like(weight) for _ in range(models)])
        for name, weight in weights.items()
        if weight.requires_grad
    }
    frozen = {name: weight.detach() for name, weight in weights.items() if name not in trained}
    given = [*trained.values(), *frozen.values(), x, x.flip(3), flip, t, keys, *tables]

    def gradients():
        functions = functional.functions_of(Session(), like, models, torch.float32)
        function = functions.gradients(list(trained), list(frozen), None, 1)
        return lambda *some: function(*some, None, None)

    functional.stacked = stacked
    expected = gradients()(*given)
    functional.stacked = lambda network, count, cuda: stacked(network, count, cuda=True)
    graph, constants = traced(gradients(), given)
    compiling.precompile_kernels(graph.graph)
    convolutions, slopes = of_kind(graph, "convolve"), of_kind(graph, "norm_slopes")
    assert constants and convolutions and len({node.args[1] for node in convolutions}) == len(convolutions)  # once each
    if like is base:
        put_together = [node for node in graph.graph.nodes if str(node.target) == "aten.cat.default"]
        assert not [node for node in put_together if node.meta["val"].ndim == 4]
        assert sum(node.args[9] is not None for node in slopes) > len(slopes) / 3
        assert sum(node.args[2] is not None for node in slopes) > 1
    found = Compiled(gradients(), "it")(*given) if COMPILES else graph(*given, *constants)
    for name, one, other in zip(["losses", *trained], found, expected):
        if not name.endswith("to_k.bias"):
            assert (one - other).norm() < 1e-4 * other.norm(), name
"""

WITH_ADAPTERS = """
from diffcredit.retraining.lora import LoRA, _frozen

LIKES = [base, LoRA(rank=16, dropout=0.0)._adapted(_frozen(base), 0)]
"""


@pytest.mark.parametrize(
    "comparison",
    [
        pytest.param(NORMS_ALONE + CONVOLUTIONS + NORMS, id="layers"),
        pytest.param(NETWORK, id="network", marks=pytest.mark.slow),  # all of whose layers are traced, too
        pytest.param(TRACED, id="traced"),
    ],
)
def test_kernels_and_their_gradients_are_torchs(comparison):
    interpreted(comparison)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_also_where_all_around_them_is_compiled(tmp_path):
    for _ in range(2):  # compiled, and found again
        compiled = TRACED.replace("COMPILES = False", "COMPILES = True").replace("LIKES = [base]", WITH_ADAPTERS)
        interpreted(compiled, XDG_CACHE_HOME=str(tmp_path))


def interpreted(program: str, **environment: str) -> None:
    """Runs ``program`` to its end, its kernels by Triton's interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", BEGINNING + program + 'print("equal")'],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "equal\n"
